// SPDX-License-Identifier: Apache-2.0
//
// FillTable: which blocks are on their way into the host tier, and which requests wait for each: a
// prefetch for its end, a load to go on with it.
// One transfer serves all of them. Threads: control thread only. Four bytes per index node; waiters
// are pooled.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "index/block_index.h"

namespace tiercel {

class FillTable {
 public:
  struct Waiter {
    uint32_t request = 0;
    uint32_t generation = 0;
    uint32_t serial = 0;  // which of the request's prefetches, or of its loads
    uint32_t entry = 0;   // of a load: in its load_states
    uint32_t next = 0;
    bool is_load = false;
  };

  explicit FillTable(uint32_t node_count_max) : heads_(node_count_max, kNotFilling) {}

  bool is_filling(NodeId node) const { return heads_[node] != kNotFilling; }

  void begin(NodeId node) {
    TIERCEL_ASSERT(heads_[node] == kNotFilling, "a block is filled by one transfer at a time");
    heads_[node] = kNobodyWaits;
    ++filling_;
  }

  void wait(NodeId node, const Waiter& waiter) {
    uint32_t index = free_;
    if (index == kNobodyWaits) {
      index = static_cast<uint32_t>(waiters_.size());
      waiters_.emplace_back();
    } else {
      free_ = waiters_[index].next;
    }
    waiters_[index] = waiter;
    waiters_[index].next = heads_[node];
    heads_[node] = index;
  }

  // The transfer of `node` has ended; calls told(waiter) for everyone who waited.
  template <typename Told>
  void end(NodeId node, Told&& told) {
    uint32_t index = heads_[node];
    TIERCEL_ASSERT(index != kNotFilling, "a fill ends once");
    heads_[node] = kNotFilling;
    --filling_;
    while (index != kNobodyWaits) {
      const Waiter waiter = waiters_[index];
      waiters_[index].next = free_;
      free_ = index;
      index = waiter.next;
      told(waiter);
    }
  }

  uint32_t filling() const { return filling_; }
  uint64_t memory_bytes() const {
    return heads_.size() * sizeof(uint32_t) + waiters_.capacity() * sizeof(Waiter);
  }

 private:
  static constexpr uint32_t kNotFilling = UINT32_MAX;
  static constexpr uint32_t kNobodyWaits = UINT32_MAX - 1;

  std::vector<uint32_t> heads_;  // by node
  std::vector<Waiter> waiters_;
  uint32_t free_ = kNobodyWaits;
  uint32_t filling_ = 0;
};

}  // namespace tiercel
