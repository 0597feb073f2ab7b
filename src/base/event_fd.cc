// SPDX-License-Identifier: Apache-2.0
#include "base/event_fd.h"

#include <cerrno>
#include <system_error>

#include <sys/eventfd.h>

#include "base/assert.h"

namespace tiercel {

Result<EventFd> EventFd::create() {
  FileDescriptor fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return Error(Code::kUnavailable,
                 "eventfd could not be made: " + std::generic_category().message(errno) +
                     "; raise the limit of open files (ulimit -n)");
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
