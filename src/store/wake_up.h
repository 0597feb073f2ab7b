// SPDX-License-Identifier: Apache-2.0
//
// WakeUp: the one descriptor that announces whatever the poll() of a wrapper may have to return: a
// completion that is ready, a time that has come (in real time), or news of the inner store.
//
// It is an epoll descriptor, which is readable while one of the descriptors in it is.
#pragma once

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/event_fd.h"
#include "base/file_descriptor.h"

namespace tiercel {

// Ownership: move-only; `inner_fd` is borrowed and must outlive it; -1: there is none.
// Threads:   one.
class WakeUp {
 public:
  // kUnavailable with the reason if the operating system refuses.
  static Result<WakeUp> create(int inner_fd);

  // One more descriptor, which is borrowed too. kUnavailable as create().
  Status watch(int fd);

  int fd() const { return epoll_.get(); }

  // Readable until lower().
  void raise() { ready_.signal(); }
  void lower() { ready_.drain(); }

  // Readable from `delay` from now on, until set or cleared again. At once if `delay` is not
  // positive.
  void set_timer(Duration delay);
  void clear_timer();

 private:
  WakeUp(FileDescriptor epoll, EventFd ready, FileDescriptor timer)
      : epoll_(std::move(epoll)), ready_(std::move(ready)), timer_(std::move(timer)) {}

  FileDescriptor epoll_;
  EventFd ready_;
  FileDescriptor timer_;
};

}  // namespace tiercel
