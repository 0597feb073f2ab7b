// SPDX-License-Identifier: Apache-2.0
//
// CheckCase: one configuration in which the answers must not change.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tiercel::tiny {

// What stands between the first run of the workload and the second one.
enum class CheckTurn : uint8_t {
  kNone,            // there is one run only
  kRestart,         // the engine is closed, and opened again over the same folder
  kSecondEngine,    // another engine, which knows only what the store has
  kNewWeights,      // the same engine with other weights, which come while requests are in flight
  kRestartWeights,  // a restart with other weights
};

struct CheckCase {
  std::string_view name;
  bool share = true;
  bool host = false;
  bool disk = false;
  bool store = false;
  uint32_t device_blocks = 128;
  uint32_t host_blocks = 256;
  uint32_t chunk_tokens = 64;  // of one request in one step
  uint32_t step_tokens = 128;
  CheckTurn turn = CheckTurn::kNone;
  bool aborts = false;         // every request has a twin that is aborted on its way
  bool roles = false;          // prompts by a prefill instance, the rest by a decode instance
  bool faulty_store = false;   // in place of the one that the user has chosen
  bool loses_device = false;   // now and then nothing is left of what the device held
  bool cache_outputs = true;   // as ResourceManagerConfig
  bool save_preempted = true;  // as ResourceManagerConfig
  // Without these the case would not have tested what it is for.
  bool wants_device_hits = false;
  bool wants_loads = false;
  bool wants_disk = false;
  bool wants_store = false;
  bool wants_preemptions = false;

  bool has_new_weights() const {
    return turn == CheckTurn::kNewWeights || turn == CheckTurn::kRestartWeights;
  }
};

std::span<const CheckCase> check_cases();

}  // namespace tiercel::tiny
