// SPDX-License-Identifier: Apache-2.0
//
// Time is injected: production code reads a Clock, never the system, so that a whole run can be
// simulated in virtual time and repeated exactly.
#pragma once

#include <chrono>
#include <cstdint>

namespace tiercel {

// Time since an arbitrary start that never goes backwards. Never stored across processes.
struct MonotonicTime {
  using rep = int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<MonotonicTime>;
  static constexpr bool is_steady = true;
};

using Duration = MonotonicTime::duration;
using TimePoint = MonotonicTime::time_point;

// "No deadline": later than every time that a clock shows.
inline constexpr TimePoint kNoDeadline = TimePoint::max();

// Threads: now() may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// The monotonic clock of the operating system. Stateless.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
};

}  // namespace tiercel
