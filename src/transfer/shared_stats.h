// SPDX-License-Identifier: Apache-2.0
//
// SharedStats: the RankStats of one rank while it works, as other threads and processes may read
// them.
//
// Threads: one writes, any read. Counters are independent: a reader may see one ahead of another.
// From a writer that lies it gets wrong numbers, never a value that does not exist.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiercel/transfer.h"

namespace tiercel {

class SharedStats {
 public:
  // `bytes` of payload count only if the operation was ok.
  void count_end(OpKind kind, Code code, uint64_t bytes) {
    Path& path = paths_[static_cast<size_t>(kind)];
    add(path.ops, 1);
    if (code == Code::kOk) {
      add(path.bytes, bytes);
      return;
    }
    if (code != Code::kNotFound) add(path.failed, 1);
    if (code == Code::kCorrupt) add(path.corrupt, 1);
  }

  void count_busy(OpKind kind, Duration time) {
    add(paths_[static_cast<size_t>(kind)].busy_ns, static_cast<uint64_t>(time.count()));
  }

  void set_store(const StoreHealth& health) {
    // Condition and cause change together.
    set(store_state_, static_cast<uint64_t>(health.condition) |
                          (static_cast<uint64_t>(health.cause) << kCauseShift));
    set(store_opened_, health.opened);
    set(store_refused_, health.refused);
  }

  // All of them at once.
  void publish(const RankStats& stats) {
    for (size_t i = 0; i < kOpKindCount; ++i) {
      const PathStats& from = stats.paths[i];
      Path& path = paths_[i];
      set(path.ops, from.ops);
      set(path.failed, from.failed);
      set(path.corrupt, from.corrupt);
      set(path.bytes, from.bytes);
      set(path.busy_ns, from.busy_ns);
    }
    set_store(stats.store);
  }

  RankStats read() const {
    RankStats stats;
    for (size_t i = 0; i < kOpKindCount; ++i) {
      const Path& path = paths_[i];
      stats.paths[i] = {.ops = get(path.ops),
                        .failed = get(path.failed),
                        .corrupt = get(path.corrupt),
                        .bytes = get(path.bytes),
                        .busy_ns = get(path.busy_ns)};
    }
    const uint64_t state = get(store_state_);
    const auto condition = static_cast<StoreCondition>(state & 0xff);
    const auto cause = static_cast<Code>(state >> kCauseShift & 0xff);
    if (condition <= StoreCondition::kOpen) stats.store.condition = condition;
    if (cause <= Code::kInternal) stats.store.cause = cause;
    stats.store.opened = get(store_opened_);
    stats.store.refused = get(store_refused_);
    return stats;
  }

 private:
  using Counter = std::atomic<uint64_t>;
  struct Path {
    Counter ops{0}, failed{0}, corrupt{0}, bytes{0}, busy_ns{0};
  };
  static constexpr unsigned kCauseShift = 8;

  static uint64_t get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }
  static void set(Counter& counter, uint64_t value) {
    counter.store(value, std::memory_order_relaxed);
  }
  // With one writer, a load and a store do what a locked addition would, without its price.
  static void add(Counter& counter, uint64_t value) { set(counter, get(counter) + value); }

  std::array<Path, kOpKindCount> paths_;
  Counter store_state_{0}, store_opened_{0}, store_refused_{0};
};

}  // namespace tiercel
