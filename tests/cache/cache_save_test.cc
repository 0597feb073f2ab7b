// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CacheSave : public CacheFixture {};

TEST_F(CacheSave, NothingIsReadBeforeItsKvHasBeenComputed) {
  open(test_config(16));
  const auto keys = test_keys(4);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(4)));
  poll();
  EXPECT_EQ(plane->all.size(), 0u);
  ASSERT_TRUE(cache->commit(RequestId(1), 11));  // two full blocks and three tokens
  EXPECT_EQ(plane->count(OpKind::kSave), 2u);
  ASSERT_TRUE(cache->commit(RequestId(1), 5));  // never falls
  ASSERT_TRUE(cache->commit(RequestId(1), 16));
  EXPECT_EQ(plane->count(OpKind::kSave), 4u);
}

TEST_F(CacheSave, ABlockIsInvisibleUntilAllRanksHaveIt) {
  open(test_config(16, 2));
  const auto keys = test_keys(1);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(1)));
  ASSERT_TRUE(cache->commit(RequestId(1), 4));
  EXPECT_EQ(ready(keys), 0u);
  plane->complete(1);  // rank 1
  poll();
  EXPECT_EQ(ready(keys), 0u);
  plane->complete(0);
  poll();
  EXPECT_EQ(ready(keys), 1u);
}

TEST_F(CacheSave, FieldCaseF07AFailedSaveIsAMissAndCanBeRepeated) {
  open(test_config(16, 2));
  const auto keys = test_keys(3);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(3)));
  ASSERT_TRUE(cache->commit(RequestId(1), 12));
  plane->complete_all(OpKind::kSave, [&](const BlockOp& op, uint32_t rank) {
    return op.key == keys[1] && rank == 1 ? Code::kUnavailable : Code::kOk;
  });
  poll();
  EXPECT_EQ(ready(keys), 1u);
  EXPECT_EQ(cache->stats().save_failed, 1u);
  EXPECT_EQ(cache->why(RequestId(1))->spans().back(),
            (WhySpan{1, 1, WhyReason::kSaveFailed, Code::kUnavailable}));
  ASSERT_TRUE(cache->finish(RequestId(1)));
  store(2, keys);
  EXPECT_EQ(ready(keys), 3u);
  EXPECT_EQ(cache->stats().save_skipped, 2u);
}

TEST_F(CacheSave, FieldCaseF14BlocksNamedTogetherDoNotEvictEachOther) {
  for (const char* policy : {"lru", "s3fifo"}) {
    // Every subset of the old blocks, in a tier of four.
    for (uint32_t subset = 1; subset < 16; ++subset) {
      CacheConfig config = test_config(4);
      config.eviction_policy = policy;
      open(config);
      const auto keys = test_keys(4);
      for (uint32_t length = 1; length <= 4; ++length) {
        if ((subset >> (length - 1) & 1) != 0) {
          store(length, std::vector<BlockKey>(keys.begin(), keys.begin() + length));
        }
      }
      store(10, test_keys(2, 1000));
      store(11, keys);
      EXPECT_EQ(ready(keys), 4u) << policy << " " << subset;
    }
  }
}

TEST_F(CacheSave, FieldCaseF30ARepeatedOfferIsStoredOnce) {
  open(test_config(16));
  const auto keys = test_keys(4);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(4)));
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(4, 50)));  // ignored: declared already
  ASSERT_TRUE(cache->commit(RequestId(1), 16));
  ASSERT_TRUE(cache->save(RequestId(2), keys, 0, device(4, 8)));
  ASSERT_TRUE(cache->commit(RequestId(2), 16));
  EXPECT_EQ(plane->count(OpKind::kSave), 4u);
  EXPECT_EQ(plane->all[0].device_block, DeviceBlockId(0));
  settle();
  EXPECT_EQ(ready(keys), 4u);
}

TEST_F(CacheSave, AnAbortDropsWhatIsQueuedAndReleasesTheDeviceWhenTheRestHasLetGo) {
  open(test_config(64), 8);
  const auto keys = test_keys(40);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(40)));
  ASSERT_TRUE(cache->commit(RequestId(1), 160));
  ASSERT_TRUE(cache->abort(RequestId(1))->device_busy);
  EXPECT_TRUE(poll().empty());
  plane->complete_all(OpKind::kSave);
  EXPECT_EQ(poll().at(0).kind, EventKind::kDeviceReleased);
  EXPECT_EQ(ready(keys), 6u);
  EXPECT_EQ(cache->stats().save_dropped, 34u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheSave, FieldCaseF27AStalledRingDropsQueuedSavesAtTheirDeadline) {
  CacheConfig config = test_config(64);
  config.save_deadline = 1s;
  open(config, 8);
  const auto keys = test_keys(40);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(40)));
  ASSERT_TRUE(cache->commit(RequestId(1), 160));
  const auto farewell = cache->finish(RequestId(1));
  clock.advance(1s);
  poll();
  EXPECT_EQ(cache->stats().queued_saves, 0u);
  EXPECT_EQ(cache->stats().save_dropped, 34u);
  EXPECT_EQ(cache->stats().host_slots_quarantined, 6u)
      << "the stalled copies may still write to their slots";
  EXPECT_EQ(ready(keys), 0u);
  plane->complete_all(OpKind::kSave);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].generation, farewell->generation);
  EXPECT_EQ(cache->stats().host_slots_quarantined, 0u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheSave, WhatHasMissedItsDeadlineIsSettledButNotIdle) {
  open(test_config(4));
  ASSERT_TRUE(cache->save(RequestId(1), test_keys(2), 0, device(2)));
  EXPECT_TRUE(cache->settled());
  ASSERT_TRUE(cache->commit(RequestId(1), 8));
  EXPECT_FALSE(cache->settled());
  clock.advance(config_.save_deadline);
  poll();
  EXPECT_TRUE(cache->settled());
  EXPECT_FALSE(cache->idle());
  while (!plane->open.empty()) plane->complete(0);
  poll();
  EXPECT_TRUE(cache->idle());
}

TEST_F(CacheSave, ASlotInQuarantineIsNotUsedAgainBeforeItsTransferHasLetGo) {
  CacheConfig config = test_config(4);
  config.save_deadline = 1s;
  config.quarantine_slots_max = 4;
  open(config);
  ASSERT_TRUE(cache->save(RequestId(1), test_keys(2), 0, device(2)));
  ASSERT_TRUE(cache->commit(RequestId(1), 8));
  const SlotId first = plane->all[0].slot;
  const SlotId second = plane->all[1].slot;
  clock.advance(1s);
  poll();
  ASSERT_TRUE(cache->save(RequestId(2), test_keys(4, 1000), 0, device(4, 8)));
  ASSERT_TRUE(cache->commit(RequestId(2), 16));
  poll();
  ASSERT_EQ(plane->all.size(), 4u) << "two of four slots are in quarantine";
  for (size_t i = 2; i < 4; ++i) {
    EXPECT_NE(plane->all[i].slot, first);
    EXPECT_NE(plane->all[i].slot, second);
  }
}

TEST_F(CacheSave, AFullQuarantineStopsNewFills) {
  CacheConfig config = test_config(8);
  config.save_deadline = 1s;
  config.quarantine_slots_max = 2;
  open(config);
  ASSERT_TRUE(cache->save(RequestId(1), test_keys(2), 0, device(2)));
  ASSERT_TRUE(cache->commit(RequestId(1), 8));
  clock.advance(1s);
  poll();
  ASSERT_TRUE(cache->save(RequestId(2), test_keys(2, 1000), 0, device(2, 8)));
  ASSERT_TRUE(cache->commit(RequestId(2), 8));
  EXPECT_EQ(plane->all.size(), 2u);
  EXPECT_EQ(cache->why(RequestId(2))->spans()[0].reason, WhyReason::kSaveNoSpace);
}

TEST_F(CacheSave, ABlockWhoseParentIsNowhereIsNotStored) {
  open(test_config(16));
  const auto keys = test_keys(4);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 2, device(2)));
  ASSERT_TRUE(cache->commit(RequestId(1), 16));
  EXPECT_EQ(plane->all.size(), 0u);
  EXPECT_EQ(cache->why(RequestId(1))->spans()[0].reason, WhyReason::kSaveParentGone);
}

TEST_F(CacheSave, WritePolicySelectiveStoresAtTheNthCommit) {
  CacheConfig config = test_config(16);
  config.device_to_host = WritePolicy::kWriteThroughSelective;
  config.selective_hits = 3;
  open(config);
  const auto keys = test_keys(2);
  store(1, keys);
  store(2, keys);
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(plane->all.size(), 0u);
  store(3, keys);
  EXPECT_EQ(ready(keys), 2u);
}

TEST_F(CacheSave, WritePolicyNoneStoresNothing) {
  CacheConfig config = test_config(16);
  config.device_to_host = WritePolicy::kNone;
  open(config);
  store(1, test_keys(2));
  EXPECT_EQ(plane->all.size(), 0u);
}

TEST_F(CacheSave, TailGoesBeforeHead) {
  open(test_config(6));
  const auto first = test_keys(4);
  const auto second = test_keys(4, 1000);
  store(1, first);
  store(2, second);
  EXPECT_EQ(ready(second), 4u);
  EXPECT_EQ(ready(first), 2u);
}

TEST_F(CacheSave, AJobThatIsTooSmallForABlocksGroupsAndFindsNoRoomIsGivenBack) {
  CacheConfig config = test_config(4);
  config.spec = test_spec(2);
  config.payload_bytes = {{64}, {64}};
  config.job_blocks_max = 1;
  open(config);
  const auto keys = test_keys(40);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(40)));
  ASSERT_TRUE(cache->commit(RequestId(1), 160));
  settle();
  EXPECT_EQ(cache->stats().jobs_in_flight, 0u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
