// SPDX-License-Identifier: Apache-2.0
//
// tiercel-crash-writer (crash_writer.cc) as a child, its lines as they come, and its violent end.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "support/paths.h"

namespace tiercel::testing {

class WriterProcess {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `input`: path of what stands on its standard input.
  WriterProcess(const std::vector<std::string>& arguments, const std::string& input) {
    const std::string program = binary_path("tiercel-crash-writer");
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    output_.reset(ends[0]);
    pid_ = ::fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      ::alarm(kSecondsMax);
      const int in = ::open(input.c_str(), O_RDONLY | O_CLOEXEC);
      if (in >= 0 && ::dup2(in, STDIN_FILENO) >= 0 && ::dup2(ends[1], STDOUT_FILENO) >= 0) {
        ::execv(program.c_str(), argv.data());
      }
      ::_exit(99);
    }
    ::close(ends[1]);
  }
  ~WriterProcess() {
    if (pid_ > 0) end();
  }
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  // Hands every whole line to `on_line`, which may say when to kill it, until the program has
  // ended. Returns whether it was killed while it lived.
  bool run(std::optional<Time> kill_at,
           const std::function<std::optional<Time>(std::string_view)>& on_line) {
    bool is_killed = false;
    std::string text;
    while (true) {
      pollfd descriptor{output_.get(), POLLIN, 0};
      const timespec wait = time_until(kill_at);
      const int ready = ::ppoll(&descriptor, 1, kill_at ? &wait : nullptr, nullptr);
      if (ready < 0 && errno != EINTR) break;
      if (kill_at && std::chrono::steady_clock::now() >= *kill_at) {
        EXPECT_EQ(::kill(pid_, SIGKILL), 0);
        is_killed = true;
        kill_at.reset();
      }
      if (ready <= 0) continue;
      char piece[4096];
      const ssize_t count = ::read(output_.get(), piece, sizeof piece);
      if (count <= 0) break;
      text.append(piece, static_cast<size_t>(count));
      for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
        const std::optional<Time> asked = on_line(std::string_view(text).substr(0, end));
        if (!is_killed && !kill_at) kill_at = asked;
      }
    }
    return is_killed && end() == -SIGKILL;
  }

  // Its exit status once it has ended; minus the signal if one ended it.
  int end() {
    if (pid_ > 0) {
      int status = 0;
      EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
      pid_ = -1;
      end_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return end_;
  }

 private:
  static constexpr unsigned kSecondsMax = 120;  // ends one that hangs, so that the test fails

  static timespec time_until(const std::optional<Time>& time) {
    using std::chrono::nanoseconds;
    const auto rest = time ? *time - std::chrono::steady_clock::now() : nanoseconds(0);
    const int64_t count = std::max<int64_t>(std::chrono::nanoseconds(rest).count(), 0);
    return {static_cast<time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
  }

  pid_t pid_ = -1;
  int end_ = 0;
  FileDescriptor output_;
};

}  // namespace tiercel::testing
