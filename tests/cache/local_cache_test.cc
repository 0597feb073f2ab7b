// SPDX-License-Identifier: Apache-2.0
#include "tiercel/local_cache.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "tiercel/engine_layouts.h"

#include "base/manual_clock.h"
#include "cache/local_cache_run.h"
#include "support/child_process.h"

namespace tiercel {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr size_t kBlockBytes = 5000;
constexpr uint32_t kDeviceBlocks = 16;

class LocalCacheTest : public ::testing::Test {
 protected:
  LocalCacheConfig config(uint32_t ranks = 1) {
    LocalCacheConfig config;
    config.cache.spec = byte_spec(kBlockTokens);
    config.cache.payload_bytes = {std::vector<uint64_t>(ranks, kBlockBytes)};
    config.cache.host_blocks = 64;
    memory_.assign(ranks, std::vector<std::byte>(kDeviceBlocks * kBlockBytes));
    for (auto& rank : memory_) config.device_memory.push_back({std::span(rank)});
    return config;
  }

  std::vector<BlockKey> keys(const LocalCacheConfig& config, uint32_t count) {
    Sequence sequence(make_root(*make_namespace(config.cache.spec), Scope{}), kBlockTokens);
    sequence.append(std::vector<TokenId>(count * kBlockTokens, 7));
    return {sequence.keys().begin(), sequence.keys().end()};
  }

  std::span<std::byte> block(uint32_t rank, uint32_t index) {
    return std::span(memory_[rank]).subspan(index * kBlockBytes, kBlockBytes);
  }

  // The content of a block that only this rank and block have.
  void fill(uint32_t rank, uint32_t index, uint32_t content) {
    for (size_t i = 0; i < kBlockBytes; ++i) {
      block(rank, index)[i] = static_cast<std::byte>(content * 31 + rank * 7 + i * 13);
    }
  }

  std::vector<DeviceBlockId> device_blocks(uint32_t first, uint32_t count) {
    std::vector<DeviceBlockId> blocks;
    for (uint32_t i = 0; i < count; ++i) blocks.emplace_back(first + i);
    return blocks;
  }

  // Request 1 stores device blocks 0 to 3, request 2 loads them into 8 to 11.
  uint32_t save_and_load(LocalCache& local, const std::vector<BlockKey>& keys) {
    Cache& cache = local.cache();
    EXPECT_TRUE(cache.save(RequestId(1), keys, 0, device_blocks(0, 4)).has_value());
    EXPECT_TRUE(cache.commit(RequestId(1), 4 * kBlockTokens).has_value());
    run_until_idle(local);
    EXPECT_TRUE(cache.finish(RequestId(1)).has_value());
    EXPECT_EQ(cache.match(keys, 0).ready_blocks, 4u);
    const auto started = cache.load(RequestId(2), keys, 0, device_blocks(8, 4), kNoDeadline);
    EXPECT_TRUE(started.has_value());
    const uint32_t loaded = run_until_idle(local);
    EXPECT_TRUE(cache.finish(RequestId(2)).has_value());
    return loaded;
  }

  std::vector<std::vector<std::byte>> memory_;
  const SystemClock clock_;
};

TEST_F(LocalCacheTest, WhatOneRequestSavedTheNextLoadsOnEveryRank) {
  const LocalCacheConfig config = this->config(2);
  auto local = LocalCache::open(config, clock_);
  ASSERT_TRUE(local.has_value()) << local.error().message();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t i = 0; i < 4; ++i) fill(rank, i, i);
  }
  EXPECT_EQ(save_and_load(**local, keys(config, 4)), 4u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(
          std::equal(block(rank, i).begin(), block(rank, i).end(), block(rank, 8 + i).begin()))
          << rank << " " << i;
    }
  }
  EXPECT_TRUE((*local)->close(std::chrono::seconds(5)).has_value());
  EXPECT_TRUE((*local)->cache().closed());
}

TEST_F(LocalCacheTest, CachesOfOneRegistryShareAStore) {
  const auto registry = make_store_registry();
  LocalCacheConfig config = this->config();
  config.store_url = "memory:shared";
  const auto request_keys = keys(config, 4);
  // Stays open: a pool lives as long as somebody uses it.
  auto first = LocalCache::open(config, clock_, registry);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  for (uint32_t i = 0; i < 4; ++i) fill(0, i, i);
  save_and_load(**first, request_keys);
  auto second = LocalCache::open(config, clock_, registry);
  ASSERT_TRUE(second.has_value()) << second.error().message();
  Cache& cache = (*second)->cache();
  EXPECT_EQ(cache.match(request_keys, 0).ready_blocks, 0u);
  const auto started = cache.prefetch(RequestId(5), request_keys, 0, kNoDeadline);
  ASSERT_TRUE(started.has_value());
  EXPECT_TRUE(*started);
  run_until_idle(**second);
  EXPECT_EQ(cache.match(request_keys, 0).ready_blocks, 4u);
  auto stranger = LocalCache::open(config, clock_);
  ASSERT_TRUE(stranger.has_value());
  ASSERT_TRUE((*stranger)->cache().prefetch(RequestId(5), request_keys, 0, kNoDeadline));
  run_until_idle(**stranger);
  EXPECT_EQ((*stranger)->cache().match(request_keys, 0).ready_blocks, 0u);
}

TEST_F(LocalCacheTest, MetadataOnlyNeedsNoDeviceMemory) {
  LocalCacheConfig config = this->config(2);
  config.device_memory.clear();
  config.metadata_only = true;
  config.cache.host_blocks = 1u << 20;  // would be gigabytes
  auto local = LocalCache::open(config, clock_);
  ASSERT_TRUE(local.has_value()) << local.error().message();
  EXPECT_EQ(save_and_load(**local, keys(config, 4)), 4u);
}

TEST_F(LocalCacheTest, AStandingClockOfTheCacheNeedsAnotherForTheData) {
  ManualClock standing;
  LocalCacheConfig config = this->config();
  config.data_clock = &clock_;
  config.cache.save_deadline = std::chrono::hours(24 * 365 * 100);
  auto local = LocalCache::open(config, standing);
  ASSERT_TRUE(local.has_value()) << local.error().message();
  EXPECT_EQ(save_and_load(**local, keys(config, 4)), 4u);
  EXPECT_TRUE((*local)->close(std::chrono::seconds(5)).has_value());
}

// F53: before anything is allocated, and for all ranks together (tests/tier/field_case_test.cc).
TEST_F(LocalCacheTest, F53AHostTierLargerThanMemoryIsRefusedWithBothNumbers) {
  LocalCacheConfig config = this->config(2);
  config.cache.payload_bytes = {{uint64_t{1} << 30, uint64_t{1} << 30}};
  config.cache.host_blocks = 1u << 20;
  const auto refused = LocalCache::open(config, clock_);
  ASSERT_FALSE(refused.has_value());
  // Device memory does not agree with these sizes either, but memory is looked at first.
  EXPECT_EQ(refused.code(), Code::kNoSpace) << refused.error().message();
  EXPECT_NE(refused.error().message().find("host_blocks of 2 ranks together take 2"),
            std::string::npos)
      << refused.error().message();
  EXPECT_NE(refused.error().message().find("allowed: up to "), std::string::npos);
}

// F29: a process was forked after the cache had been opened.
TEST_F(LocalCacheTest, F29AForkedChildIsRefusedClearlyAndTheParentGoesOnUndamaged) {
  LocalCacheConfig config = this->config();
  config.store_url = "memory:";
  auto local = LocalCache::open(config, clock_);
  ASSERT_TRUE(local.has_value()) << local.error().message();
  const auto request_keys = keys(config, 4);
  for (uint32_t i = 0; i < 4; ++i) fill(0, i, i);
  EXPECT_EQ(save_and_load(**local, request_keys), 4u);

  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              Cache& cache = (*local)->cache();
              const RequestId request(9);
              const auto blocks = device_blocks(8, 4);
              const auto refused = [](const auto& result) {
                return result.code() == Code::kUnavailable &&
                       result.error().message().find("forked off") != std::string::npos;
              };
              if (!refused(cache.load(request, request_keys, 0, blocks, kNoDeadline)))
                return "load";
              if (!refused(cache.prefetch(request, request_keys, 0, kNoDeadline)))
                return "prefetch";
              if (!refused(cache.save(request, request_keys, 0, blocks))) return "save";
              if (!refused(cache.commit(request, 64))) return "commit";
              std::array<CacheEvent, 8> events;
              if (cache.poll(events) != 0) return "poll";
              if (!refused((*local)->close(std::chrono::seconds(5)))) return "close";
              local->reset();
              return "";
            }),
            "");

  EXPECT_EQ((*local)->cache().match(request_keys, 0).ready_blocks, 4u);
  ASSERT_TRUE(
      (*local)->cache().load(RequestId(3), request_keys, 0, device_blocks(12, 4), kNoDeadline));
  EXPECT_EQ(run_until_idle(**local), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::equal(block(0, i).begin(), block(0, i).end(), block(0, 12 + i).begin())) << i;
  }
  ASSERT_TRUE((*local)->cache().finish(RequestId(3)));
  EXPECT_TRUE((*local)->close(std::chrono::seconds(5)).has_value());
}

// Thread sanitizers end a process that starts threads after such a fork.
#ifndef __SANITIZE_THREAD__
TEST_F(LocalCacheTest, F29AForkedChildMayOpenACacheOfItsOwn) {
  const LocalCacheConfig config = this->config();
  auto local = LocalCache::open(config, clock_);
  ASSERT_TRUE(local.has_value()) << local.error().message();
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              auto own = LocalCache::open(config, clock_);
              if (!own) return own.error().message();
              for (uint32_t i = 0; i < 4; ++i) fill(0, i, 100 + i);
              if (save_and_load(**own, keys(config, 4)) != 4) return "not loaded";
              for (uint32_t i = 0; i < 4; ++i) {
                if (!std::equal(block(0, i).begin(), block(0, i).end(), block(0, 8 + i).begin())) {
                  return "other bytes";
                }
              }
              const Status closed = (*own)->close(std::chrono::seconds(5));
              return closed ? "" : closed.error().message();
            }),
            "");
  EXPECT_EQ((*local)->cache().match(keys(config, 4), 0).ready_blocks, 0u);
  EXPECT_EQ(save_and_load(**local, keys(config, 4)), 4u);
}
#endif

TEST_F(LocalCacheTest, WhatDoesNotAgreeIsRefused) {
  LocalCacheConfig one_rank = this->config(1);
  one_rank.cache.payload_bytes = {{kBlockBytes, kBlockBytes}};
  EXPECT_EQ(LocalCache::open(one_rank, clock_).code(), Code::kInvalid);
  LocalCacheConfig no_group = this->config(1);
  no_group.device_memory[0].clear();
  EXPECT_EQ(LocalCache::open(no_group, clock_).code(), Code::kInvalid);
  LocalCacheConfig odd = this->config(1);
  odd.device_memory[0][0] = odd.device_memory[0][0].first(kBlockBytes + 1);
  EXPECT_EQ(LocalCache::open(odd, clock_).code(), Code::kInvalid);
  for (const bool metadata_only : {false, true}) {
    LocalCacheConfig unknown = this->config(1);
    unknown.metadata_only = metadata_only;
    unknown.store_url = "memry:";
    const auto refused = LocalCache::open(unknown, clock_);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message().find("memory"), std::string::npos);
  }
}

// vLLM's tensors: one a layer, K and V apart, blocks of 2 heads × 16 tokens × 4 elements.
TEST_F(LocalCacheTest, BlocksOfAnEnginesTensorsComeBackIntoOtherBlocks) {
  constexpr uint64_t kLayers = 3, kHeads = 2, kElements = 4, kItemBytes = 2;
  constexpr uint64_t kRunBytes = kBlockTokens * kHeads * kElements * kItemBytes;
  LocalCacheConfig config = this->config();
  config.device_memory.clear();
  config.cache.payload_bytes = {{kLayers * 2 * kRunBytes}};
  std::vector<std::vector<std::byte>> tensors(
      kLayers, std::vector<std::byte>(2 * kDeviceBlocks * kRunBytes));
  std::vector<TensorView> views;
  for (std::vector<std::byte>& tensor : tensors) {
    for (size_t i = 0; i < tensor.size(); ++i) {
      tensor[i] = static_cast<std::byte>(i * 7 + i / 251 + views.size());
    }
    views.push_back(
        contiguous_tensor(tensor, kItemBytes, {2, kDeviceBlocks, kBlockTokens, kHeads, kElements}));
  }
  auto group = vllm_group(views);
  ASSERT_TRUE(group) << group.error().message();
  auto layout = DeviceLayout::create({*std::move(group)});
  ASSERT_TRUE(layout) << layout.error().message();
  config.device_layouts = {*layout};

  auto local = LocalCache::open(config, clock_);
  ASSERT_TRUE(local) << local.error().message();
  const auto before = tensors;
  EXPECT_EQ(save_and_load(**local, keys(config, 4)), 4u);
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (uint64_t kv = 0; kv < 2; ++kv) {
      for (uint64_t block = 0; block < kDeviceBlocks; ++block) {
        const bool is_target = block >= 8 && block < 12;
        const uint64_t source = is_target ? block - 8 : block;
        const auto run = [&](const std::vector<std::byte>& tensor, uint64_t index) {
          return std::span(tensor).subspan((kv * kDeviceBlocks + index) * kRunBytes, kRunBytes);
        };
        EXPECT_TRUE(std::ranges::equal(run(tensors[layer], block), run(before[layer], source)))
            << "layer " << layer << ", part " << kv << ", block " << block;
      }
    }
  }

  config.rank_host = RankHost::kProcess;
  EXPECT_EQ(LocalCache::open(config, clock_).code(), Code::kUnsupported);
  config.rank_host = RankHost::kThread;
  config.device_layouts.push_back(*layout);
  EXPECT_EQ(LocalCache::open(config, clock_).code(), Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
