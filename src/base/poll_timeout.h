// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tiercel/clock.h"

namespace tiercel {

// For poll(2): milliseconds until `time`, rounded up; -1 for ever.
int poll_timeout_ms(TimePoint time, const Clock& clock);

}  // namespace tiercel
