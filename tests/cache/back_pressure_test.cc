// SPDX-License-Identifier: Apache-2.0
//
// When the rings are nearly full, optional work gives way first: saves and puts leave a quarter of
// them free, questions and gets an eighth, loads may use all.
#include "cache/cache_fixture.h"

namespace tiercel {
namespace {

constexpr size_t kRingOps = 64;

class BackPressure : public CacheFixture {
 protected:
  // A cache with blocks of `kept_` in the host tier and nothing in flight.
  void SetUp() override {
    CacheConfig config = test_config(128, 1, true);
    config.host_to_store = WritePolicy::kNone;
    open(config, kRingOps);
    store(1, kept_);
  }

  // Loads of their own requests, left open, until so many operations fit.
  void fill_until_free(size_t free) {
    const size_t count = plane->submit_capacity() - free;
    const std::vector<BlockKey> keys(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(count));
    const auto started = cache->load(RequestId(100), keys, 0,
                                     device(static_cast<uint32_t>(count), 1000), kNoDeadline);
    ASSERT_TRUE(started);
    ASSERT_EQ(*started, count);
    ASSERT_EQ(plane->submit_capacity(), free);
  }

  size_t submitted_by_save() {
    const size_t before = plane->count(OpKind::kSave);
    const std::vector<BlockKey> keys = test_keys(32, 10000);
    EXPECT_TRUE(cache->save(RequestId(2), keys, 0, device(32)));
    EXPECT_TRUE(cache->commit(RequestId(2), 32 * 4));
    return plane->count(OpKind::kSave) - before;
  }
  size_t submitted_by_prefetch() {
    const size_t before = plane->count(OpKind::kStoreExists);
    EXPECT_TRUE(cache->prefetch(RequestId(3), test_keys(32, 20000), 0, kNoDeadline));
    return plane->count(OpKind::kStoreExists) - before;
  }
  size_t submitted_by_load() {
    const size_t before = plane->count(OpKind::kLoad);
    EXPECT_TRUE(cache->load(RequestId(4), kept_, 0, device(64, 2000), kNoDeadline));
    return plane->count(OpKind::kLoad) - before;
  }

  const std::vector<BlockKey> kept_ = test_keys(64);
};

TEST_F(BackPressure, SavesStopBeforePrefetchesAndPrefetchesBeforeLoads) {
  fill_until_free(20);
  EXPECT_EQ(submitted_by_save(), 4u) << "leaves 16 of 64 free";
  EXPECT_EQ(submitted_by_prefetch(), 8u) << "leaves 8 of 64 free";
  EXPECT_EQ(submitted_by_load(), 8u) << "leaves none free";
  EXPECT_EQ(plane->submit_capacity(), 0u);
}

TEST_F(BackPressure, WhatALoadTakesIsNotLeftForOthers) {
  fill_until_free(20);
  EXPECT_EQ(submitted_by_load(), 20u);
  EXPECT_EQ(submitted_by_prefetch(), 0u);
  EXPECT_EQ(submitted_by_save(), 0u);
}

TEST_F(BackPressure, WhatHadToWaitGoesOnWhenThereIsRoomPrefetchesFirst) {
  fill_until_free(0);
  EXPECT_EQ(submitted_by_save(), 0u);
  EXPECT_EQ(submitted_by_prefetch(), 0u);
  poll();
  EXPECT_EQ(plane->open_count(OpKind::kSave), 0u);
  EXPECT_EQ(plane->open_count(OpKind::kStoreExists), 0u);
  for (int i = 0; i < 20; ++i) plane->complete(0);
  poll();
  EXPECT_EQ(plane->open_count(OpKind::kStoreExists), 12u) << "20 free, 8 stay so";
  EXPECT_EQ(plane->open_count(OpKind::kSave), 0u) << "16 must stay free";
  settle();
  EXPECT_EQ(plane->count(OpKind::kSave), 64u + 32u);
  EXPECT_EQ(ready(test_keys(32, 10000)), 32u);
}

}  // namespace
}  // namespace tiercel
