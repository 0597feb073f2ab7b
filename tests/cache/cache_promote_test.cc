// SPDX-License-Identifier: Apache-2.0
#include "cache/disk_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CachePromote : public DiskCacheFixture {};

TEST_F(CachePromote, APrefetchBringsBlocksOnDiskToTheHostTierAndHoldsThem) {
  config_ = test_config(16, 2);
  const auto keys = test_keys(6);
  put_on_disk(keys, 2);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  EXPECT_EQ(keys_of(OpKind::kDiskGet), std::vector<BlockKey>(keys.begin() + 2, keys.end()));
  EXPECT_EQ(ready(keys), 6u) << "what is on its way from disk can be loaded";
  plane->complete_all(OpKind::kDiskGet);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kPrefetchDone);
  EXPECT_EQ(events[0].code, Code::kOk);
  EXPECT_EQ(events[0].blocks, 6u);
  EXPECT_EQ(places(keys), std::vector(6, BlockPlace::kHost));
  EXPECT_EQ(count_on(Tier::kDisk), 6u) << "they stay on disk";
  EXPECT_EQ(cache->stats().holds, 4u);
  EXPECT_EQ(cache->stats().disk_get_blocks, 6u);
  EXPECT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), false);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromote, APrefetchTakesWhatTheStoreHasBehindWhatTheDiskHas) {
  config_ = test_config(16, 1, true);
  const auto keys = test_keys(6);
  put_on_disk({keys.begin(), keys.begin() + 3});
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 3u);
  plane->complete_all(OpKind::kStoreExists);
  poll();
  EXPECT_EQ(plane->open_count(OpKind::kDiskGet), 3u);
  EXPECT_EQ(plane->open_count(OpKind::kStoreGet), 3u);
  plane->complete_all(OpKind::kStoreGet);
  EXPECT_TRUE(poll().empty());
  plane->complete_all(OpKind::kDiskGet);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 6u);
  // What came from the store goes to disk as well.
  EXPECT_EQ(keys_of(OpKind::kDiskPut), std::vector<BlockKey>(keys.begin() + 3, keys.end()));
}

TEST_F(CachePromote, APrefetchAsksTheStoreForABlockThatIsBadOnDisk) {
  config_ = test_config(16, 1, true);
  const auto keys = test_keys(3);
  put_on_disk(keys);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  plane->complete_all(OpKind::kDiskGet, [&](const BlockOp& op, uint32_t) {
    return op.key == keys[1] ? Code::kCorrupt : Code::kOk;
  });
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(keys_of(OpKind::kStoreExists), std::vector<BlockKey>{keys[1]});
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 3u);
}

TEST_F(CachePromote, APrefetchWithoutRoomInTheHostTierSaysSo) {
  config_ = test_config(4);
  const auto keys = test_keys(6);
  put_on_disk(keys);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  plane->complete_all(OpKind::kDiskGet);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kNoSpace);
  EXPECT_EQ(events[0].blocks, 6u) << "a load can still bring them";
  EXPECT_EQ(count_on(Tier::kHost), 4u);
}

TEST_F(CachePromote, ALoadStartsWhatIsInTheHostTierAtOnceAndTheRestAsItComes) {
  config_ = test_config(16, 2);
  const auto keys = test_keys(6);
  put_on_disk(keys, 3);
  start_load(1, keys, 6);
  EXPECT_EQ(keys_of(OpKind::kLoad), std::vector<BlockKey>(keys.begin(), keys.begin() + 3));
  EXPECT_EQ(keys_of(OpKind::kDiskGet), std::vector<BlockKey>(keys.begin() + 3, keys.end()));
  plane->complete_all(OpKind::kLoad);
  EXPECT_TRUE(poll().empty());
  // One block comes, and goes on alone.
  plane->complete(0);
  plane->complete(0);
  EXPECT_TRUE(poll().empty());
  const auto loads = ops(OpKind::kLoad);
  ASSERT_EQ(loads.size(), 4u);
  EXPECT_EQ(loads[3].key, keys[3]);
  EXPECT_EQ(loads[3].device_block, DeviceBlockId(3));
  EXPECT_EQ(loads[3].slot, ops(OpKind::kDiskGet)[0].slot);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kLoadDone);
  EXPECT_EQ(events[0].code, Code::kOk);
  EXPECT_EQ(events[0].blocks, 6u);
  EXPECT_FALSE(events[0].device_busy);
  EXPECT_EQ(cache->stats().holds, 6u);
  EXPECT_EQ(cache->stats().load_blocks, 3u + 6);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromote, EachBlockGoesToTheDeviceBlockThatWasOfferedForIt) {
  config_ = test_config(16);
  const auto keys = test_keys(8);
  put_on_disk(keys);
  // The engine has the first two itself, and the fifth.
  auto blocks = device(6, 40);
  blocks[2] = DeviceBlockId(UINT32_MAX);
  ASSERT_EQ(cache->load(RequestId(1), keys, 2, blocks, kNoDeadline), 6u);
  // They come in any order.
  while (plane->open_count(OpKind::kDiskGet) > 0) {
    for (size_t i = plane->open.size(); i-- > 0;) {
      if (plane->open[i].op.kind == OpKind::kDiskGet) {
        plane->complete(i);
        break;
      }
    }
    poll();
  }
  for (const BlockOp& op : ops(OpKind::kLoad)) {
    const auto at = std::find(keys.begin(), keys.end(), op.key) - keys.begin();
    EXPECT_EQ(op.device_block.value(), 40u + static_cast<uint32_t>(at) - 2);
  }
  EXPECT_EQ(plane->count(OpKind::kLoad), 5u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 8u);
}

TEST_F(CachePromote, ALoadEndsBeforeTheFirstBlockThatDidNotCome) {
  config_ = test_config(16);
  const auto keys = test_keys(6);
  put_on_disk(keys, 1);
  start_load(1, keys, 6);
  plane->complete_all(OpKind::kDiskGet, [&](const BlockOp& op, uint32_t) {
    return op.key == keys[3] ? Code::kUnavailable : Code::kOk;
  });
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kUnavailable);
  EXPECT_EQ(events[0].blocks, 3u);
  EXPECT_EQ(first_why(1), (WhySpan{3, 3, WhyReason::kLoadFailed, Code::kUnavailable}));
  EXPECT_EQ(ready(keys), 6u) << "the copy on disk may well be good";
  EXPECT_EQ(cache->stats().disk_get_failed, 1u);
}

TEST_F(CachePromote, ABadCopyOnDiskIsAMissAndNeverOfferedAgain) {
  config_ = test_config(16);
  const auto keys = test_keys(6);
  put_on_disk(keys, 0);
  start_load(1, keys, 6);
  plane->complete_all(OpKind::kDiskGet, [&](const BlockOp& op, uint32_t) {
    return op.key == keys[2] ? Code::kCorrupt : Code::kOk;
  });
  auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kCorrupt);
  EXPECT_EQ(events[0].blocks, 2u);
  EXPECT_EQ(cache->stats().disk_get_corrupt, 1u);
  EXPECT_EQ(count_on(Tier::kDisk), 5u);
  EXPECT_EQ(ready(keys), 2u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  start_load(2, keys, 2);
  settle();
  ASSERT_TRUE(cache->finish(RequestId(2)));
  // Computed anew, it is put again, and what lies behind it is found again.
  store(3, keys);
  EXPECT_EQ(ready(keys), 6u);
  EXPECT_EQ(count_on(Tier::kDisk), 6u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromote, TwoLoadsOfTheSameBlocksShareTheTransferFromDisk) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  start_load(2, keys, 4, kNoDeadline, 100);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 4u);
  plane->complete_all(OpKind::kDiskGet);
  poll();
  EXPECT_EQ(plane->count(OpKind::kLoad), 8u);
  std::vector<uint32_t> blocks;
  for (const BlockOp& op : ops(OpKind::kLoad)) blocks.push_back(op.device_block.value());
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks, (std::vector<uint32_t>{0, 1, 2, 3, 100, 101, 102, 103}));
  const auto events = settle();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(events[1].blocks, 4u);
}

TEST_F(CachePromote, ALoadWaitsForWhatAPrefetchIsBringing) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  start_load(1, keys, 4);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 4u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::kPrefetchDone);
  EXPECT_EQ(events[1].kind, EventKind::kLoadDone);
  EXPECT_EQ(events[1].blocks, 4u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromote, APrefetchWaitsForWhatALoadIsBringing) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  ASSERT_EQ(cache->prefetch(RequestId(2), keys, 0, kNoDeadline), true);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 4u);
  const auto events = settle();
  EXPECT_EQ(events.size(), 2u);
}

TEST_F(CachePromote, AnAbortedLoadIsToldOfNothingAndTheBlocksStayInTheHostTier) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys, 1);
  start_load(1, keys, 4);
  const auto farewell = cache->abort(RequestId(1));
  ASSERT_TRUE(farewell);
  EXPECT_TRUE(farewell->device_busy) << "the first block is on its way to the device";
  plane->complete_all(OpKind::kLoad);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kDeviceReleased);
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(plane->count(OpKind::kLoad), 1u) << "nothing goes to device blocks of another request";
  EXPECT_EQ(count_on(Tier::kHost), 4u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromote, AFinishedLoadDoesNotTouchItsDeviceBlocksLater) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  const auto farewell = cache->finish(RequestId(1));
  ASSERT_TRUE(farewell);
  EXPECT_FALSE(farewell->device_busy);
  // The same id again, with other device blocks.
  start_load(1, keys, 4, kNoDeadline, 50);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 4u);
  for (const BlockOp& op : ops(OpKind::kLoad)) EXPECT_GE(op.device_block.value(), 50u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 4u);
}

TEST_F(CachePromote, APrefetchDoesNotEvictABlockOfItsOwnPathForAnother) {
  // The third block of the path is the coldest of a full host tier; the two before it are on disk
  // alone, and the store has the fourth.
  config_ = test_config(4, 1, true);
  config_.host_to_disk = WritePolicy::kNone;
  const auto keys = test_keys(4);
  put_on_disk({keys.begin(), keys.begin() + 2});
  ASSERT_TRUE(cache->save(RequestId(91), keys, 2, device(1)));
  ASSERT_TRUE(cache->commit(RequestId(91), 12));
  plane->complete_all(OpKind::kSave);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(91)));
  store(92, test_keys(3, 5000));
  ASSERT_EQ(count_on(Tier::kHost), 4u);
  ASSERT_EQ(places(keys), (std::vector{BlockPlace::kDisk, BlockPlace::kDisk, BlockPlace::kHost,
                                       BlockPlace::kUnknown}));
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(places(keys), std::vector(4, BlockPlace::kHost));
  EXPECT_EQ(keys_of(OpKind::kStoreGet), std::vector<BlockKey>{keys[3]});
}

TEST_F(CachePromote, ABlockThatIsClearedOnItsWayIsNotLoaded) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  cache->clear();
  plane->complete_all(OpKind::kDiskGet);
  auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 0u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  settle();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromote, ABlockOnDiskIsNotEvictedWhileItIsRead) {
  config_ = test_config(8);
  path_disk_blocks = 8;
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  // 16 blocks go through the disk's other four slots meanwhile.
  const auto gets = ops(OpKind::kDiskGet);
  for (uint64_t request = 2; request < 6; ++request) {
    ASSERT_TRUE(cache->save(RequestId(request), test_keys(4, static_cast<uint32_t>(request) * 1000),
                            0, device(4, 60)));
    ASSERT_TRUE(cache->commit(RequestId(request), 16));
    for (int round = 0; round < 4; ++round) {
      plane->complete_all(OpKind::kSave);
      plane->complete_all(OpKind::kDiskPut, [&](const BlockOp& op, uint32_t) {
        for (const BlockOp& get : gets) EXPECT_NE(op.disk_slot, get.disk_slot);
        return Code::kOk;
      });
      poll();
    }
    ASSERT_TRUE(cache->finish(RequestId(request)));
  }
  EXPECT_GT(plane->count(OpKind::kDiskPut), 0u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 4u);
}

TEST_F(CachePromote, AKeyThatIsNamedTwiceEndsTheLoadAllTheSame) {
  config_ = test_config(16);
  auto keys = test_keys(4);
  put_on_disk(keys);
  keys[2] = keys[1];  // no path, but it comes from outside
  for (const Code code : {Code::kUnavailable, Code::kOk}) {
    const auto started = cache->load(RequestId(1), keys, 0, device(4), kNoDeadline);
    ASSERT_TRUE(started);
    plane->complete_all(OpKind::kDiskGet, code);
    const auto events = settle();
    ASSERT_EQ(events.size(), 1u) << to_string(code);
    EXPECT_EQ(events[0].kind, EventKind::kLoadDone);
    ASSERT_TRUE(cache->finish(RequestId(1)));
    settle();
    EXPECT_EQ(cache->check(true), "");
  }
}

TEST_F(CachePromote, AWindowGroupIsPromotedAsFarAsItsWindowReaches) {
  CacheConfig config = test_config(16);
  config.spec = test_spec(2);
  config.spec.groups[1].attention = AttentionKind::kWindow;
  config.spec.groups[1].window_tokens = 8;
  config.payload_bytes = {{64}, {64}};
  config_ = config;
  const auto keys = test_keys(6);
  DiskContents contents = contents_of(keys);
  // Of the window group, the last three blocks, in the other extent.
  DiskContents window = contents_of(keys);
  constexpr uint32_t kDiskBlocks = 32;
  const auto geometry = SlotGeometry::for_blocks(config.payload_bytes, kDiskBlocks, 2).value();
  for (size_t i = 3; i < 6; ++i) {
    window.blocks[i].group = GroupId(1);
    window.blocks[i].slot = geometry.slot_at(geometry.extent_count() - 1, static_cast<uint32_t>(i));
    contents.blocks.push_back(window.blocks[i]);
  }
  open_disk(config, kDiskBlocks, contents);
  ASSERT_EQ(cache->stats().disk_recovered_blocks, 9u);
  EXPECT_EQ(ready(keys), 6u);
  ASSERT_EQ(cache->load(RequestId(1), keys, 0, device(6), kNoDeadline), 6u);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 8u) << "six, and the window's two";
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 6u);
}

}  // namespace
}  // namespace tiercel
