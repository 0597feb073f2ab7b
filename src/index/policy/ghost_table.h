// SPDX-License-Identifier: Apache-2.0
//
// GhostTable: which blocks were evicted lately, by key, without keeping the keys.
//
// A bucket of eight entries is one cache line. An entry is a 32-bit fingerprint and the number of
// the eviction that made it; it counts as long as no more than `capacity` evictions came after it,
// so there is nothing to delete in the background. A bucket that is full loses its oldest entry.
// Answers may be wrong (about one in 2^29 blocks is taken for a ghost), which costs a worse guess
// and nothing else.
//
// Memory: about 12 bytes per block of capacity, allocated in the constructor. Threads: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel {

class GhostTable {
 public:
  explicit GhostTable(uint32_t capacity);

  void add(const BlockKey& key, GroupId group);
  // Whether the block is remembered; forgets it.
  bool take(const BlockKey& key, GroupId group);

  uint64_t bytes() const { return buckets_.size() * sizeof(Bucket); }
  uint32_t count() const;  // entries that count now; linear, for tests

 private:
  struct Entry {
    uint32_t fingerprint;
    uint32_t number;  // 0: empty
  };
  struct alignas(64) Bucket {
    Entry entries[8];
  };
  static_assert(sizeof(Bucket) == 64);

  bool counts(const Entry& entry) const {
    return entry.number != 0 && next_number_ - entry.number <= capacity_;
  }
  Bucket& bucket_of(uint64_t hash);

  const uint32_t capacity_;
  uint32_t next_number_ = 1;  // wraps; 0 is left out
  std::vector<Bucket> buckets_;
};

}  // namespace tiercel
