// SPDX-License-Identifier: Apache-2.0
//
// Faults that the simulation has found, each in the fewest steps that show it.
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_fixture.h"
#include "cache/request_table.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using CacheEnds = CacheFixture;

TEST_F(CacheEnds, NoEventThatWaitedFollowsAnAbort) {
  open(test_config(16));
  const auto keys = test_keys(2);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(2), in(seconds(1))).value_or(0), 2u);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(cache->poll({}), 0u);  // the event waits
  ASSERT_TRUE(cache->abort(RequestId(2)));
  EXPECT_EQ(poll().size(), 0u);
}

TEST_F(CacheEnds, ReleaseOfAnEarlierLoadIsNotTakenForThatOfTheEnd) {
  open(test_config(16));
  const auto keys = test_keys(3);
  store(1, {keys[0], keys[1]});
  const RequestId id(2);
  ASSERT_EQ(cache->load(id, keys, 0, device(2), in(milliseconds(5))).value_or(0), 2u);
  clock.advance(milliseconds(6));
  const auto late = poll();
  ASSERT_EQ(late.size(), 1u);
  ASSERT_TRUE(late[0].device_busy);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(cache->poll({}), 0u);  // kDeviceReleased of the load waits
  ASSERT_TRUE(cache->save(id, keys, 2, device(1, 7)));
  ASSERT_TRUE(cache->commit(id, 12));
  ASSERT_EQ(plane->open_count(OpKind::kSave), 1u);
  const auto farewell = cache->finish(id);
  ASSERT_TRUE(farewell);
  ASSERT_TRUE(farewell->device_busy);
  EXPECT_EQ(poll().size(), 0u);  // the save still reads the device
  plane->complete_all(OpKind::kSave);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kDeviceReleased);
  EXPECT_EQ(events[0].generation, farewell->generation);
}

TEST_F(CacheEnds, TwoLivesOfOneIdHaveDifferentGenerations) {
  open(test_config(16));
  const RequestId id(1);
  std::vector<uint32_t> generations;
  for (uint32_t life = 0; life < 3; ++life) {
    ASSERT_TRUE(cache->save(id, test_keys(1, life * 100), 0, device(1, life)));
    ASSERT_TRUE(cache->commit(id, 4));
    const auto farewell = cache->finish(id);
    ASSERT_TRUE(farewell);
    EXPECT_TRUE(farewell->device_busy);  // so the old life goes on beside the new one
    for (const uint32_t other : generations) EXPECT_NE(farewell->generation, other);
    generations.push_back(farewell->generation);
  }
}

using CachePrefetches = CacheFixture;

TEST_F(CachePrefetches, NoMoreThanWhatIsAskedFor) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(4);
  const std::vector<BlockKey> head(keys.begin(), keys.begin() + 2);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 2, device(2)));  // all keys are known from here on
  ASSERT_TRUE(cache->prefetch(RequestId(1), head, 0, in(seconds(1))).value_or(false));
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 2u);
  const auto events = settle();
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 2u);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 2u);
}

using CacheSaves = CacheFixture;

TEST_F(CacheSaves, BlocksOfFewGroupsDoNotOutrunTheJobs) {
  CacheConfig config = test_config(16);
  config.spec.groups.resize(2);
  config.payload_bytes = {{64}, {64}};
  config.jobs_in_flight_max = 4;
  config.job_blocks_max = 2;
  open(config);
  const auto keys = test_keys(8);
  std::vector<DeviceBlockId> blocks = device(8);
  std::fill(blocks.begin() + 8, blocks.end(), kNoDeviceBlock);  // nothing of the second group
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, blocks));
  ASSERT_TRUE(cache->commit(RequestId(1), 32));
  EXPECT_EQ(plane->open_count(OpKind::kSave), 4u);
  plane->complete_all(OpKind::kSave);
  poll();
  plane->complete_all(OpKind::kSave);
  poll();
  EXPECT_EQ(cache->stats().save_blocks, 8u);
}

TEST_F(CacheSaves, AbortedRequestsLeaveTheQueue) {
  CacheConfig config = test_config(16);
  config.jobs_in_flight_max = 4;
  config.job_blocks_max = 1;
  open(config);
  ASSERT_TRUE(cache->save(RequestId(1), test_keys(6), 0, device(6)));
  ASSERT_TRUE(cache->commit(RequestId(1), 24));  // waits for room and keeps all others waiting
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(cache->save(RequestId(2), test_keys(1, 100 + i), 0, device(1, 9)));
    ASSERT_TRUE(cache->commit(RequestId(2), 4));
    EXPECT_EQ(cache->stats().queued_saves, 2u);
    ASSERT_TRUE(cache->abort(RequestId(2)));
  }
  EXPECT_EQ(cache->stats().queued_saves, 1u);
}

}  // namespace
}  // namespace tiercel
