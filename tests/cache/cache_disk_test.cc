// SPDX-License-Identifier: Apache-2.0
#include "cache/disk_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CacheDisk : public DiskCacheFixture {
 protected:
  // Declares and commits, and lets the saves end: what is left open is with the disk.
  void save(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(count)));
    ASSERT_TRUE(cache->commit(RequestId(request), uint64_t{count} * 4));
    plane->complete_all(OpKind::kSave);
    poll();
  }
};

TEST_F(CacheDisk, WriteThroughPutsSavedBlocksInPrefixOrderAndOnce) {
  open_disk(test_config(16), 32);
  const auto keys = test_keys(6);
  save(1, keys);
  EXPECT_EQ(keys_of(OpKind::kDiskPut), keys);
  const auto puts = ops(OpKind::kDiskPut);
  for (size_t i = 0; i < puts.size(); ++i) {
    EXPECT_EQ(puts[i].has_parent, i == 0 ? 0 : 1);
    EXPECT_EQ(puts[i].parent, i == 0 ? BlockKey{} : keys[i - 1]);
    EXPECT_EQ(puts[i].only_rank, kEveryRank);
    EXPECT_EQ(puts[i].token_count, 4u);
  }
  settle();
  EXPECT_EQ(count_on(Tier::kDisk), 6u);
  EXPECT_EQ(cache->stats().disk_put_blocks, 6u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  // Neither a second save nor a hit puts them again.
  store(2, keys);
  start_load(3, keys, 6);
  settle();
  ASSERT_TRUE(cache->finish(RequestId(3)));
  settle();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 6u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDisk, ABlockIsOnDiskOnlyWhenEveryRankHasPutIt) {
  open_disk(test_config(16, 3), 32);
  const auto keys = test_keys(2);
  save(1, keys);
  plane->complete_all(OpKind::kDiskPut, [&](const BlockOp& op, uint32_t rank) {
    return op.key == keys[1] && rank == 2 ? Code::kUnavailable : Code::kOk;
  });
  poll();
  EXPECT_EQ(count_on(Tier::kDisk), 1u);
  EXPECT_EQ(cache->stats().disk_put_failed, 1u);
  EXPECT_EQ(cache->stats().disk_slots_used, 1u);
}

TEST_F(CacheDisk, SelectivePutsWaitForTheNthHit) {
  CacheConfig config = test_config(16);
  config.host_to_disk = WritePolicy::kWriteThroughSelective;
  config.selective_hits = 2;
  open_disk(config, 32);
  const auto keys = test_keys(2);
  store(1, keys);
  for (uint64_t request = 2; request <= 3; ++request) {
    EXPECT_EQ(plane->count(OpKind::kDiskPut), 0u);
    start_load(request, keys, 2);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(request)));
  }
  settle();
  EXPECT_EQ(keys_of(OpKind::kDiskPut), keys);
}

TEST_F(CacheDisk, NoneNeverPuts) {
  CacheConfig config = test_config(8);
  config.host_to_disk = WritePolicy::kNone;
  open_disk(config, 32);
  const auto keys = test_keys(8);
  store(1, keys);
  for (uint64_t request = 2; request <= 5; ++request) {
    start_load(request, keys, 8);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(request)));
  }
  fill_host(6);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 0u);
  EXPECT_EQ(ready(keys), 0u);
}

TEST_F(CacheDisk, WhatTheHostTierEvictsStaysFindableOnDisk) {
  open_disk(test_config(8), 32);
  const auto keys = test_keys(8);
  store(1, keys);
  fill_host(2);
  EXPECT_EQ(places(keys), std::vector(8, BlockPlace::kDisk));
  EXPECT_EQ(ready(keys), 8u);
  EXPECT_EQ(count_on(Tier::kHost), 8u);
  EXPECT_EQ(count_on(Tier::kDisk), 16u);
}

TEST_F(CacheDisk, TheDiskEvictsTailFirst) {
  open_disk(test_config(8), 12);
  const auto keys = test_keys(8);
  store(1, keys);
  fill_host(2);
  // 16 blocks, of which the disk has room for 12: the older path has lost its tail.
  EXPECT_EQ(count_on(Tier::kDisk), 12u);
  EXPECT_EQ(cache->stats().disk_evicted_blocks, 4u);
  EXPECT_EQ(ready(keys), 4u);
  EXPECT_EQ(places(keys)[3], BlockPlace::kDisk);
  EXPECT_EQ(places(keys)[4], BlockPlace::kNone);
}

TEST_F(CacheDisk, ADiskThatIsGivenUpIsNeitherOfferedNorAskedAndComesBack) {
  CacheConfig config = test_config(16, 2);
  open_disk(config, 32);
  const auto keys = test_keys(8);
  store(1, keys);
  fill_host(2);
  set_disk(1, StoreCondition::kOpen);
  poll();
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(places(keys), std::vector(8, BlockPlace::kNone));
  EXPECT_EQ(cache->prefetch(RequestId(3), keys, 0, kNoDeadline), false);
  EXPECT_EQ(cache->load(RequestId(3), keys, 0, device(8), kNoDeadline), 0u);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 0u);
  ASSERT_TRUE(cache->finish(RequestId(3)));

  const size_t puts = plane->count(OpKind::kDiskPut);
  const auto more = test_keys(3, 500);
  store(4, more);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), puts);
  EXPECT_EQ(cache->stats().disk_put_dropped, 3u);
  EXPECT_EQ(last_why(4), (WhySpan{0, 3, WhyReason::kDiskPutDropped, Code::kUnavailable}));
  EXPECT_EQ(ready(more), 3u);

  set_disk(1, StoreCondition::kProbing);
  poll();
  EXPECT_EQ(ready(keys), 8u);
  start_load(5, keys, 8);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 8u);
  settle();
  // The next hit offers again what was dropped.
  start_load(6, more, 3);
  settle();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), puts + 3);
}

TEST_F(CacheDisk, AFailedPutIsToldInTheWhyRecordAndOfferedAgainAtTheNextHit) {
  open_disk(test_config(8), 32);
  const auto keys = test_keys(3);
  save(1, keys);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  plane->complete_all(OpKind::kDiskPut, [&](const BlockOp& op, uint32_t) {
    return op.key == keys[0] ? Code::kOk : Code::kNoSpace;
  });
  poll();
  EXPECT_EQ(cache->stats().disk_put_failed, 2u);
  EXPECT_EQ(cache->stats().disk_put_no_space, 2u);
  EXPECT_EQ(last_why(1), (WhySpan{1, 2, WhyReason::kDiskPutFailed, Code::kNoSpace}));
  EXPECT_EQ(ready(keys), 3u);
  EXPECT_EQ(cache->stats().disk_slots_used, 1u);
  clock.advance(10s);  // till then the disk counts as full
  start_load(2, keys, 3);
  settle();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 5u);
  EXPECT_EQ(count_on(Tier::kDisk), 3u);
}

TEST_F(CacheDisk, ASlotThatTheRankFindsBadIsNoLongerInTheHostTier) {
  open_disk(test_config(8), 32);
  const auto keys = test_keys(3);
  save(1, keys);
  plane->complete_all(OpKind::kDiskPut, [&](const BlockOp& op, uint32_t) {
    return op.key == keys[2] ? Code::kCorrupt : Code::kOk;
  });
  poll();
  EXPECT_EQ(ready(keys), 2u);
  EXPECT_EQ(count_on(Tier::kHost), 2u);
  EXPECT_EQ(count_on(Tier::kDisk), 2u);
}

TEST_F(CacheDisk, AFullQueueDropsPutsWithTheReason) {
  CacheConfig config = test_config(16);
  config.disk_put_queue_max = 2;
  bounds_puts = true;
  open_disk(config, 32);
  const auto keys = test_keys(5);
  save(1, keys);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 2u);
  EXPECT_EQ(cache->stats().disk_put_dropped, 3u);
  EXPECT_EQ(last_why(1), (WhySpan{2, 3, WhyReason::kDiskPutDropped, Code::kBusy}));
  settle();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  settle();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDisk, ADiskWithoutRoomThatMayBeTakenDropsThePutWithTheReason) {
  open_disk(test_config(8), 2);
  const auto keys = test_keys(4);
  save(1, keys);
  // The first two puts have both slots, and end only later.
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 2u);
  EXPECT_EQ(cache->stats().disk_put_no_space, 2u);
  EXPECT_EQ(last_why(1), (WhySpan{2, 2, WhyReason::kDiskPutDropped, Code::kNoSpace}));
}

TEST_F(CacheDisk, TheSlotOfAPutPastItsDeadlineIsNotUsedBeforeTheRankLetsGo) {
  CacheConfig config = test_config(8);
  config.save_deadline = 1s;
  open_disk(config, 8);
  const auto keys = test_keys(1);
  save(1, keys);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  const SlotId late = ops(OpKind::kDiskPut).at(0).disk_slot;
  clock.advance(1s);
  poll();
  EXPECT_EQ(cache->stats().disk_slots_quarantined, 1u);
  EXPECT_EQ(cache->stats().disk_put_failed, 1u);
  EXPECT_EQ(last_why(1), (WhySpan{0, 1, WhyReason::kDiskPutFailed, Code::kTimeout}));
  EXPECT_TRUE(cache->settled());
  EXPECT_FALSE(cache->idle());

  // The rest of the tier goes round and round without it.
  for (uint64_t request = 2; request < 6; ++request) {
    save(request, test_keys(8, static_cast<uint32_t>(request) * 1000));
    for (size_t i = plane->open.size(); i-- > 0;) {
      if (plane->open[i].op.key == keys[0]) continue;
      EXPECT_NE(plane->open[i].op.disk_slot, late);
      plane->complete(i);
    }
    poll();
    ASSERT_TRUE(cache->finish(RequestId(request)));
  }
  EXPECT_EQ(cache->stats().disk_slots_quarantined, 1u);
  EXPECT_EQ(count_on(Tier::kDisk), 7u);
}

TEST_F(CacheDisk, ALatePutIsNotPublishedAndItsSlotIsFreeAgain) {
  CacheConfig config = test_config(8);
  config.save_deadline = 1s;
  open_disk(config, 8);
  save(1, test_keys(1));
  ASSERT_TRUE(cache->finish(RequestId(1)));
  clock.advance(1s);
  poll();
  ASSERT_EQ(plane->open_count(OpKind::kDiskPut), 1u);
  plane->complete_all(OpKind::kDiskPut);
  poll();
  EXPECT_EQ(cache->stats().disk_slots_quarantined, 0u);
  EXPECT_EQ(cache->stats().disk_slots_used, 0u);
  EXPECT_EQ(cache->stats().stale_completions, 1u);
  EXPECT_EQ(count_on(Tier::kDisk), 0u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDisk, ManySlotsInQuarantineStopFurtherPuts) {
  CacheConfig config = test_config(16);
  config.save_deadline = 1s;
  open_disk(config, 8);
  save(1, test_keys(2));
  clock.advance(1s);
  poll();
  EXPECT_EQ(cache->stats().disk_slots_quarantined, 2u);  // a quarter of the tier
  save(2, test_keys(3, 1000));
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 2u);
  EXPECT_EQ(cache->stats().disk_put_dropped, 3u);
  EXPECT_EQ(last_why(2), (WhySpan{0, 3, WhyReason::kDiskPutDropped, Code::kNoSpace}));
  plane->complete_all(OpKind::kDiskPut);
  poll();
  start_load(3, test_keys(3, 1000), 3);
  settle();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 5u);
}

TEST_F(CacheDisk, ARankThatLosesItsMemoryTakesTheHostPlacesAndNotTheDiskPlaces) {
  open_disk(test_config(8, 2), 32);
  const auto keys = test_keys(6);
  store(1, keys);
  ASSERT_EQ(places(keys), std::vector(6, BlockPlace::kHost));
  plane->memory_epochs = {0, 1};
  poll();
  EXPECT_EQ(cache->stats().memory_losses, 1u);
  EXPECT_EQ(count_on(Tier::kHost), 0u);
  EXPECT_EQ(places(keys), std::vector(6, BlockPlace::kDisk));
  start_load(2, keys, 6);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 6u);
}

TEST_F(CacheDisk, WhatARankHadBroughtBeforeItLostItsMemoryIsNotPublishedAfterwards) {
  open_disk(test_config(8, 2), 32);
  const auto keys = test_keys(2);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(2)));
  ASSERT_TRUE(cache->commit(RequestId(1), 8));
  ASSERT_EQ(plane->open[0].rank, 0u);
  plane->complete(0);
  poll();
  plane->memory_epochs = {1, 0};
  poll();
  plane->complete_all(OpKind::kSave);
  poll();
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(cache->stats().save_failed, 2u);
}

TEST_F(CacheDisk, APutOfABlockWhoseSlotWasLostIsNotSentAndNotLeftBehind) {
  open_disk(test_config(8), 32, {}, 4);  // a ring of four: the puts wait
  const auto keys = test_keys(4);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(4)));
  ASSERT_TRUE(cache->commit(RequestId(1), 16));
  settle();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  settle();
  plane->memory_epochs = {1};
  poll();
  EXPECT_EQ(places(keys), std::vector(4, BlockPlace::kDisk));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDisk, ClearForgetsAtOnceAndIsToldToTheDiskBeforeAnyLaterPut) {
  open_disk(test_config(8, 2), 32);
  const auto keys = test_keys(6);
  store(1, keys);
  cache->clear();
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_FALSE(cache->idle());
  EXPECT_FALSE(cache->settled());
  EXPECT_LE(cache->next_deadline(), clock.now());
  const size_t before = plane->all.size();
  save(2, keys);
  settle();
  ASSERT_TRUE(cache->finish(RequestId(2)));
  std::vector<OpKind> kinds;
  for (size_t i = before; i < plane->all.size(); ++i) {
    if (uses_disk(plane->all[i].kind)) kinds.push_back(plane->all[i].kind);
  }
  ASSERT_EQ(kinds.size(), 7u);
  EXPECT_EQ(kinds[0], OpKind::kDiskClear);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), OpKind::kDiskPut), 6);
  EXPECT_EQ(cache->check(true), "");
  EXPECT_EQ(count_on(Tier::kDisk), 6u);
}

TEST_F(CacheDisk, AClearThatTheDiskRefusesIsTriedAgainAndNothingIsPutMeanwhile) {
  open_disk(test_config(8), 32);
  store(1, test_keys(4));
  cache->clear();
  poll();
  ASSERT_EQ(plane->open_count(OpKind::kDiskClear), 1u);
  plane->complete_all(OpKind::kDiskClear, Code::kUnavailable);
  poll();
  const size_t puts = plane->count(OpKind::kDiskPut);
  save(2, test_keys(3, 1000));
  EXPECT_EQ(plane->count(OpKind::kDiskClear), 1u);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), puts);
  EXPECT_FALSE(cache->idle());
  ASSERT_NE(cache->next_deadline(), kNoDeadline);
  ASSERT_GT(cache->next_deadline(), clock.now());
  clock.set(cache->next_deadline());
  poll();
  EXPECT_EQ(plane->count(OpKind::kDiskClear), 2u);
  settle();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), puts + 3);
  EXPECT_TRUE(cache->idle());
}

TEST_F(CacheDisk, AClearThatIsNeverAnsweredIsTriedAgainAfterItsDeadline) {
  CacheConfig config = test_config(8);
  config.save_deadline = 1s;
  open_disk(config, 32);
  store(1, test_keys(4));
  cache->clear();
  poll();
  clock.advance(1s);
  poll();
  EXPECT_FALSE(cache->settled());
  clock.advance(1s);
  poll();
  EXPECT_EQ(plane->count(OpKind::kDiskClear), 2u);
  plane->complete(1);
  poll();
  EXPECT_TRUE(cache->settled());
  EXPECT_FALSE(cache->idle()) << "the first one has not let go";
}

TEST_F(CacheDisk, AClearDuringAClearIsCoveredByItBecauseNothingIsPutMeanwhile) {
  open_disk(test_config(8), 32);
  store(1, test_keys(4));
  cache->clear();
  poll();
  // A put behind the first clear() would be of before the second.
  const auto keys = test_keys(2, 1000);
  const size_t puts = plane->count(OpKind::kDiskPut);
  save(2, keys);
  poll();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), puts);
  ASSERT_EQ(plane->open_count(OpKind::kDiskClear), 1u);
  cache->clear();
  plane->complete_all(OpKind::kDiskClear);
  poll();
  settle();
  EXPECT_EQ(plane->count(OpKind::kDiskClear), 1u);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), puts);
  EXPECT_TRUE(cache->idle());
  EXPECT_EQ(ready(keys), 0u);
}

TEST_F(CacheDisk, WhatIsPutWhileTheCacheIsClearedIsNotPublished) {
  open_disk(test_config(8), 32);
  const auto keys = test_keys(3);
  save(1, keys);
  cache->clear();
  plane->complete_all(OpKind::kDiskPut);
  settle();
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(count_on(Tier::kDisk), 0u);
  EXPECT_EQ(cache->stats().disk_slots_used, 0u);
}

TEST_F(CacheDisk, EqualSlicesAreOnTheDiskOfTheFirstRankAlone) {
  CacheConfig config = test_config(8, 3);
  config.replicated_slices = true;
  open_disk(config, 32);
  const auto keys = test_keys(4);
  store(1, keys);
  fill_host(2);
  start_load(3, keys, 4);
  cache->clear();
  settle();
  size_t disk_ops = 0;
  for (const BlockOp& op : plane->all) {
    if (!uses_disk(op.kind)) continue;
    ++disk_ops;
    EXPECT_EQ(op.only_rank, 0) << to_string(op.kind);
  }
  EXPECT_EQ(disk_ops, 12u + 4 + 1);
  // The disks of the other ranks, which are none, are not asked how they are.
  set_disk(2, StoreCondition::kOpen);
  store(4, keys);
  EXPECT_EQ(count_on(Tier::kDisk), 4u);
  set_disk(0, StoreCondition::kOpen);
  poll();
  EXPECT_EQ(cache->stats().disk.condition, StoreCondition::kOpen);
}

TEST_F(CacheDisk, AHostTierWhoseBlocksHangOnTheDiskDoesNotChoke) {
  // Every other put fails: those blocks are in the host tier alone, and blocks behind them on disk
  // alone. They can be evicted only once the disk has them, too.
  bounds_puts = true;
  open_disk(test_config(8), 64);
  bool fails = true;
  for (uint64_t request = 1; request < 40; ++request) {
    const auto keys = test_keys(8, static_cast<uint32_t>(request) * 1000);
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(8)));
    ASSERT_TRUE(cache->commit(RequestId(request), 32));
    for (int round = 0; round < 20; ++round) {
      plane->complete_all(OpKind::kSave);
      plane->complete_all(OpKind::kDiskPut, [&](const BlockOp& op, uint32_t) {
        const auto at = std::find(keys.begin(), keys.end(), op.key) - keys.begin();
        return fails && at % 2 == 0 ? Code::kUnavailable : Code::kOk;
      });
      poll();
    }
    ASSERT_TRUE(cache->finish(RequestId(request)));
    fails = request < 20;
    clock.advance(1s);
  }
  settle();
  EXPECT_EQ(ready(test_keys(8, 39000)), 8u) << "the host tier takes no more blocks";
}

TEST_F(CacheDisk, StatsOfTheDiskAddUp) {
  open_disk(test_config(8), 16);
  const auto keys = test_keys(8);
  store(1, keys);
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.disk_slots_total, 16u);
  EXPECT_EQ(stats.disk_slots_used, 8u);
  EXPECT_EQ(stats.disk_slots_free, 8u);
  EXPECT_EQ(stats.disk_slots_quarantined, 0u);
  EXPECT_EQ(stats.queued_disk_puts, 0u);
  EXPECT_EQ(stats.disk_recovered_blocks, 0u);
}

}  // namespace
}  // namespace tiercel
