// SPDX-License-Identifier: Apache-2.0
//
// WriterChoice: which rank writes a block whose slices are equal on all ranks.
//
// The first choice is the block's own, so that the work spreads over the ranks; while that one does
// not answer, the next takes its place. Whoever has failed is tried again after a while.
//
// Threads: control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

namespace tiercel {

class WriterChoice {
 public:
  explicit WriterChoice(uint32_t rank_count) : avoid_until_(rank_count) {}

  uint16_t choose(const BlockKey& key, TimePoint now) const {
    const size_t ranks = avoid_until_.size();
    const size_t first = std::hash<BlockKey>()(key) % ranks;
    for (size_t i = 0; i < ranks; ++i) {
      const size_t rank = (first + i) % ranks;
      if (avoid_until_[rank] <= now) return static_cast<uint16_t>(rank);
    }
    return static_cast<uint16_t>(first);
  }

  // How an operation of its own has ended on `rank`.
  void note(uint16_t rank, Code code, TimePoint now) {
    if (code == Code::kTimeout || code == Code::kUnavailable) avoid_until_[rank] = now + kAvoidance;
  }

 private:
  static constexpr Duration kAvoidance = std::chrono::seconds(1);
  std::vector<TimePoint> avoid_until_;  // [rank]
};

}  // namespace tiercel
