// SPDX-License-Identifier: Apache-2.0
//
// ReplayClock: the time of the trace.
#pragma once

#include <algorithm>
#include <atomic>

#include "tiercel/clock.h"

namespace tiercel {

// Stands at the time that it was set to, so that no figure depends on how fast the machine is; or,
// if deadlines are wanted, runs on from there with the clock under it. Never goes backwards.
// Threads: now() from any; set() from one.
class ReplayClock final : public Clock {
 public:
  // `running` is the clock that time runs on with; null: it stands.
  explicit ReplayClock(const Clock* running) : running_(running), offset_(-running_now()) {}

  TimePoint now() const override {
    return TimePoint(offset_.load(std::memory_order_acquire) + running_now());
  }

  // Moves forward to `to`, if it is not later already.
  void set(TimePoint to) {
    const Duration offset = to.time_since_epoch() - running_now();
    if (offset > offset_.load(std::memory_order_relaxed)) {
      offset_.store(offset, std::memory_order_release);
    }
  }

 private:
  Duration running_now() const {
    return running_ == nullptr ? Duration(0) : running_->now().time_since_epoch();
  }

  const Clock* running_;
  std::atomic<Duration> offset_;
};

}  // namespace tiercel
