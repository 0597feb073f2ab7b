// SPDX-License-Identifier: Apache-2.0
//
// RankPort: the control plane's end of a rank channel.
//
// Keeps so few operations under way that both rings have room for all of them: what is in flight
// (submitted and not yet polled) never exceeds the capacity of a ring. A rank that shows less room
// than that must have, or more completions than there can be, breaks the protocol.
//
// Threads: the control thread. No call waits, locks or allocates.
#pragma once

#include <algorithm>
#include <span>

#include "transfer/rank_channel.h"

namespace tiercel {

class RankPort {
 public:
  // The memory of the channel and the eventfd outlive this object.
  RankPort(RankChannel channel, EventFd& wake)
      : channel_(channel),
        ops_(channel.ops_memory(), channel.ring_ops()),
        completions_(channel.completions_memory(), channel.ring_ops()),
        sleep_flag_(channel.words().rank_sleeps, wake) {}

  size_t in_flight() const { return in_flight_; }
  // Operations that submit() would take.
  size_t capacity() const { return channel_.ring_ops() - in_flight_; }

  // ops.size() <= capacity(). False, and nothing done, if the rank breaks the protocol.
  bool submit(std::span<const BlockOp> ops) {
    if (ops_.free_count() < ops.size()) return false;
    ops_.push(ops);
    in_flight_ += ops.size();
    sleep_flag_.wake();
    return true;
  }

  // At most in_flight() of them: what a rank makes up beyond that stays in the ring (is_broken()).
  size_t poll(std::span<Completion> out) {
    const size_t count = completions_.pop(out.first(std::min(out.size(), in_flight_)));
    in_flight_ -= count;
    return count;
  }
  bool has_completions() { return completions_.size() > 0; }
  // The rank shows more completions than can be.
  bool is_broken() { return completions_.shown() > in_flight_; }

  void ask_to_close(Duration budget) {
    channel_.ask_to_close(budget);
    sleep_flag_.wake();
  }

  WakeWord& announced() { return channel_.words().announced; }
  RankStats stats() const { return channel_.words().stats.read(); }
  ReasonText store_reason() const { return channel_.words().store_reason.get(); }
  StoreCondition disk_condition() const { return channel_.words().stats.disk_condition(); }

 private:
  RankChannel channel_;
  SpscProducer<BlockOp> ops_;
  SpscConsumer<Completion> completions_;
  SleepFlag sleep_flag_;
  size_t in_flight_ = 0;
};

}  // namespace tiercel
