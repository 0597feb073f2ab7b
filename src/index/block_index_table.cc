// SPDX-License-Identifier: Apache-2.0
#include "index/block_index_table.h"

#include "base/assert.h"

namespace tiercel {

void BlockIndexTable::insert(uint64_t hash, uint32_t node) {
  uint32_t at = home(hash);
  for (uint32_t visited = 0; visited < bucket_count_; ++visited) {
    Bucket& bucket = buckets_[at];
    const uint32_t empty = bucket.entries_with_tag(0);
    if (empty != 0) {
      const int entry = std::countr_zero(empty);
      bucket.nodes[entry] = node;
      bucket.tags[entry] = tag_of(hash);
      return;
    }
    ++bucket.passed_count;
    at = next(at);
  }
  TIERCEL_ASSERT(false, "the block index table has no room");
}

void BlockIndexTable::erase(uint64_t hash, uint32_t node) {
  const uint8_t tag = tag_of(hash);
  uint32_t at = home(hash);
  for (uint32_t visited = 0; visited < bucket_count_; ++visited) {
    Bucket& bucket = buckets_[at];
    for (uint32_t mask = bucket.entries_with_tag(tag); mask != 0; mask &= mask - 1) {
      const int entry = std::countr_zero(mask);
      if (bucket.nodes[entry] != node) continue;
      bucket.tags[entry] = 0;
      bucket.nodes[entry] = 0;
      return;
    }
    TIERCEL_ASSERT(bucket.passed_count != 0, "the entry to erase is not in the table");
    --bucket.passed_count;
    at = next(at);
  }
  TIERCEL_ASSERT(false, "the entry to erase is not in the table");
}

}  // namespace tiercel
