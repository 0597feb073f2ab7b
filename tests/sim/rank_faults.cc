// SPDX-License-Identifier: Apache-2.0
#include "rank_faults.h"

namespace tiercel::sim {

RankFaults pick_rank_faults(Random& random, bool faultless, const RankFaultLimits& limits) {
  const double choice = random.real();
  if (faultless || choice < 0.3) return {.faults = {}, .note = "faults: none"};
  RankFaults picked;
  SimulatedFaults& faults = picked.faults;
  faults.slow_max = limits.slow_max;
  faults.stall_max = limits.stall_max;
  if (choice < 0.6) {
    faults.slow = 0.1;
    faults.late_completion = 0.1;
    faults.fail = 0.05;
    faults.fail_after_run = 0.05;
    faults.stall = 0.02;
    picked.note = "faults: all kinds";
  } else if (choice < 0.8) {
    faults.slow = limits.slow;
    faults.delay_max = limits.delay_max;
    picked.note = "faults: slow";
  } else {
    faults.late_completion = 0.4;
    faults.fail_after_run = 0.1;
    picked.note = "faults: late completions";
  }
  if (limits.corruption) faults.corrupt_slot = 0.1;
  return picked;
}

}  // namespace tiercel::sim
