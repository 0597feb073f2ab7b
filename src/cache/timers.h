// SPDX-License-Identifier: Apache-2.0
//
// Timers of the control plane: a heap of (time, what). A timer is never taken back; whoever gets it
// looks whether it still means anything. Stale timers are thrown out when they outnumber the living
// ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tiercel/clock.h"

namespace tiercel {

enum class TimerKind : uint8_t { kJob, kPrefetch, kLoad, kSave, kHold };

struct Timer {
  TimePoint at;
  TimerKind kind = TimerKind::kJob;
  uint32_t index = 0;       // of the job or request
  uint32_t generation = 0;  // of the job or request
};

class Timers {
 public:
  // `is_live` decides what survives when the heap has become too large.
  template <typename IsLive>
  void add(const Timer& timer, IsLive&& is_live) {
    if (timer.at == kNoDeadline) return;
    if (heap_.size() >= purge_above_) {
      std::erase_if(heap_, [&](const Timer& t) { return !is_live(t); });
      std::make_heap(heap_.begin(), heap_.end(), later);
      purge_above_ = std::max<size_t>(1024, 2 * heap_.size());
    }
    heap_.push_back(timer);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  // Removes and returns the earliest timer that is due; false if none is.
  bool take_due(TimePoint now, Timer* timer) {
    if (heap_.empty() || heap_.front().at > now) return false;
    *timer = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    return true;
  }

  TimePoint next() const { return heap_.empty() ? kNoDeadline : heap_.front().at; }

 private:
  static bool later(const Timer& a, const Timer& b) { return a.at > b.at; }

  std::vector<Timer> heap_;
  size_t purge_above_ = 1024;
};

}  // namespace tiercel
