// SPDX-License-Identifier: Apache-2.0
#include "base/poll_timeout.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace tiercel {

int poll_timeout_ms(TimePoint time, const Clock& clock) {
  if (time == kNoDeadline) return -1;
  const TimePoint now = clock.now();
  if (time <= now) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time - now).count();
  return static_cast<int>(std::min<int64_t>(ms, std::numeric_limits<int>::max()));
}

}  // namespace tiercel
