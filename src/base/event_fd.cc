// SPDX-License-Identifier: Apache-2.0
#include "base/event_fd.h"

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error_text.h"

namespace tiercel {

Result<EventFd> EventFd::create() {
  FileDescriptor fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return Error(Code::kUnavailable, "eventfd could not be made: " + limit_error_text(errno));
  }
  return EventFd(std::move(fd));
}

Result<EventFd> EventFd::adopt(FileDescriptor fd) {
  std::array<char, 64> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  const ssize_t bytes = ::readlink(link.c_str(), name.data(), name.size());
  const std::string_view kind(name.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  if (kind != "anon_inode:[eventfd]") {
    return Error(Code::kInvalid,
                 "descriptor is of '" + std::string(kind) + "'; allowed: an eventfd");
  }
  if ((::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) == 0) {
    return Error(Code::kInvalid, "eventfd can block; allowed: EFD_NONBLOCK");
  }
  return EventFd(std::move(fd));
}

void EventFd::signal() {
  const uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0) {
    // EAGAIN: the counter is full, so the descriptor is readable, which is all that a signal
    // promises.
    if (errno == EAGAIN) return;
    TIERCEL_ASSERT(errno == EINTR, "an eventfd takes every write");
  }
}

uint64_t EventFd::drain() {
  uint64_t count = 0;
  while (::read(fd_.get(), &count, sizeof count) < 0) {
    if (errno == EAGAIN) return 0;
    TIERCEL_ASSERT(errno == EINTR, "an eventfd gives its counter to every read");
  }
  return count;
}

}  // namespace tiercel
