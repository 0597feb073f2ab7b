// SPDX-License-Identifier: Apache-2.0
//
// Durations as numbers of seconds, for arithmetic and reports.
#pragma once

#include <chrono>

#include "tiercel/clock.h"

namespace tiercel {

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace tiercel
