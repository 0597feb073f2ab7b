// SPDX-License-Identifier: Apache-2.0
//
// BlockIndexTable: the hash table of BlockIndex, from (key, group) to node number.
//
// A bucket is one cache line: twelve node numbers, a one-byte tag for each, and the count of
// entries that passed this bucket by because it was full. The count lets a search that finds
// nothing stop at once, nearly always in the first bucket, and makes deletion exact: nothing is
// left behind, so the table is as fast after a year as on the first day. Keys stand in the nodes,
// not here; the caller compares them, so that equal hashes are never taken for equal keys.
//
//   | node 0 … node 11 (48 bytes) | tag 0 … tag 11 (12 bytes) | passed_count (4 bytes) |
//
// Fixed size: works in memory that it is given, zero-filled, and never grows. Filled to at most
// kLoadPercentMax. Several entries may have equal hashes, and even equal keys (of different
// epochs). Threads: one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel {

class BlockIndexTable {
 public:
  static constexpr uint32_t kEntriesPerBucket = 12;
  static constexpr uint32_t kLoadPercentMax = 72;
  static constexpr uint32_t kNone = UINT32_MAX;  // no node

  struct alignas(64) Bucket {
    uint32_t nodes[kEntriesPerBucket];
    alignas(16) uint8_t tags[kEntriesPerBucket];  // 0: the entry is empty
    uint32_t passed_count;

    // Bit i is set if tags[i] equals `tag`.
    uint32_t entries_with_tag(uint8_t tag) const {
#ifdef __SSE2__
      // The 16 bytes end with passed_count; the mask takes those four away.
      const __m128i all =
          _mm_load_si128(static_cast<const __m128i*>(static_cast<const void*>(tags)));
      const __m128i equal = _mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)));
      return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1u << kEntriesPerBucket) - 1);
#else
      uint32_t mask = 0;
      for (uint32_t i = 0; i < kEntriesPerBucket; ++i) {
        mask |= static_cast<uint32_t>(tags[i] == tag) << i;
      }
      return mask;
#endif
    }
  };
  static_assert(sizeof(Bucket) == 64);

  // Buckets that hold `node_count_max` nodes at the greatest load.
  static constexpr uint32_t bucket_count_for(uint32_t node_count_max) {
    const uint64_t numerator = uint64_t{node_count_max} * 100;
    const uint64_t denominator = uint64_t{kEntriesPerBucket} * kLoadPercentMax;
    return static_cast<uint32_t>((numerator + denominator - 1) / denominator) + 1;
  }

  // `buckets` are zero-filled and outlive the table.
  BlockIndexTable(std::span<Bucket> buckets, uint64_t seed)
      : buckets_(buckets.data()),
        bucket_count_(static_cast<uint32_t>(buckets.size())),
        seed_(mix(seed ^ 0x6a09e667f3bcc909, 0xbb67ae8584caa73b)),
        multiplier_(mix(seed ^ 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1) | 1) {}

  // Keys are uniform already; what the seed adds is that nobody can aim keys at one bucket.
  uint64_t hash(const BlockKey& key, GroupId group) const {
    uint64_t word = 0;
    std::memcpy(&word, key.bytes.data(), sizeof(word));
    return mix(word ^ seed_ ^ uint64_t{group.value()} << 56, multiplier_);
  }

  // Forced inline: GCC takes a function that only prefetches for one without effect and drops
  // calls.
  [[gnu::always_inline]] void prefetch(uint64_t hash) const {
    __builtin_prefetch(&buckets_[home(hash)]);
  }

  // The entry with this hash for which `matches(node)` is true; kNone if there is none.
  template <typename Matches>
  uint32_t find(uint64_t hash, const Matches& matches) const {
    const uint8_t tag = tag_of(hash);
    uint32_t at = home(hash);
    for (uint32_t visited = 0; visited < bucket_count_; ++visited) {
      const Bucket& bucket = buckets_[at];
      for (uint32_t mask = bucket.entries_with_tag(tag); mask != 0; mask &= mask - 1) {
        const uint32_t node = bucket.nodes[std::countr_zero(mask)];
        if (matches(node)) return node;
      }
      if (bucket.passed_count == 0) break;
      at = next(at);
    }
    return kNone;
  }

  // What the first bucket alone says, for callers that look ahead.
  struct FirstLook {
    uint32_t candidate;  // first node with the right tag, or kNone
    bool final_miss;     // there is certainly no entry
  };
  FirstLook first_look(uint64_t hash) const {
    const Bucket& bucket = buckets_[home(hash)];
    const uint32_t mask = bucket.entries_with_tag(tag_of(hash));
    if (mask != 0) return {bucket.nodes[std::countr_zero(mask)], false};
    return {kNone, bucket.passed_count == 0};
  }

  // There must be room: fewer entries than the table was made for.
  void insert(uint64_t hash, uint32_t node);
  // The entry must be there.
  void erase(uint64_t hash, uint32_t node);

  uint64_t bytes() const { return uint64_t{bucket_count_} * sizeof(Bucket); }

  // For checks: the buckets as they are, and the path of a hash through them.
  std::span<const Bucket> buckets() const { return {buckets_, bucket_count_}; }
  uint32_t home(uint64_t hash) const {
    return static_cast<uint32_t>(((hash >> 32) * bucket_count_) >> 32);
  }
  uint32_t next(uint32_t bucket) const { return bucket + 1 == bucket_count_ ? 0 : bucket + 1; }
  static uint8_t tag_of(uint64_t hash) {
    const auto low = static_cast<uint8_t>(hash);
    return low == 0 ? uint8_t{1} : low;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static uint64_t mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  Bucket* buckets_;
  uint32_t bucket_count_;
  uint64_t seed_;
  uint64_t multiplier_;
};

}  // namespace tiercel
