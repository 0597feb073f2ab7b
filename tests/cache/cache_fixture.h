// SPDX-License-Identifier: Apache-2.0
//
// A Cache over a FakeDataPlane with a virtual clock, and short words for what tests do with it.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/cache.h"
#include "tiercel/key.h"

#include "base/manual_clock.h"
#include "cache/fake_data_plane.h"

namespace tiercel {

inline KvSpec test_spec(uint32_t groups = 1) {
  KvSpec spec;
  spec.model_id = "model";
  spec.weights_revision = "1";
  spec.kv_dtype = "bf16";
  spec.kv_scale_scheme = "none";
  spec.block_tokens = 4;
  spec.groups.resize(groups);
  return spec;
}

inline CacheConfig test_config(uint32_t host_blocks, uint32_t ranks = 1, bool with_store = false) {
  CacheConfig config;
  config.spec = test_spec();
  config.payload_bytes = {std::vector<uint64_t>(ranks, 64)};
  config.host_blocks = host_blocks;
  config.host_extents = 4;
  config.request_blocks_max = 256;
  config.requests_max = 64;
  config.existence_entries = 1024;
  config.with_store = with_store;
  return config;
}

// Keys of a sequence whose tokens are first, first + 1, …
inline std::vector<BlockKey> test_keys(uint32_t blocks, uint32_t first = 0) {
  Sequence sequence(make_root(*make_namespace(test_spec()), Scope{}), 4);
  std::vector<TokenId> tokens(size_t{blocks} * 4);
  std::iota(tokens.begin(), tokens.end(), first);
  sequence.append(tokens);
  return {sequence.keys().begin(), sequence.keys().end()};
}

class CacheFixture : public ::testing::Test {
 protected:
  void open(const CacheConfig& config, size_t capacity = 4096) {
    config_ = config;
    plane = std::make_unique<FakeDataPlane>(
        static_cast<uint32_t>(config.payload_bytes.front().size()), capacity);
    auto created = Cache::create(config, *plane, clock);
    ASSERT_TRUE(created) << created.error().to_string();
    cache = *std::move(created);
  }

  std::vector<CacheEvent> poll() {
    std::vector<CacheEvent> events(64);
    events.resize(cache->poll(events));
    const std::string wrong = cache->check(false);
    EXPECT_EQ(wrong, "");
    return events;
  }

  std::vector<DeviceBlockId> device(uint32_t count, uint32_t first = 0) {
    std::vector<DeviceBlockId> blocks;
    for (uint32_t i = 0; i < count * config_.spec.groups.size(); ++i) {
      blocks.push_back(DeviceBlockId(first + i));
    }
    return blocks;
  }

  // Stores the keys as one request would, every transfer ok.
  void store(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(count)));
    ASSERT_TRUE(cache->commit(RequestId(request), uint64_t{count} * 4));
    settle();
    ASSERT_TRUE(cache->finish(RequestId(request)));
    settle();
  }

  // Completes everything as ok until nothing moves.
  std::vector<CacheEvent> settle() {
    std::vector<CacheEvent> events;
    for (int round = 0; round < 1000; ++round) {
      while (!plane->open.empty()) plane->complete(0);
      const auto some = poll();
      events.insert(events.end(), some.begin(), some.end());
      if (plane->open.empty() && cache->idle()) return events;
    }
    ADD_FAILURE() << "never came to rest";
    return events;
  }

  uint32_t ready(const std::vector<BlockKey>& keys, uint32_t computed = 0) {
    return cache->match(keys, computed).ready_blocks;
  }

  TimePoint in(Duration duration) const { return clock.now() + duration; }

  ManualClock clock;
  std::unique_ptr<FakeDataPlane> plane;
  std::unique_ptr<Cache> cache;
  CacheConfig config_;
};

}  // namespace tiercel
