// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_hash_map.h"

#ifdef TIERCEL_WITH_ABSL
#include <absl/container/flat_hash_map.h>
#endif

namespace tiercel {

#ifdef TIERCEL_WITH_ABSL

namespace {

class FlatHashMap final : public BenchHashMap {
 public:
  explicit FlatHashMap(size_t capacity) { map_.reserve(capacity); }

  void insert(const BlockKey& key, uint32_t value) override { map_.emplace(key, value); }

  size_t find_each(std::span<const BlockKey> keys, std::span<uint32_t> out) const override {
    size_t found = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto entry = map_.find(keys[i]);
      const bool there = entry != map_.end();
      out[i] = there ? entry->second : UINT32_MAX;
      found += there ? 1 : 0;
    }
    return found;
  }

  void erase(const BlockKey& key) override { map_.erase(key); }

 private:
  // The keys are digests: their first bytes are the cheapest hash there is.
  absl::flat_hash_map<BlockKey, uint32_t, std::hash<BlockKey>> map_;
};

}  // namespace

std::unique_ptr<BenchHashMap> make_bench_hash_map(size_t capacity) {
  return std::make_unique<FlatHashMap>(capacity);
}

#else

std::unique_ptr<BenchHashMap> make_bench_hash_map(size_t) { return nullptr; }

#endif

}  // namespace tiercel
