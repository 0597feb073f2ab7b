// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CacheLoad : public CacheFixture {};

TEST_F(CacheLoad, StoredBlocksAreMatchedAndLoadedInOrder) {
  open(test_config(16));
  const auto keys = test_keys(5);
  store(1, keys);
  EXPECT_EQ(ready(keys), 5u);
  const auto started = cache->load(RequestId(2), keys, 0, device(5, 10), kNoDeadline);
  ASSERT_TRUE(started);
  EXPECT_EQ(*started, 5u);
  ASSERT_EQ(plane->open_count(OpKind::kLoad), 5u);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plane->open[i].op.key, keys[i]);
    EXPECT_EQ(plane->open[i].op.device_block, DeviceBlockId(10 + i));
  }
  plane->complete_all(OpKind::kLoad);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kLoadDone);
  EXPECT_EQ(events[0].blocks, 5u);
  EXPECT_EQ(events[0].code, Code::kOk);
  EXPECT_FALSE(events[0].device_busy);
  ASSERT_TRUE(cache->finish(RequestId(2)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheLoad, WhatTheEngineHasItselfIsNotLoaded) {
  open(test_config(16));
  const auto keys = test_keys(5);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 2, device(3), kNoDeadline), 3u);
  EXPECT_EQ(plane->open_count(OpKind::kLoad), 3u);
  EXPECT_EQ(plane->open[0].op.key, keys[2]);
}

TEST_F(CacheLoad, TheDeviceBlocksOfferedBoundTheLoad) {
  open(test_config(16));
  const auto keys = test_keys(5);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(2), kNoDeadline), 2u);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 2u);
  ASSERT_EQ(cache->why(RequestId(2))->spans().size(), 1u);
  EXPECT_EQ(cache->why(RequestId(2))->spans()[0],
            (WhySpan{2, 3, WhyReason::kNoDeviceBlock, Code::kOk}));
}

TEST_F(CacheLoad, TheFirstFailureCutsTheHit) {
  for (uint32_t failing = 0; failing < 5; ++failing) {
    open(test_config(16));
    const auto keys = test_keys(5);
    store(1, keys);
    ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(5), kNoDeadline), 5u);
    plane->complete_all(OpKind::kLoad, [&](const BlockOp& op, uint32_t) {
      return op.key == keys[failing] ? Code::kCorrupt : Code::kOk;
    });
    const auto events = poll();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].blocks, failing);
    EXPECT_EQ(events[0].code, Code::kCorrupt);
    EXPECT_EQ(ready(keys), failing) << "a copy found bad must not be matched again";
    ASSERT_TRUE(cache->finish(RequestId(2)));
    settle();
    EXPECT_EQ(cache->check(true), "");
  }
}

TEST_F(CacheLoad, FieldCaseF31EveryRankMustHaveTheBlock) {
  open(test_config(16, 4));
  const auto keys = test_keys(6);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(6), kNoDeadline), 6u);
  plane->complete_all(OpKind::kLoad, [&](const BlockOp& op, uint32_t rank) {
    return rank == 2 && op.key == keys[5] ? Code::kCorrupt : Code::kOk;
  });
  EXPECT_EQ(poll().at(0).blocks, 5u);
}

TEST_F(CacheLoad, FieldCaseF22ALoadThatIsNeverAnsweredEndsAtItsDeadline) {
  open(test_config(16));
  const auto keys = test_keys(4);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(4), in(50ms)), 4u);
  plane->complete(0);  // the first block arrives
  EXPECT_TRUE(poll().empty());
  clock.advance(50ms);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 1u);
  EXPECT_EQ(events[0].code, Code::kTimeout);
  EXPECT_TRUE(events[0].device_busy) << "the engine must not use these blocks yet";
  EXPECT_EQ(cache->stats().load_timeout, 3u);
  // The answers come after all: harmless, and the device blocks are free then.
  plane->complete_all(OpKind::kLoad);
  events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kDeviceReleased);
  EXPECT_FALSE(cache->finish(RequestId(2))->device_busy);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheLoad, FieldCaseF13ABlockThatIsBeingLoadedIsNotEvicted) {
  open(test_config(4));
  const auto keys = test_keys(4);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(4), kNoDeadline), 4u);
  const auto others = test_keys(3, 1000);
  ASSERT_TRUE(cache->save(RequestId(3), others, 0, device(3, 20)));
  ASSERT_TRUE(cache->commit(RequestId(3), 12));
  poll();
  EXPECT_EQ(plane->count(OpKind::kSave), 4u) << "only the four of the first request";
  EXPECT_EQ(cache->stats().evicted_blocks, 0u);
  EXPECT_EQ(cache->why(RequestId(3))->spans()[0].reason, WhyReason::kSaveNoSpace);
  EXPECT_EQ(ready(keys), 4u);
}

TEST_F(CacheLoad, FieldCaseF19ForeignCompletionsAreIgnoredAndCounted) {
  open(test_config(16));
  const auto keys = test_keys(3);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(3), kNoDeadline), 3u);
  const BlockOp op = plane->open[0].op;
  plane->raw({JobId(12345), 0, 0, Code::kOk, 0});  // unknown job
  plane->raw({op.job, 99, 0, Code::kOk, 0});       // unknown item
  plane->raw({op.job, op.item, 7, Code::kOk, 0});  // no such rank
  plane->complete(0);
  plane->raw({op.job, op.item, 0, Code::kCorrupt, 0});  // twice
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(cache->stats().stale_completions, 4u);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 3u);
}

TEST_F(CacheLoad, FieldCaseF19AnIdUsedAgainIsNotTouchedByItsFormerLife) {
  open(test_config(16));
  const auto keys = test_keys(3);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(7), keys, 0, device(3), kNoDeadline), 3u);
  const auto farewell = cache->abort(RequestId(7));
  ASSERT_TRUE(farewell);
  EXPECT_TRUE(farewell->device_busy);
  ASSERT_EQ(cache->load(RequestId(7), keys, 0, device(3, 8), kNoDeadline), 3u);
  for (int i = 0; i < 3; ++i) plane->complete(0);  // those of the former life
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kDeviceReleased);
  EXPECT_EQ(events[0].generation, farewell->generation);
  plane->complete_all(OpKind::kLoad);
  events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kLoadDone);
  EXPECT_NE(events[0].generation, farewell->generation);
}

TEST_F(CacheLoad, HoldsOfASilentRequestEndAtTheLimit) {
  CacheConfig config = test_config(4);
  config.hold_limit = 1s;
  open(config);
  const auto keys = test_keys(2);
  store(1, keys);
  ASSERT_TRUE(cache->load(RequestId(2), keys, 0, device(2), kNoDeadline));
  plane->complete_all(OpKind::kLoad);
  poll();
  EXPECT_EQ(cache->stats().holds, 2u);
  clock.advance(1s);
  poll();
  EXPECT_EQ(cache->stats().holds, 0u);
  EXPECT_EQ(cache->stats().hold_limit_hits, 1u);
  EXPECT_TRUE(cache->finish(RequestId(2)));
}

TEST_F(CacheLoad, LoadingAgainAndAgainHoldsEachBlockOnce) {
  open(test_config(16));
  const auto keys = test_keys(3);
  store(1, keys);
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(3), kNoDeadline), 3u);
    plane->complete_all(OpKind::kLoad);
    ASSERT_EQ(poll().at(0).blocks, 3u);
  }
  EXPECT_EQ(cache->stats().holds, 3u);
  ASSERT_TRUE(cache->finish(RequestId(2)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheLoad, AWindowGroupThatLacksItsWindowShortensTheHitAndSaysSo) {
  CacheConfig config = test_config(16);
  config.spec.groups.resize(2);
  config.spec.groups[1].attention = AttentionKind::kWindow;
  config.spec.groups[1].window_tokens = 5;  // one block before the cut
  config.payload_bytes = {{64}, {32}};
  open(config);
  const auto keys = test_keys(4);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(4)));
  ASSERT_TRUE(cache->commit(RequestId(1), 16));
  plane->complete_all(OpKind::kSave, [&](const BlockOp& op, uint32_t) {
    return op.group == GroupId(1) && op.key == keys[3] ? Code::kUnavailable : Code::kOk;
  });
  poll();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(ready(keys), 3u);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(4), kNoDeadline), 3u);
  EXPECT_EQ(cache->why(RequestId(2))->spans()[0],
            (WhySpan{3, 1, WhyReason::kGroupMissing, Code::kOk}));
  EXPECT_EQ(plane->open_count(OpKind::kLoad), 4u) << "three blocks, and the window's one";
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 3u);
}

TEST_F(CacheLoad, AFullRingShortensTheLoad) {
  open(test_config(16), 3);
  const auto keys = test_keys(5);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(5), kNoDeadline), 3u);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 3u);
}

TEST_F(CacheLoad, ClearForgetsAtOnceAndWhatIsInFlightIsNotPublished) {
  open(test_config(16));
  const auto keys = test_keys(4);
  store(1, keys);
  const auto others = test_keys(3, 1000);
  ASSERT_TRUE(cache->save(RequestId(2), others, 0, device(3)));
  ASSERT_TRUE(cache->commit(RequestId(2), 12));
  ASSERT_EQ(cache->load(RequestId(3), keys, 0, device(4), kNoDeadline), 4u);
  cache->clear();
  EXPECT_EQ(ready(keys), 0u);
  settle();
  EXPECT_EQ(ready(others), 0u);
  ASSERT_TRUE(cache->finish(RequestId(2)));
  ASSERT_TRUE(cache->finish(RequestId(3)));
  settle();
  EXPECT_EQ(cache->check(true), "");
  EXPECT_EQ(cache->stats().host_slots_used, 0u);
  store(4, keys);
  EXPECT_EQ(ready(keys), 4u);
}

TEST_F(CacheLoad, AClosingCacheTakesNothingNewAndEnds) {
  open(test_config(16));
  const auto keys = test_keys(4);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(4), kNoDeadline), 4u);
  cache->close(in(1s));
  EXPECT_FALSE(cache->closed());
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(cache->load(RequestId(3), keys, 0, device(4), kNoDeadline), 0u);
  EXPECT_EQ(cache->why(RequestId(3))->spans()[0].reason, WhyReason::kClosed);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 4u) << "what was in flight may end";
  EXPECT_TRUE(cache->closed());
}

}  // namespace
}  // namespace tiercel
