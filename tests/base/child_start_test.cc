// SPDX-License-Identifier: Apache-2.0
#include "base/child_start.h"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child_process.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

using testing::run_in_child;
using testing::TempFolder;

class ChildStartTest : public ::testing::Test {
 protected:
  ChildStartTest() {
    start_.socket = STDERR_FILENO;
    start_.parent = ::getpid();
  }

  // A program of the test's, of this text.
  void use_program(const std::string& text, std::filesystem::perms perms) {
    start_.program = folder_.write("program", text);
    std::filesystem::permissions(start_.program, perms);
    start_.arguments = {start_.program};
  }
  void use_script(const std::string& lines) {
    use_program("#!/bin/sh\n" + lines, std::filesystem::perms::owner_all);
  }

  // The exit status of the program; -1 if it was not run, or ended otherwise.
  int run() {
    const StartedChild child = start_child(start_);
    EXPECT_EQ(child.error, 0) << child.call;
    int status = 0;
    if (child.pid == 0 || ::waitpid(child.pid, &status, 0) != child.pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void expect_not_run(int error, const char* call) {
    const StartedChild child = start_child(start_);
    EXPECT_EQ(child.pid, 0);
    EXPECT_EQ(child.error, error) << child.call;
    EXPECT_STREQ(child.call, call);
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  }

  TempFolder folder_;
  ChildStart start_;
};

TEST_F(ChildStartTest, ProgramGetsItsArgumentsAndStandardStreams) {
  use_script("echo \"$1\" >&2; read line && exit 9; exit 7\n");
  start_.arguments.emplace_back("two words");
  start_.log_path = folder_.path("log");
  // /dev/null is at its end at once.
  EXPECT_EQ(run(), 7);
  EXPECT_EQ(testing::read_file(start_.log_path), "two words\n");
  // Appended.
  EXPECT_EQ(run(), 7);
  EXPECT_EQ(testing::read_file(start_.log_path), "two words\ntwo words\n");
}

// Also where a number that the program needs is closed here, or is in other use.
TEST_F(ChildStartTest, DescriptorsHaveTheirNumbersWhateverIsOpenHere) {
  use_script(
      "[ -e /proc/$$/fd/0 ] && [ -e /proc/$$/fd/1 ] && [ -e /proc/$$/fd/3 ] || exit 1\n"
      "[ -e /proc/$$/fd/77 ] && exit 2\nexit 0\n");
  EXPECT_EQ(run_in_child([&]() -> std::string {
              start_.parent = ::getpid();
              for (const int closed : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(closed);
              // The lowest number there is: a standard stream of the program.
              start_.socket = ::open("/dev/null", O_RDWR);
              // Without close-on-exec.
              if (::dup2(start_.socket, 77) != 77) return "no descriptor";
              const int status = run();
              return status == 0 ? "" : "exit status " + std::to_string(status);
            }),
            "");
}

TEST_F(ChildStartTest, WhatIsIgnoredOrBlockedHereIsNotSoInTheProgram) {
  use_script("kill -TERM $$; exit 1\n");
  EXPECT_EQ(run_in_child([&]() -> std::string {
              start_.parent = ::getpid();
              ::signal(SIGTERM, SIG_IGN);
              sigset_t all;
              sigfillset(&all);
              sigprocmask(SIG_SETMASK, &all, nullptr);
              const StartedChild child = start_child(start_);
              int status = 0;
              ::waitpid(child.pid, &status, 0);
              if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) return "it was not ended";
              sigset_t mask;
              sigprocmask(SIG_SETMASK, nullptr, &mask);
              return sigismember(&mask, SIGUSR1) == 1 ? "" : "the mask here has changed";
            }),
            "");
}

TEST_F(ChildStartTest, WhatCannotBeRunIsToldWithTheCallAndLeavesNoProcess) {
  start_.program = folder_.path("missing");
  start_.arguments = {start_.program};
  expect_not_run(ENOENT, "execve");
  use_script("exit 0\n");
  std::filesystem::permissions(start_.program, std::filesystem::perms::owner_read);
  expect_not_run(EACCES, "execve");
  use_program("no program at all", std::filesystem::perms::owner_all);
  expect_not_run(ENOEXEC, "execve");
  use_script("exit 0\n");
  start_.log_path = folder_.path("no/such/folder");
  expect_not_run(ENOENT, "open of log_path");
}

TEST_F(ChildStartTest, ParentThatIsNoLongerThereIsNotOutlived) {
  use_script("exit 0\n");
  start_.parent = ::getppid();
  expect_not_run(ESRCH, "getppid");
}

TEST_F(ChildStartTest, OnlyWhatComesAndGoesMayRunLater) {
  for (const int error : {EAGAIN, ENOMEM, EMFILE, ENFILE, ETXTBSY}) {
    EXPECT_TRUE(may_run_later(error)) << error;
  }
  for (const int error : {ENOENT, EACCES, ENOEXEC, ENOTDIR, EISDIR, EPERM}) {
    EXPECT_FALSE(may_run_later(error)) << error;
  }
}

}  // namespace
}  // namespace tiercel
