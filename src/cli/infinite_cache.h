// SPDX-License-Identifier: Apache-2.0
//
// InfiniteCache: what a cache that never forgets would have hit. The ceiling of a replay.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_set>

#include "tiercel/key.h"

namespace tiercel {

// Remembers 64 bits of each key: of ten million keys, two look equal with a probability of 3 in a
// million. Threads: one.
class InfiniteCache {
 public:
  // Leading keys of the request that were seen before; then all of them have been seen. Only every
  // `step`-th key is looked at, the last of each run: enough where keys come and go in such runs.
  uint64_t visit(std::span<const BlockKey> keys, uint32_t step = 1) {
    uint64_t hits = 0;
    bool leading = true;
    for (size_t i = step; i <= keys.size(); i += step) {
      uint64_t fingerprint = 0;
      std::memcpy(&fingerprint, keys[i - 1].bytes.data(), sizeof(fingerprint));
      const bool known = !seen_.insert(fingerprint).second;
      leading = leading && known;
      if (leading) hits += step;
    }
    return hits;
  }

 private:
  std::unordered_set<uint64_t> seen_;
};

}  // namespace tiercel
