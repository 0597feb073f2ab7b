// SPDX-License-Identifier: Apache-2.0
//
// OpQueue: operations of one kind that wait, in order, with an eye on the earliest deadline among
// them, so that looking for expired ones costs nothing while there are none.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tiercel/transfer.h"

#include "transfer/fifo.h"

namespace tiercel {

class OpQueue {
 public:
  bool empty() const { return ops_.empty(); }
  size_t size() const { return ops_.size(); }
  const BlockOp& operator[](size_t index) const { return ops_[index]; }

  void push(const BlockOp& op) {
    ops_.push(op);
    earliest_ns_ = std::min(earliest_ns_, op.deadline_ns);
  }

  void pop(size_t count) {
    ops_.pop(count);
    if (ops_.empty()) earliest_ns_ = kNever;
  }

  // No waiting operation has an earlier deadline; the one that had it may be gone already.
  int64_t earliest_ns() const { return earliest_ns_; }

  // Drops each operation whose deadline has come and calls expired(op) for it; true if there was
  // one.
  template <typename Callback>
  bool expire(int64_t now_ns, Callback expired) {
    if (now_ns < earliest_ns_) return false;
    const size_t before = ops_.size();
    int64_t earliest_ns = kNever;
    ops_.remove_if([&](const BlockOp& op) {
      if (op.deadline_ns != kNever && now_ns >= op.deadline_ns) {
        expired(op);
        return true;
      }
      earliest_ns = std::min(earliest_ns, op.deadline_ns);
      return false;
    });
    earliest_ns_ = earliest_ns;
    return ops_.size() != before;
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Fifo<BlockOp> ops_;
  int64_t earliest_ns_ = kNever;
};

}  // namespace tiercel
