// SPDX-License-Identifier: Apache-2.0
//
// Tries a store from outside, as a rank would use it: whether it is there, whether it keeps what
// the contract promises, and how fast it is. Works on objects of a namespace of its own and removes
// them at the end, also after a failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"

namespace tiercel {

struct StoreCheckOptions {
  Duration deadline{std::chrono::seconds(10)};  // of each call
  uint32_t rounds = 5;                          // per size; the first is not counted
  std::vector<uint64_t> sizes = {uint64_t{64} << 10, uint64_t{1} << 20, uint64_t{8} << 20};
  uint64_t batch_bytes = uint64_t{32} << 20;  // of one call, at least one object
  const std::atomic<bool>* stop = nullptr;
};

// One step, in the order in which they were made. A failed one is the last.
struct StoreCheckStep {
  std::string name;    // "connect"
  std::string result;  // "12.5 ms", or what is wrong and what to do
  bool failed = false;
};

struct StoreCheckSpeed {
  uint64_t object_bytes = 0;
  uint32_t objects = 0;  // of one call
  // Medians over the rounds.
  Duration put{0}, exists{0}, get{0};
  double local = 0;  // share of the gets that were read from memory of this node
};

struct StoreCheckReport {
  std::vector<StoreCheckStep> steps;
  std::vector<StoreCheckSpeed> speeds;
  bool stopped = false;  // by StoreCheckOptions::stop; the steps are those made before
  bool failed() const { return !steps.empty() && steps.back().failed; }
};

// `seed` chooses namespace and bytes.
StoreCheckReport check_store(Store& store, const StoreCheckOptions& options, const Clock& clock,
                             uint64_t seed);

}  // namespace tiercel
