// SPDX-License-Identifier: Apache-2.0
//
// Health of what can fail and is left alone for a while then (a store, a disk), as its guard sees
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tiercel/status.h"

namespace tiercel {

// Whether a store is being asked at all, the more healthy the smaller. A store without a guard is
// always kUp.
enum class StoreCondition : uint8_t {
  kNone = 0,     // there is no store
  kUp = 1,       // it is asked
  kProbing = 2,  // a few operations find out whether it is back
  kOpen = 3,     // it failed and is left alone: everything ends as unavailable at once
};
// "none", "up", "open", "probing"
std::string_view to_string(StoreCondition condition);

// Trivially copyable: it crosses threads and processes as it is.
struct StoreHealth {
  StoreCondition condition = StoreCondition::kUp;
  Code cause = Code::kOk;  // why it is not up; kOk if it is
  uint64_t opened = 0;     // times that it was given up, ever
  uint64_t refused = 0;    // calls that ended without asking it, ever
};
// "up", "open (timeout)"
std::string to_string(const StoreHealth& health);

}  // namespace tiercel
