// SPDX-License-Identifier: Apache-2.0
//
// EventFd: wakes a thread that sleeps in poll() or epoll_wait(), from another thread or process.
#pragma once

#include <cstdint>

#include "tiercel/status.h"

#include "base/file_descriptor.h"

namespace tiercel {

// Ownership: move-only; closes its descriptor. Close-on-exec, never blocks.
// Threads:   signal() and drain() from any thread.
class EventFd {
 public:
  // kUnavailable if the operating system has no descriptor left.
  static Result<EventFd> create();
  // One that another process has made and passed on; kInvalid if it is something else, of which a
  // read or write could wait.
  static Result<EventFd> adopt(FileDescriptor fd);

  // Makes fd() readable until the next drain(). Signals add up, they are never lost.
  void signal();
  // Takes all signals back; returns how many there were, 0 if none.
  uint64_t drain();
  // Readable while signals wait. Owned by this object.
  int fd() const { return fd_.get(); }

 private:
  explicit EventFd(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

}  // namespace tiercel
