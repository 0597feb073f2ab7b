// SPDX-License-Identifier: Apache-2.0
#include "store/wake_up.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/assert.h"
#include "base/error_text.h"

namespace tiercel {
namespace {

Error system_error(const std::string& what) {
  return Error(Code::kUnavailable, what + " failed: " + error_text(errno) +
                                       "; the limits are those of open files (ulimit -n) and of "
                                       "epoll watches (/proc/sys/fs/epoll)");
}

Status watch_by(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error("watching descriptor " + std::to_string(fd));
  }
  return {};
}

void arm(int timer, Duration delay) {
  constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
  itimerspec setting{};
  setting.it_value.tv_sec = delay.count() / kNanosecondsPerSecond;
  setting.it_value.tv_nsec = delay.count() % kNanosecondsPerSecond;
  const int result = ::timerfd_settime(timer, 0, &setting, nullptr);
  TIERCEL_ASSERT(result == 0, "a timerfd takes every delay that is not negative");
}

}  // namespace

Result<WakeUp> WakeUp::create(int inner_fd) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("epoll_create1");
  FileDescriptor timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return system_error("timerfd_create");
  TIERCEL_TRY_ASSIGN(EventFd ready, EventFd::create());
  TIERCEL_TRY(watch_by(epoll.get(), ready.fd()));
  TIERCEL_TRY(watch_by(epoll.get(), timer.get()));
  if (inner_fd >= 0) TIERCEL_TRY(watch_by(epoll.get(), inner_fd));
  return WakeUp(std::move(epoll), std::move(ready), std::move(timer));
}

Status WakeUp::watch(int fd) { return watch_by(epoll_.get(), fd); }

// Setting a timer also takes back what it had announced.
void WakeUp::set_timer(Duration delay) { arm(timer_.get(), std::max(delay, Duration(1))); }
void WakeUp::clear_timer() { arm(timer_.get(), Duration(0)); }

}  // namespace tiercel
