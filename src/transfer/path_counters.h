// SPDX-License-Identifier: Apache-2.0
//
// PathCounters: the RankStats of one rank while it works.
//
// Threads: one writes, any read. Counters are independent; a reader may see one ahead of another.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiercel/transfer.h"

namespace tiercel {

class PathCounters {
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
    store_words_[0].store(
        static_cast<uint64_t>(health.condition) | (static_cast<uint64_t>(health.cause) << 8),
        std::memory_order_relaxed);
    store_words_[1].store(health.opened, std::memory_order_relaxed);
    store_words_[2].store(health.refused, std::memory_order_relaxed);
  }

  RankStats read() const {
    RankStats stats;
    const uint64_t state = store_words_[0].load(std::memory_order_relaxed);
    stats.store = {.condition = static_cast<StoreCondition>(state & 0xff),
                   .cause = static_cast<Code>(state >> 8 & 0xff),
                   .opened = store_words_[1].load(std::memory_order_relaxed),
                   .refused = store_words_[2].load(std::memory_order_relaxed)};
    for (size_t i = 0; i < kOpKindCount; ++i) {
      stats.paths[i] = {.ops = paths_[i].ops.load(std::memory_order_relaxed),
                        .failed = paths_[i].failed.load(std::memory_order_relaxed),
                        .corrupt = paths_[i].corrupt.load(std::memory_order_relaxed),
                        .bytes = paths_[i].bytes.load(std::memory_order_relaxed),
                        .busy_ns = paths_[i].busy_ns.load(std::memory_order_relaxed)};
    }
    return stats;
  }

 private:
  using Counter = std::atomic<uint64_t>;
  struct Path {
    Counter ops{0}, failed{0}, corrupt{0}, bytes{0}, busy_ns{0};
  };

  // With one writer, a load and a store do what a locked addition would, without its price.
  static void add(Counter& counter, uint64_t value) {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  std::array<Path, kOpKindCount> paths_;
  // Condition and cause change together.
  std::array<Counter, 3> store_words_{};
};

}  // namespace tiercel
