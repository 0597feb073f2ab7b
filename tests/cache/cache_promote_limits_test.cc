// SPDX-License-Identifier: Apache-2.0
//
// Loads of blocks on disk where something runs out: time, slots, jobs, room in the rings.
#include "cache/disk_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CachePromoteLimits : public DiskCacheFixture {
 protected:
  // Others take the plane's last room.
  void fill_ring() {
    while (plane->submit_capacity() > 0) {
      BlockOp op;
      op.kind = OpKind::kStoreRemove;
      ASSERT_TRUE(plane->submit({&op, 1}));
    }
  }
};

TEST_F(CachePromoteLimits, ADiskThatDoesNotAnswerCostsTheDeadlineOnce) {
  config_ = test_config(16);
  const auto keys = test_keys(6);
  put_on_disk(keys, 2);
  start_load(1, keys, 6, in(50ms));
  plane->complete_all(OpKind::kLoad);
  EXPECT_TRUE(poll().empty());
  EXPECT_LE(cache->next_deadline(), in(50ms));
  clock.advance(50ms);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kTimeout);
  EXPECT_EQ(events[0].blocks, 2u);
  EXPECT_FALSE(events[0].device_busy) << "what never came touches no device block";
  EXPECT_EQ(cache->stats().host_slots_quarantined, 4u);
  EXPECT_EQ(cache->stats().disk_get_timeout, 4u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  // Late bytes are not published, and the slots come back.
  plane->complete_all(OpKind::kDiskGet);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->count(OpKind::kLoad), 2u);
  EXPECT_EQ(count_on(Tier::kHost), 2u);
  EXPECT_EQ(cache->check(true), "");
  EXPECT_EQ(ready(keys), 6u);
}

TEST_F(CachePromoteLimits, ALoadDoesNotWaitPastItsDeadlineForAnothersTransfer) {
  config_ = test_config(16);
  const auto keys = test_keys(4);
  put_on_disk(keys);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, in(10s)), true);
  start_load(2, keys, 4, in(50ms));
  clock.advance(50ms);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, RequestId(2));
  EXPECT_EQ(events[0].code, Code::kTimeout);
  EXPECT_EQ(events[0].blocks, 0u);
  events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kPrefetchDone);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
}

TEST_F(CachePromoteLimits, BlocksThatHaveComeButFindNoRoomInTheRingFailAtTheDeadline) {
  config_ = test_config(16);
  path_room = 4;
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4, in(50ms));
  plane->complete_all(OpKind::kDiskGet);
  const auto other = test_keys(4, 5000);
  ASSERT_TRUE(cache->save(RequestId(2), other, 0, device(4, 50)));
  ASSERT_TRUE(cache->commit(RequestId(2), 16));
  fill_ring();
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
  clock.advance(50ms);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kTimeout);
  EXPECT_EQ(events[0].blocks, 0u);
  plane->complete_all(OpKind::kStoreRemove);
  settle();
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
  // Nor with another load of the same request.
  start_load(1, {keys[0]}, 1);
  EXPECT_EQ(settle().size(), 1u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 1u);
}

TEST_F(CachePromoteLimits, ALoadGoesOnWhenTheRingHasRoomAgain) {
  config_ = test_config(16);
  path_room = 4;
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  plane->complete_all(OpKind::kDiskGet);
  fill_ring();
  EXPECT_TRUE(poll().empty());
  EXPECT_FALSE(cache->settled());
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 4u);
}

TEST_F(CachePromoteLimits, ABlockThatIsLostBetweenDiskAndDeviceIsNotReadFromItsOldSlot) {
  config_ = test_config(8);
  path_room = 4;
  const auto keys = test_keys(4);
  put_on_disk(keys);
  start_load(1, keys, 4);
  plane->complete_all(OpKind::kDiskGet);
  fill_ring();
  EXPECT_TRUE(poll().empty());
  plane->memory_epochs = {1};
  poll();
  ASSERT_EQ(count_on(Tier::kHost), 0u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 0u);
  EXPECT_EQ(events[0].code, Code::kUnavailable);
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  settle();
  EXPECT_EQ(ready(keys), 4u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromoteLimits, ALoadLargerThanTheHostTierIsAShorterHitWithTheReason) {
  config_ = test_config(4);
  const auto keys = test_keys(6);
  put_on_disk(keys);
  start_load(1, keys, 6);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 4u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kNoSpace);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(first_why(1), (WhySpan{4, 2, WhyReason::kLoadFailed, Code::kNoSpace}));
}

TEST_F(CachePromoteLimits, ALoadWithoutAnyRoomInTheHostTierIsNoLoadAndSaysWhy) {
  config_ = test_config(4);
  const auto keys = test_keys(3);
  put_on_disk(keys);
  const auto others = test_keys(4, 5000);
  ASSERT_TRUE(cache->save(RequestId(1), others, 0, device(4)));
  ASSERT_TRUE(cache->commit(RequestId(1), 16));
  poll();
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(3, 50), kNoDeadline), 0u);
  EXPECT_EQ(first_why(2), (WhySpan{0, 3, WhyReason::kNoHostSpace, Code::kNoSpace}));
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 0u);
  settle();
  start_load(2, keys, 3, kNoDeadline, 50);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 3u);
}

TEST_F(CachePromoteLimits, AFullJobTableIsAShorterHitWithTheReason) {
  config_ = test_config(32);
  config_.jobs_in_flight_max = 4;
  config_.job_blocks_max = 1;
  const auto keys = test_keys(8);
  put_on_disk(keys);
  const auto started = cache->load(RequestId(1), keys, 0, device(8), kNoDeadline);
  ASSERT_TRUE(started);
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 4u);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(cache->check(false), "");
}

TEST_F(CachePromoteLimits, APlaneWithoutRoomIsNoLoadAndLeavesNothingBehind) {
  config_ = test_config(32);
  path_room = 2;
  const auto keys = test_keys(4);
  put_on_disk(keys);
  fill_ring();
  ASSERT_EQ(cache->load(RequestId(1), keys, 0, device(4), kNoDeadline), 0u);
  EXPECT_EQ(first_why(1).reason, WhyReason::kLoadFailed);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  plane->complete_all(OpKind::kStoreRemove);
  poll();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePromoteLimits, APlaneThatClosesFailsTheLoadAtOnce) {
  config_ = test_config(32);
  const auto keys = test_keys(4);
  put_on_disk(keys, 2);
  start_load(1, keys, 4);
  ASSERT_TRUE(plane->close(kNoDeadline));
  plane->complete_all(OpKind::kLoad);
  plane->complete_all(OpKind::kDiskGet);
  poll();
  clock.advance(1s);
  ASSERT_TRUE(cache->abort(RequestId(1)));
  poll();
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
