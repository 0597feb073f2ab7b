// SPDX-License-Identifier: Apache-2.0
#include "cli/line_process.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

// Makes the socket the standard streams of the program, which knows of no other.
constexpr const char* kRedirect = "exec \"$@\" <&3 >&3 3>&-";
static_assert(kChildSocketFd == 3);

}  // namespace

Result<std::unique_ptr<LineProcess>> LineProcess::start(std::vector<std::string> arguments,
                                                        std::string error_log) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error(Code::kUnavailable,
                 fmt::format("no socket for {}: {}", quoted_path(arguments.front()),
                             limit_error_text(errno)));
  }
  FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  std::string name = quoted_path(arguments.front());
  ChildStart child;
  child.program = "/bin/sh";
  child.arguments = {"sh", "-c", kRedirect, "sh"};
  child.arguments.insert(child.arguments.end(), std::make_move_iterator(arguments.begin()),
                         std::make_move_iterator(arguments.end()));
  child.log_path = std::move(error_log);
  TIERCEL_TRY_ASSIGN(std::unique_ptr<ChildProcess> process,
                     ChildProcess::start(std::move(child), std::move(theirs)));
  return std::unique_ptr<LineProcess>(
      new LineProcess(std::move(name), std::move(ours), std::move(process)));
}

Result<std::string> LineProcess::read_line(Duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (true) {
    const size_t end = received_.find('\n');
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return Error(Code::kTimeout,
                   fmt::format("{} has not answered within {}", name_, format_duration(limit)));
    }
    pollfd source{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&source, 1, static_cast<int>(left.count())) <= 0) continue;
    std::array<char, 4096> piece{};
    const ssize_t size = ::read(socket_.get(), piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      return Error(Code::kUnavailable, fmt::format("{} has ended before it answered", name_));
    }
    received_.append(piece.data(), static_cast<size_t>(size));
  }
}

Result<std::string> LineProcess::ask(const std::string& line, Duration limit) {
  const std::string text = line + "\n";
  // Lines are short: they go as a whole or the program has ended.
  if (::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size())) {
    return Error(Code::kUnavailable, fmt::format("{} has ended", name_));
  }
  return read_line(limit);
}

}  // namespace tiercel
