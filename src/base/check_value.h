// SPDX-License-Identifier: Apache-2.0
//
// What every configuration checks: a value in its range, or kInvalid with the option's name, the
// value and what is allowed.
#pragma once

#include <cstdint>
#include <string_view>

#include "tiercel/clock.h"
#include "tiercel/status.h"

namespace tiercel {

Status in_range(std::string_view name, uint64_t value, uint64_t low, uint64_t high);
// More than 0.
Status positive(std::string_view name, Duration value);

}  // namespace tiercel
