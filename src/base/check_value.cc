// SPDX-License-Identifier: Apache-2.0
#include "base/check_value.h"

#include <fmt/core.h>

#include "base/quantity.h"

namespace tiercel {

Status in_range(std::string_view name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return {};
  return Error(Code::kInvalid, fmt::format("{} is {}; allowed: {} to {}", name, value, low, high));
}

Status positive(std::string_view name, Duration value) {
  if (value > Duration::zero()) return {};
  return Error(Code::kInvalid,
               fmt::format("{} is {}; allowed: more than 0", name, format_duration(value)));
}

}  // namespace tiercel
