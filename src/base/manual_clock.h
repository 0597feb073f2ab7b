// SPDX-License-Identifier: Apache-2.0
//
// A clock that stands still until it is told to move: virtual time for replay, simulation and
// tests.
#pragma once

#include "tiercel/clock.h"

#include "base/assert.h"

namespace tiercel {

// Threads: one (it belongs to whoever drives the simulation).
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { set(now_ + by); }
  // Never backwards.
  void set(TimePoint to) {
    TIERCEL_ASSERT(to >= now_, "a clock never goes backwards");
    now_ = to;
  }

 private:
  TimePoint now_{};
};

}  // namespace tiercel
