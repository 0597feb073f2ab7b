// SPDX-License-Identifier: Apache-2.0
//
// The options of `tiercel replay --engine`: an engine, its tiers and their speeds, as stated.
#pragma once

#include <cstdint>

#include "tiercel/load_or_recompute.h"
#include "tiercel/status.h"

#include "base/option_table.h"
#include "transfer/timed_link.h"

namespace tiercel {

// engine, and engine_… for what goes with it.
void add_engine_options(OptionTable& table);

// As the table's options of the same names, without engine_. All figures are of one rank; the ranks
// do the same at the same time.
struct EngineOptions {
  bool enabled = false;
  double speedup = 1;  // of the arrivals
  uint64_t block_bytes = 16u << 20;
  uint32_t device_blocks = 4000;
  uint32_t host_blocks = 10000;
  uint32_t disk_blocks = 30000;
  PrefillRate prefill{80000, 131072};
  Duration step_time = std::chrono::milliseconds(10);     // of every step
  Duration decode_time = std::chrono::microseconds(100);  // of every token that is decoded
  uint32_t step_tokens = 8192;
  uint32_t running_max = 256;
  LinkSpeed device{std::chrono::microseconds(50), 25e9, 32};
  LinkSpeed disk{std::chrono::microseconds(200), 3e9, 32};
  LinkSpeed store{std::chrono::milliseconds(2), 5e9, 32};
  bool choose = true;                            // load or recompute
  Duration stall_at = std::chrono::minutes(20);  // in the time of the trace
  Duration stall{0};                             // 0: none; kStallForEver or more: for ever
};

inline constexpr uint32_t kEngineStepTokensMax = 1u << 20;
inline constexpr Duration kStallForEver = std::chrono::hours(24);

EngineOptions read_engine_options(const OptionValues& values);

}  // namespace tiercel
