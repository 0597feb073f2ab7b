// SPDX-License-Identifier: Apache-2.0
#include "cli/device_side.h"

#include <utility>
#include <vector>

#include "base/assert.h"
#include "engine/prefix_cache.h"

namespace tiercel {
namespace {

class ScratchDeviceSide final : public DeviceSide {
 public:
  ScratchDeviceSide(Cache& cache, uint32_t block_count) : cache_(cache) {
    for (uint32_t block = 0; block < block_count; ++block) blocks_.emplace_back(block);
  }

  Result<Admission> admit(RequestId, std::span<const BlockKey> keys) override {
    TIERCEL_ASSERT(keys.size() <= blocks_.size(), "the longest request was known before");
    return Admission{std::span(blocks_).first(keys.size()), 0};
  }
  Result<uint32_t> load(RequestId request, std::span<const BlockKey> keys,
                        TimePoint deadline) override {
    return cache_.load(request, keys, 0, std::span(blocks_).first(keys.size()), deadline);
  }
  Status computed(RequestId request, std::span<const BlockKey> keys,
                  uint32_t first_computed) override {
    return cache_.save(request, keys, first_computed,
                       std::span(blocks_).first(keys.size()).subspan(first_computed));
  }
  Status commit(RequestId request, uint64_t token_count) override {
    return cache_.commit(request, token_count);
  }
  Result<bool> finish(RequestId request) override {
    TIERCEL_TRY_ASSIGN(const Farewell farewell, cache_.finish(request));
    return farewell.device_busy;
  }
  size_t poll(std::span<CacheEvent> events) override { return cache_.poll(events); }

 private:
  Cache& cache_;
  std::vector<DeviceBlockId> blocks_;
};

class OwnedDeviceSide final : public DeviceSide {
 public:
  explicit OwnedDeviceSide(std::unique_ptr<PrefixCache> prefix) : prefix_(std::move(prefix)) {}

  Result<Admission> admit(RequestId request, std::span<const BlockKey> keys) override {
    TIERCEL_TRY_ASSIGN(const PrefixCache::Admission admission,
                       prefix_->admit(request, keys, static_cast<uint32_t>(keys.size())));
    const BlockTable& table = admission.block_table;
    return Admission{{table.blocks, size_t{table.block_count} * table.group_count},
                     admission.device_blocks};
  }
  Result<uint32_t> load(RequestId request, std::span<const BlockKey>, TimePoint deadline) override {
    return prefix_->load(request, deadline);
  }
  Status computed(RequestId, std::span<const BlockKey>, uint32_t) override { return {}; }
  Status commit(RequestId request, uint64_t token_count) override {
    return prefix_->commit(request, token_count);
  }
  Result<bool> finish(RequestId request) override {
    TIERCEL_TRY(prefix_->finish(request));
    return false;  // it keeps what is still being touched to itself
  }
  size_t poll(std::span<CacheEvent> events) override { return prefix_->poll(events); }

 private:
  std::unique_ptr<PrefixCache> prefix_;
};

}  // namespace

std::unique_ptr<DeviceSide> make_scratch_device_side(Cache& cache, uint32_t block_count) {
  return std::make_unique<ScratchDeviceSide>(cache, block_count);
}

Result<std::unique_ptr<DeviceSide>> make_owned_device_side(const CacheConfig& config,
                                                           Cache& cache) {
  TIERCEL_TRY_ASSIGN(std::unique_ptr<PrefixCache> prefix, PrefixCache::create(config, cache));
  return std::unique_ptr<DeviceSide>(std::make_unique<OwnedDeviceSide>(std::move(prefix)));
}

}  // namespace tiercel
