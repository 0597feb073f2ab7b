// SPDX-License-Identifier: Apache-2.0
//
// TimedLink: when operations end on a way of stated speed, in virtual time. First come, first
// served: an operation waits for one of `concurrency` streams, then for the latency (which overlaps
// with what the other streams do), then has the whole bandwidth for its bytes. So the end of an
// operation is known when it is submitted, and nothing submitted later changes it.
//
// A copy goes on by itself: so one can ask what would happen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tiercel/clock.h"

namespace tiercel {

struct LinkSpeed {
  Duration latency{0};
  double bytes_per_second = 1e9;  // more than 0
  uint32_t concurrency = 32;      // operations that wait for their latency at once; at least 1
};

// No progress from `from` on until `until`, kNoDeadline: for ever.
struct LinkStall {
  TimePoint from = kNoDeadline;
  TimePoint until = kNoDeadline;
};

class TimedLink {
 public:
  explicit TimedLink(const LinkSpeed& speed, const LinkStall& stall = {})
      : speed_(speed), stall_(stall), streams_(speed.concurrency) {}

  // When an operation that is submitted at `now` would begin.
  TimePoint next_begin(TimePoint now) const { return std::max(now, streams_.front()); }

  // Submits one; when it will have ended, kNoDeadline for never.
  TimePoint add(TimePoint now, uint64_t bytes) {
    const TimePoint answers = after(next_begin(now), speed_.latency);
    const Duration service = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / speed_.bytes_per_second));
    const TimePoint end = after(std::max(answers, pipe_free_), service);
    pipe_free_ = end;
    std::pop_heap(streams_.begin(), streams_.end(), std::greater<>());
    streams_.back() = end;
    std::push_heap(streams_.begin(), streams_.end(), std::greater<>());
    return end;
  }

 private:
  // `duration` of progress after `time`.
  TimePoint after(TimePoint time, Duration duration) const {
    if (time == kNoDeadline) return time;
    if (time >= stall_.from && time < stall_.until) {
      return stall_.until == kNoDeadline ? kNoDeadline : stall_.until + duration;
    }
    const TimePoint end = time + duration;
    if (time >= stall_.from || end <= stall_.from) return end;
    return stall_.until == kNoDeadline ? kNoDeadline : end + (stall_.until - stall_.from);
  }

  const LinkSpeed speed_;
  const LinkStall stall_;
  std::vector<TimePoint> streams_;  // heap, the one that is free first at the front
  TimePoint pipe_free_{};
};

}  // namespace tiercel
