// SPDX-License-Identifier: Apache-2.0
//
// What ranks of the simulation do wrong for a while.
#pragma once

#include <string_view>

#include "base/random.h"
#include "transfer/simulated_data_plane.h"

namespace tiercel::sim {

// How bad it may get.
struct RankFaultLimits {
  Duration slow_max{0};
  Duration stall_max{0};
  // Of ranks that are slow and nothing else: how many operations, and by how much all of them.
  double slow = 0;
  Duration delay_max{0};
  bool corruption = false;
};

struct RankFaults {
  SimulatedFaults faults;
  std::string_view note;  // in words
};

// One number of `random` is used, also by the faultless.
RankFaults pick_rank_faults(Random& random, bool faultless, const RankFaultLimits& limits);

}  // namespace tiercel::sim
