// SPDX-License-Identifier: Apache-2.0
//
// Keys and indexes for the tests of this folder.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/random.h"
#include "index/block_index.h"

namespace tiercel {

inline BlockKey random_key(Random& random) {
  BlockKey key;
  for (size_t i = 0; i < key.bytes.size(); i += 8) {
    const uint64_t word = random.next();
    std::memcpy(key.bytes.data() + i, &word, 8);
  }
  return key;
}

// The n-th of a fixed series of keys.
inline BlockKey numbered_key(uint64_t n) {
  Random random(n);
  return random_key(random);
}

inline constexpr uint8_t kDeviceBit = 1;
inline constexpr uint8_t kHostBit = 2;
inline constexpr uint8_t kDiskBit = 4;
inline constexpr GroupId kGroup0{0};

inline BlockIndexOptions index_options(uint32_t node_count_max, uint8_t tier_mask = kHostBit) {
  BlockIndexOptions options;
  options.node_count_max = node_count_max;
  options.tier_mask = tier_mask;
  options.seed = 7;
  return options;
}

}  // namespace tiercel
