// SPDX-License-Identifier: Apache-2.0
#include "cache/disk_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CacheWriteBack : public DiskCacheFixture {
 protected:
  static CacheConfig write_back_config(uint32_t host_blocks, uint32_t free_slots,
                                       uint32_t ranks = 1) {
    CacheConfig config = test_config(host_blocks, ranks);
    config.host_to_disk = WritePolicy::kWriteBack;
    config.write_back_free_slots = free_slots;
    return config;
  }

  // As store(), two blocks at a time: what comes faster than the disk takes it is evicted.
  void store_slowly(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(count)));
    for (uint32_t blocks = 2; blocks < count + 2; blocks += 2) {
      ASSERT_TRUE(cache->commit(RequestId(request), uint64_t{std::min(blocks, count)} * 4));
      settle();
    }
    ASSERT_TRUE(cache->finish(RequestId(request)));
    settle();
  }

  // Everything of a request's saves but what goes to disk.
  void store_until_moves(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(count)));
    ASSERT_TRUE(cache->commit(RequestId(request), uint64_t{count} * 4));
    settle_all_but(OpKind::kDiskPut);
  }

  // Everything but operations of this kind.
  void settle_all_but(OpKind kind) {
    for (int round = 0; round < 20; ++round) {
      for (size_t i = plane->open.size(); i-- > 0;) {
        if (plane->open[i].op.kind != kind) plane->complete(i);
      }
      poll();
    }
  }
};

TEST_F(CacheWriteBack, NothingIsMovedWhileThereAreEnoughFreeSlots) {
  open_disk(write_back_config(8, 2), 32);
  store(1, test_keys(6));
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 0u);
  EXPECT_EQ(count_on(Tier::kHost), 6u);
}

TEST_F(CacheWriteBack, FreeSlotsAreKeptByMovingTheColdestTailFirst) {
  open_disk(write_back_config(8, 2), 32);
  const auto cold = test_keys(4);
  const auto warm = test_keys(3, 1000);
  store(1, cold);
  clock.advance(1s);
  store(2, warm);
  // Seven of eight: one must go, and it is the tail of the older path. Those before it are copied
  // first, so that a restart can reach it.
  EXPECT_EQ(keys_of(OpKind::kDiskPut), cold);
  EXPECT_EQ(ops(OpKind::kDiskPut)[0].has_parent, 0);
  EXPECT_EQ(ops(OpKind::kDiskPut)[3].has_parent, 1);
  EXPECT_EQ(ops(OpKind::kDiskPut)[3].parent, cold[2]);
  EXPECT_EQ(cache->stats().host_slots_free, 2u);
  EXPECT_EQ(places(cold), (std::vector{BlockPlace::kHost, BlockPlace::kHost, BlockPlace::kHost,
                                       BlockPlace::kDisk}));
  EXPECT_EQ(places(warm), std::vector(3, BlockPlace::kHost));
  EXPECT_EQ(cache->stats().disk_put_blocks, 4u);
  EXPECT_EQ(count_on(Tier::kHost), 6u) << "copies stay";
}

TEST_F(CacheWriteBack, ABlockWhoseChildrenAreOnDiskCanBeMovedToo) {
  open_disk(write_back_config(8, 2), 64);
  const auto cold = test_keys(6);
  store_slowly(1, cold);
  for (uint64_t request = 2; request < 6; ++request) {
    clock.advance(1s);
    store_slowly(request, test_keys(6, static_cast<uint32_t>(request) * 1000));
    EXPECT_GE(cache->stats().host_slots_free, 2u);
  }
  EXPECT_EQ(places(cold), std::vector(6, BlockPlace::kDisk));
  for (uint64_t request = 2; request < 6; ++request) {
    EXPECT_EQ(ready(test_keys(6, static_cast<uint32_t>(request) * 1000)), 6u) << request;
  }
  const std::vector<BlockKey> moved = keys_of(OpKind::kDiskPut);
  EXPECT_EQ(std::vector<BlockKey>(moved.begin(), moved.begin() + 6), cold) << "root first, once";
}

TEST_F(CacheWriteBack, AMovedBlockIsFoundOnDiskAndComesBack) {
  open_disk(write_back_config(8, 2, 2), 32);
  const auto cold = test_keys(6);
  store_slowly(1, cold);
  store_slowly(2, test_keys(6, 1000));
  ASSERT_EQ(ready(cold), 6u);
  ASSERT_EQ(places(cold)[5], BlockPlace::kDisk);
  start_load(3, cold, 6);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 6u);
  ASSERT_TRUE(cache->finish(RequestId(3)));
  settle();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheWriteBack, ABlockThatIsOnDiskAlreadyLeavesTheHostTierWithoutAPut) {
  open_disk(write_back_config(8, 2), 32);
  const auto cold = test_keys(6);
  store_slowly(1, cold);
  clock.advance(1s);
  store_slowly(2, test_keys(6, 1000));
  start_load(3, cold, 6);
  settle();
  ASSERT_TRUE(cache->finish(RequestId(3)));
  settle();
  const auto before = keys_of(OpKind::kDiskPut);
  for (uint64_t request = 4; request < 6; ++request) {
    clock.advance(1s);
    store_slowly(request, test_keys(6, static_cast<uint32_t>(request) * 1000));
  }
  const auto after = keys_of(OpKind::kDiskPut);
  for (const BlockKey& key : cold) {
    EXPECT_LE(std::count(after.begin(), after.end(), key), 1) << "no block is put twice";
  }
  EXPECT_EQ(places(cold), std::vector(6, BlockPlace::kDisk));
  EXPECT_GT(after.size(), before.size());
}

TEST_F(CacheWriteBack, AMovedBlockThatIsInUseByThenStaysInTheHostTierToo) {
  open_disk(write_back_config(8, 2), 32);
  const auto cold = test_keys(7);
  store_until_moves(1, cold);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  ASSERT_EQ(plane->open_count(OpKind::kDiskPut), 7u) << "one moves, six are copied";
  start_load(2, cold, 7);
  plane->complete_all(OpKind::kDiskPut);
  poll();
  EXPECT_EQ(count_on(Tier::kHost), 7u);
  EXPECT_EQ(count_on(Tier::kDisk), 7u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 7u);
  ASSERT_TRUE(cache->finish(RequestId(2)));
  settle();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheWriteBack, AFailedMoveLeavesTheBlockWhereItIs) {
  open_disk(write_back_config(8, 2), 32);
  const auto cold = test_keys(7);
  store_until_moves(1, cold);
  ASSERT_EQ(plane->complete_all(OpKind::kDiskPut, Code::kNoSpace), 7u);
  poll();
  EXPECT_EQ(ready(cold), 7u);
  EXPECT_EQ(count_on(Tier::kHost), 7u);
  EXPECT_EQ(count_on(Tier::kDisk), 0u);
  EXPECT_EQ(cache->stats().disk_put_failed, 7u);
}

TEST_F(CacheWriteBack, ADiskThatRefusesEveryMoveIsNotAskedWithoutPause) {
  open_disk(write_back_config(8, 2), 32);
  const auto cold = test_keys(7);
  store_until_moves(1, cold);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  for (int round = 0; round < 50; ++round) {
    plane->complete_all(OpKind::kDiskPut, Code::kNoSpace);
    poll();
  }
  EXPECT_LE(plane->count(OpKind::kDiskPut), 14u) << "no time has passed";
  clock.advance(10s);
  poll();
  EXPECT_GE(plane->open_count(OpKind::kDiskPut), 1u) << "but later it is";
  settle();
  EXPECT_EQ(places(cold)[6], BlockPlace::kDisk);
}

TEST_F(CacheWriteBack, MovesStopWhileTheDiskIsGivenUpAndTheHostTierEvicts) {
  open_disk(write_back_config(8, 2), 32);
  set_disk(0, StoreCondition::kOpen);
  const auto cold = test_keys(6);
  store(1, cold);
  store(2, test_keys(6, 1000));
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 0u);
  EXPECT_EQ(ready(cold), 2u);
  set_disk(0, StoreCondition::kUp);
  settle();
  EXPECT_EQ(cache->stats().host_slots_free, 2u);
  EXPECT_EQ(ready(cold), 2u);
  EXPECT_EQ(places(cold)[1], BlockPlace::kDisk);
}

TEST_F(CacheWriteBack, ADiskThatTakesNothingMoreDoesNotChokeTheHostTier) {
  // Blocks in the host tier whose children are on disk alone can be neither moved nor evicted: in
  // the end the children must go.
  for (const bool is_given_up : {false, true}) {
    open_disk(write_back_config(8, 2), 64);
    for (uint64_t request = 1; request < 4; ++request) {
      store_slowly(request, test_keys(8, static_cast<uint32_t>(request) * 1000));
      clock.advance(1s);
    }
    ASSERT_GE(count_on(Tier::kDisk), 18u);
    ASSERT_EQ(count_on(Tier::kHost), 6u);
    if (is_given_up) set_disk(0, StoreCondition::kOpen);
    for (uint64_t request = 4; request < 20; ++request) {
      const auto keys = test_keys(6, static_cast<uint32_t>(request) * 1000);
      ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(6)));
      for (uint64_t blocks = 1; blocks <= 6; ++blocks) {
        ASSERT_TRUE(cache->commit(RequestId(request), blocks * 4));
        for (int round = 0; round < 5; ++round) {
          plane->complete_all(OpKind::kSave);
          plane->complete_all(OpKind::kDiskPut, Code::kNoSpace);
          poll();
        }
      }
      ASSERT_TRUE(cache->finish(RequestId(request)));
      poll();
      EXPECT_EQ(ready(keys), 6u) << request;
      clock.advance(1s);
    }
  }
}

TEST_F(CacheWriteBack, MovesAreBoundedAndLeaveRoomInTheRing) {
  CacheConfig config = write_back_config(64, 32);
  config.disk_put_queue_max = 3;
  bounds_puts = true;
  open_disk(config, 256);
  const auto keys = test_keys(60);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(60)));
  ASSERT_TRUE(cache->commit(RequestId(1), 240));
  settle_all_but(OpKind::kDiskPut);
  EXPECT_EQ(plane->open_count(OpKind::kDiskPut), 3u);
  settle();
  EXPECT_EQ(count_on(Tier::kHost), 32u);
  EXPECT_EQ(count_on(Tier::kDisk), 60u);
  EXPECT_EQ(ready(keys), 60u);
}

TEST_F(CacheWriteBack, AMoveOfABlockThatIsClearedMeanwhileLeavesNothingBehind) {
  open_disk(write_back_config(8, 2), 32);
  const auto cold = test_keys(7);
  store_until_moves(1, cold);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  cache->clear();
  settle();
  EXPECT_EQ(ready(cold), 0u);
  EXPECT_EQ(count_on(Tier::kHost), 0u);
  EXPECT_EQ(count_on(Tier::kDisk), 0u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheWriteBack, AMoveThatPassesItsDeadlineCountsAsFreeRoomNoMore) {
  CacheConfig config = write_back_config(8, 2);
  config.save_deadline = 1s;
  open_disk(config, 32);
  const auto cold = test_keys(7);
  store_until_moves(1, cold);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  clock.advance(1s);
  poll();
  EXPECT_EQ(cache->stats().disk_slots_quarantined, 7u);
  clock.advance(1s);
  poll();
  EXPECT_EQ(ready(cold), 7u);
  settle();
  EXPECT_EQ(ready(cold), 7u);
  EXPECT_EQ(cache->check(true), "");
  EXPECT_GE(cache->stats().host_slots_free, 2u);
}

TEST_F(CacheWriteBack, WhatNoDiskBlockNeedsAnyMoreIsEvictedTailFirst) {
  // A disk that is smaller than the host tier: moved blocks push out older ones.
  for (const char* policy : {"lru", "s3fifo"}) {
    CacheConfig config = write_back_config(8, 2);
    config.eviction_policy = policy;
    open_disk(config, 4);
    for (uint64_t request = 1; request < 20; ++request) {
      const auto keys = test_keys(5, static_cast<uint32_t>(request) * 1000);
      store(request, keys);
      EXPECT_EQ(ready(keys), 5u) << policy << " " << request;
      clock.advance(1s);
    }
    EXPECT_GT(cache->stats().disk_evicted_blocks, 0u) << policy;
  }
}

}  // namespace
}  // namespace tiercel
