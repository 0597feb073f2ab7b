// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include "base/random.h"
#include "engine/prefix_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class PrefixCacheTest : public PrefixCacheFixture {
 protected:
  // A whole life; returns (device hits, blocks loaded).
  std::pair<uint32_t, uint32_t> serve(uint64_t id, const std::vector<BlockKey>& keys) {
    const RequestId request(id);
    const auto count = static_cast<uint32_t>(keys.size());
    const auto admission = prefix->admit(request, keys, count);
    EXPECT_TRUE(admission) << admission.error().to_string();
    if (!admission) return {0, 0};
    const auto loading = prefix->load(request, kNoDeadline);
    EXPECT_TRUE(loading);
    settle_all();
    EXPECT_TRUE(prefix->commit(request, uint64_t{count} * 4));
    settle_all();
    EXPECT_TRUE(prefix->finish(request));
    settle_all();
    return {admission->device_blocks, *loading};
  }
};

TEST_F(PrefixCacheTest, RefusesAConfigurationWithoutDeviceBlocks) {
  open(test_config(16));
  EXPECT_EQ(PrefixCache::create(config_, *cache).code(), Code::kInvalid);
}

TEST_F(PrefixCacheTest, WhatWasComputedIsSharedOnTheDevice) {
  open_with_device(8, 16);
  const auto keys = test_keys(4);
  EXPECT_EQ(serve(1, keys), (std::pair{0u, 0u}));
  EXPECT_EQ(serve(2, keys), (std::pair{4u, 0u}));
  EXPECT_EQ(plane->count(OpKind::kSave), 4u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
}

TEST_F(PrefixCacheTest, WhatLeftTheDeviceComesFromTheHostTier) {
  open_with_device(4, 32);
  const auto first = test_keys(4);
  serve(1, first);
  serve(2, test_keys(3, 1000));
  EXPECT_EQ(serve(3, first), (std::pair{1u, 3u}));
}

TEST_F(PrefixCacheTest, TwoRequestsThatComputeOneBlockKeepOneEach) {
  open_with_device(8, 16);
  const auto keys = test_keys(2);
  const auto a = prefix->admit(RequestId(1), keys, 3);
  const auto b = prefix->admit(RequestId(2), keys, 3);
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(prefix->commit(RequestId(1), 8));
  ASSERT_TRUE(prefix->commit(RequestId(2), 8));
  EXPECT_EQ(prefix->stats().duplicate_blocks, 2u);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(a->block_table.group(0)[i], b->block_table.group(0)[i]);
  settle_all();
  ASSERT_TRUE(prefix->finish(RequestId(1)));
  ASSERT_TRUE(prefix->finish(RequestId(2)));
  settle_all();
  EXPECT_EQ(prefix->stats().cached_blocks, 2u);
  EXPECT_EQ(prefix->stats().free_blocks, 6u);
}

TEST_F(PrefixCacheTest, AFullPoolRefusesAndGivesNothingAway) {
  open_with_device(4, 16);
  ASSERT_TRUE(prefix->admit(RequestId(1), test_keys(3), 3));
  EXPECT_EQ(prefix->admit(RequestId(2), test_keys(2, 1000), 2).code(), Code::kNoSpace);
  EXPECT_EQ(prefix->admit(RequestId(2), test_keys(2, 1000), 5).code(), Code::kInvalid);
  EXPECT_EQ(prefix->admit(RequestId(1), test_keys(1, 1000), 1).code(), Code::kInvalid);
  EXPECT_EQ(prefix->stats().free_blocks, 1u);
  EXPECT_EQ(prefix->check(), "");
  ASSERT_TRUE(prefix->abort(RequestId(1)));
  EXPECT_EQ(prefix->stats().free_blocks, 4u);
}

TEST_F(PrefixCacheTest, FieldCaseF60BlocksOfAnAbortedRequestAreKeptBackUntilItsLoadHasLetGo) {
  open_with_device(4, 16);
  const auto keys = test_keys(4);
  serve(1, keys);
  serve(2, test_keys(4, 1000));
  ASSERT_TRUE(prefix->admit(RequestId(3), keys, 4));
  ASSERT_EQ(prefix->load(RequestId(3), kNoDeadline), 4u);
  ASSERT_TRUE(prefix->abort(RequestId(3)));
  EXPECT_EQ(prefix->admit(RequestId(4), test_keys(1, 5000), 1).code(), Code::kNoSpace);
  settle_all();
  EXPECT_TRUE(prefix->admit(RequestId(4), test_keys(1, 5000), 1));
}

TEST_F(PrefixCacheTest, ALateLoadKeepsTheEngineFromComputingIntoItsBlocks) {
  open_with_device(4, 16);
  const auto keys = test_keys(4);
  serve(1, keys);
  serve(2, test_keys(4, 1000));
  ASSERT_TRUE(prefix->admit(RequestId(3), keys, 4));
  ASSERT_EQ(prefix->load(RequestId(3), in(10ms)), 4u);
  clock.advance(10ms);
  CacheEvent events[8];
  ASSERT_EQ(prefix->poll(events), 1u);
  EXPECT_TRUE(events[0].device_busy);
  EXPECT_FALSE(prefix->may_compute(RequestId(3)));
  EXPECT_EQ(prefix->commit(RequestId(3), 16).code(), Code::kBusy);
  settle_all();
  EXPECT_TRUE(prefix->may_compute(RequestId(3)));
  EXPECT_TRUE(prefix->commit(RequestId(3), 16));
}

TEST_F(PrefixCacheTest, ClearForgetsTheDeviceAndRunningRequestsKeepTheirBlocks) {
  open_with_device(8, 16);
  const auto keys = test_keys(4);
  serve(1, keys);
  const auto running = prefix->admit(RequestId(2), keys, 4);
  ASSERT_TRUE(running);
  EXPECT_EQ(running->device_blocks, 4u);
  prefix->clear();
  settle_all();
  const auto next = prefix->admit(RequestId(3), keys, 4);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->device_blocks, 0u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NE(next->block_table.group(0)[i], running->block_table.group(0)[i]);
  ASSERT_TRUE(prefix->finish(RequestId(2)));
  ASSERT_TRUE(prefix->finish(RequestId(3)));
  settle_all();
  EXPECT_EQ(prefix->stats().free_blocks, 8u);
}

TEST_F(PrefixCacheTest, FieldCaseF17RandomLivesGiveEveryBlockBackOnce) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    open_with_device(12, static_cast<uint32_t>(4 + random.below(20)));
    std::vector<uint64_t> running;
    uint64_t next_id = 0;
    for (int step = 0; step < 200; ++step) {
      const uint64_t kind = random.below(6);
      if (kind == 0 || running.empty()) {
        const auto keys = test_keys(static_cast<uint32_t>(1 + random.below(5)),
                                    static_cast<uint32_t>(random.below(4) * 1000));
        const auto blocks = static_cast<uint32_t>(keys.size() + random.below(2));
        if (prefix->admit(RequestId(next_id), keys, blocks)) {
          running.push_back(next_id);
          if (random.chance(0.7)) (void)prefix->load(RequestId(next_id), in(1ms));
        }
        ++next_id;
      } else if (kind == 1) {
        const RequestId request(running[random.below(running.size())]);
        if (prefix->may_compute(request)) (void)prefix->commit(request, random.below(24));
      } else if (kind == 2) {
        const size_t which = random.below(running.size());
        const RequestId request(running[which]);
        ASSERT_TRUE(random.chance(0.5) ? prefix->finish(request) : prefix->abort(request));
        EXPECT_FALSE(prefix->finish(request)) << "a second end must be refused";
        running.erase(running.begin() + static_cast<ptrdiff_t>(which));
      } else if (kind == 3) {
        if (!plane->open.empty()) plane->complete(random.below(plane->open.size()));
      } else if (kind == 4) {
        clock.advance(Duration(random.below(2'000'000)));
      } else if (random.chance(0.1)) {
        prefix->clear();
      }
      CacheEvent events[4];
      (void)prefix->poll(events);
      ASSERT_EQ(prefix->check(), "") << "seed " << seed << " step " << step;
      ASSERT_EQ(cache->check(false, prefix->hold_count()), "")
          << "seed " << seed << " step " << step;
    }
    for (const uint64_t id : running) ASSERT_TRUE(prefix->finish(RequestId(id)));
    settle_all();
    const PrefixCacheStats stats = prefix->stats();
    ASSERT_EQ(stats.free_blocks + stats.cached_blocks, 12u);
    ASSERT_EQ(stats.referenced_blocks, 0u);
    ASSERT_EQ(cache->check(true, prefix->hold_count()), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace tiercel
