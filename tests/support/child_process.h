// SPDX-License-Identifier: Apache-2.0
//
// A child process for tests of what a fork and a violent death leave behind.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tiercel::testing {

// Ends a child that hangs, by SIGALRM, so that the test fails instead of hanging too.
inline constexpr unsigned kChildSecondsMax = 60;

// Runs `body` in a child that is forked off here and ends without any clean-up of this process.
// What `body` returns is what went wrong; it comes back as the result, also if the child dies.
inline std::string run_in_child(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child < 0) return "no child";
  if (child == 0) {
    ::alarm(kChildSecondsMax);
    const std::string wrong = body();
    const bool told =
        ::write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
    ::_exit(told ? 0 : 97);
  }
  ::close(ends[1]);
  std::string wrong;
  char piece[512];
  for (ssize_t count; (count = ::read(ends[0], piece, sizeof piece)) > 0;) {
    wrong.append(piece, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return "the child is lost";
  if (status != 0) wrong += " (the child ended with status " + std::to_string(status) + ")";
  return wrong;
}

// A child that makes something and keeps it until it is killed.
class WaitingChild {
 public:
  // `body` calls what it is given when everything is there; that call never returns.
  explicit WaitingChild(const std::function<void(const std::function<void()>& wait)>& body) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      ::alarm(kChildSecondsMax);
      body([&] {
        if (::write(ends[1], ".", 1) != 1) ::_exit(97);
        while (true) ::pause();
      });
      ::_exit(98);
    }
    ::close(ends[1]);
    char said = 0;
    EXPECT_EQ(::read(ends[0], &said, 1), 1) << "the child died before it was ready";
    ::close(ends[0]);
  }
  ~WaitingChild() {
    if (pid_ > 0) kill_now();
  }
  WaitingChild(const WaitingChild&) = delete;
  WaitingChild& operator=(const WaitingChild&) = delete;

  pid_t pid() const { return pid_; }

  void kill_now() {
    EXPECT_EQ(::kill(pid_, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace tiercel::testing
