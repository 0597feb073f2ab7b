// SPDX-License-Identifier: Apache-2.0
//
// SharedStats: the statistics of one rank as another process may read them.
//
// Threads: one writes, any read. A reader may see one counter ahead of another; from a writer that
// lies it gets wrong numbers, never a value that does not exist.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiercel/transfer.h"

namespace tiercel {

class SharedStats {
 public:
  void publish(const RankStats& stats) {
    size_t at = 0;
    for (const PathStats& path : stats.paths) {
      for (const uint64_t value : {path.ops, path.failed, path.corrupt, path.bytes, path.busy_ns}) {
        words_[at++].store(value, std::memory_order_relaxed);
      }
    }
    words_[at++].store(static_cast<uint64_t>(stats.store.condition) |
                           (static_cast<uint64_t>(stats.store.cause) << 8),
                       std::memory_order_relaxed);
    words_[at++].store(stats.store.opened, std::memory_order_relaxed);
    words_[at++].store(stats.store.refused, std::memory_order_relaxed);
  }

  RankStats read() const {
    RankStats stats;
    size_t at = 0;
    const auto next = [&] { return words_[at++].load(std::memory_order_relaxed); };
    for (PathStats& path : stats.paths) {
      for (uint64_t* value : {&path.ops, &path.failed, &path.corrupt, &path.bytes, &path.busy_ns}) {
        *value = next();
      }
    }
    const uint64_t state = next();
    const auto condition = static_cast<StoreCondition>(state & 0xff);
    const auto cause = static_cast<Code>(state >> 8 & 0xff);
    if (condition <= StoreCondition::kProbing) stats.store.condition = condition;
    if (cause <= Code::kInternal) stats.store.cause = cause;
    stats.store.opened = next();
    stats.store.refused = next();
    return stats;
  }

 private:
  std::array<std::atomic<uint64_t>, kOpKindCount * 5 + 3> words_{};
};

}  // namespace tiercel
