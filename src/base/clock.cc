// SPDX-License-Identifier: Apache-2.0
#include "tiercel/clock.h"

namespace tiercel {

TimePoint SystemClock::now() const {
  // steady_clock is CLOCK_MONOTONIC, read through the vDSO: no system call.
  return TimePoint(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace tiercel
