// SPDX-License-Identifier: Apache-2.0
//
// The general hash table that the block index is measured against: absl::flat_hash_map from block
// key to number. Behind an interface, because the library may not be there, and its headers stand
// in one file only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tiercel/key.h"

namespace tiercel {

class BenchHashMap {
 public:
  virtual ~BenchHashMap() = default;
  virtual void insert(const BlockKey& key, uint32_t value) = 0;
  // One look-up after the other; out[i] is the value of keys[i], or UINT32_MAX. How many were
  // there.
  virtual size_t find_each(std::span<const BlockKey> keys, std::span<uint32_t> out) const = 0;
  virtual void erase(const BlockKey& key) = 0;
};

// With room for `capacity` keys; null where the build has no such library.
std::unique_ptr<BenchHashMap> make_bench_hash_map(size_t capacity);

}  // namespace tiercel
