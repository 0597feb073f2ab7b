// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.h"

#include <cerrno>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/child_process.h"
#include "support/wait_readable.h"

namespace tiercel {
namespace {

using testing::kHangMs;
using testing::readable;

class ChildProcessTest : public ::testing::Test {
 protected:
  // A shell with these words, connected to socket_.
  void run(const std::string& script) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    ChildStart start;
    start.program = program_;
    start.arguments = {program_, "-c", script};
    child_ = ChildProcess::start(std::move(start), FileDescriptor(ends[1])).value();
  }

  void wait_for(ChildProcess::State state) {
    while (child_->state() != state) {
      ASSERT_TRUE(readable(child_->event_fd(), kHangMs));
      child_->acknowledge();
    }
  }

  std::string program_ = "/bin/sh";
  FileDescriptor socket_;
  std::unique_ptr<ChildProcess> child_;
};

TEST_F(ChildProcessTest, TellsHowItsProgramHasEnded) {
  run("exit 3");
  wait_for(ChildProcess::State::kEnded);
  EXPECT_EQ(child_->end_text(), "exited with status 3");
  EXPECT_FALSE(child_->was_killed());
  EXPECT_EQ(child_->pid(), 0);
}

TEST_F(ChildProcessTest, TellsWhyAProgramCouldNotBeRun) {
  program_ = "/nowhere/at-all";
  run("");
  wait_for(ChildProcess::State::kEnded);
  EXPECT_EQ(child_->end_text(), "could not be started: execve: No such file or directory");
}

TEST_F(ChildProcessTest, KillsOnRequest) {
  run("exec sleep 1000");
  wait_for(ChildProcess::State::kRunning);
  EXPECT_GT(child_->pid(), 0);
  child_->kill();
  wait_for(ChildProcess::State::kEnded);
  EXPECT_EQ(child_->end_text(), "was killed by signal 9");
  EXPECT_TRUE(child_->was_killed());
}

TEST_F(ChildProcessTest, TheProgramIsGoneWithTheObject) {
  run("exec sleep 1000");
  wait_for(ChildProcess::State::kRunning);
  const pid_t pid = child_->pid();
  child_.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ChildProcessTest, TheSocketEndsWithTheProgram) {
  run("echo hello >&3");
  char text[8] = {};
  EXPECT_EQ(::recv(socket_.get(), text, sizeof text, 0), 6);
  EXPECT_EQ(::recv(socket_.get(), text, sizeof text, 0), 0) << "nobody else holds its end";
}

TEST_F(ChildProcessTest, TheProgramIsGoneWithThisProcess) {
  // The child of ours starts a program that keeps a pipe open, and dies without clean-up.
  int ends[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              ours.reset();
              ChildStart start;
              start.program = "/bin/sh";
              start.arguments = {"/bin/sh", "-c", "exec sleep 1000"};
              auto child = ChildProcess::start(std::move(start), std::move(theirs));
              if (!child) return "no program";
              while ((*child)->state() == ChildProcess::State::kStarting) {
                if (!readable((*child)->event_fd(), kHangMs)) return "it does not start";
                (*child)->acknowledge();
              }
              ::_exit(0);
            }),
            "");
  theirs.reset();
  char text = 0;
  ASSERT_TRUE(readable(ours.get(), kHangMs)) << "the program lives on";
  EXPECT_EQ(::recv(ours.get(), &text, 1, 0), 0);
}

}  // namespace
}  // namespace tiercel
