// SPDX-License-Identifier: Apache-2.0
//
// Requests that grow, look before they are admitted, and part from blocks.
#include "engine/prefix_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class PrefixCacheGrowthTest : public PrefixCacheFixture {
 protected:
  // Computes the blocks of `keys`, which stay as cache.
  void compute(uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(prefix->admit(RequestId(id), keys, static_cast<uint32_t>(keys.size())));
    ASSERT_TRUE(prefix->commit(RequestId(id), keys.size() * 4));
    settle_all();
    ASSERT_TRUE(prefix->finish(RequestId(id)));
    settle_all();
  }
};

TEST_F(PrefixCacheGrowthTest, ExtendingKeepsWhatIsThereAndAddsBehind) {
  open_with_device(8);
  const auto keys = test_keys(6);
  const RequestId request(1);
  const auto admission = prefix->admit(request, std::span(keys).first(2), 2);
  ASSERT_TRUE(admission);
  const DeviceBlockId first = admission->block_table.group(0)[0];
  for (uint32_t blocks = 3; blocks <= 6; ++blocks) {
    const auto table = prefix->extend(request, std::span(keys).first(blocks), blocks);
    ASSERT_TRUE(table) << table.error().to_string();
    EXPECT_EQ(table->block_count, blocks);
    EXPECT_EQ(table->group(0)[0], first);
  }
  ASSERT_TRUE(prefix->commit(request, 24));
  EXPECT_EQ(prefix->match(keys).blocks, 6u);
  EXPECT_EQ(prefix->match(keys).unused, 0u);
  settle_all();
  ASSERT_TRUE(prefix->finish(request));
  EXPECT_EQ(prefix->match(keys).unused, 6u);
}

TEST_F(PrefixCacheGrowthTest, WhatThePoolCannotGiveChangesNothing) {
  open_with_device(4);
  const auto keys = test_keys(4);
  ASSERT_TRUE(prefix->admit(RequestId(1), test_keys(2, 1000), 2));
  ASSERT_TRUE(prefix->admit(RequestId(2), std::span(keys).first(1), 1));
  EXPECT_EQ(prefix->available_blocks(), 1u);
  EXPECT_EQ(prefix->extend(RequestId(2), keys, 4).code(), Code::kNoSpace);
  EXPECT_EQ(prefix->extend(RequestId(2), keys, 3).code(), Code::kInvalid) << "4 keys, 3 blocks";
  EXPECT_EQ(prefix->extend(RequestId(2), keys, 5).code(), Code::kInvalid) << "more than the pool";
  EXPECT_EQ(prefix->extend(RequestId(3), keys, 4).code(), Code::kNotFound);
  EXPECT_EQ(prefix->block_table(RequestId(2)).block_count, 1u);
  EXPECT_EQ(prefix->stats().free_blocks, 1u);
  EXPECT_EQ(prefix->check(), "");
}

TEST_F(PrefixCacheGrowthTest, UnusedBlocksMakeRoomAlthoughAWaitingRequestHoldsTheirHostCopy) {
  open_with_device(4);
  const auto keys = test_keys(4);
  compute(1, keys);
  for (const BlockKey& key : keys) cache->index().hold(cache->index().find(key, GroupId(0)));
  EXPECT_TRUE(prefix->admit(RequestId(2), test_keys(4, 1000), 4));
  EXPECT_EQ(prefix->stats().evicted_blocks, 4u);
  EXPECT_EQ(ready(keys), 4u) << "the host tier still has them";
  for (const BlockKey& key : keys) cache->index().unhold(cache->index().find(key, GroupId(0)));
}

TEST_F(PrefixCacheGrowthTest, ARequestPartsFromWhatALateLoadMayStillWriteTo) {
  open_with_device(8);
  const auto keys = test_keys(4);
  compute(1, keys);
  compute(2, test_keys(8, 1000));
  const RequestId request(3);
  ASSERT_TRUE(prefix->admit(request, keys, 5));
  ASSERT_EQ(prefix->load(request, in(10ms)), 4u);
  plane->complete(0);
  clock.advance(10ms);
  CacheEvent events[8];
  ASSERT_EQ(prefix->poll(events), 1u);
  ASSERT_TRUE(events[0].device_busy);
  EXPECT_EQ(prefix->part_from_busy(request), 3u);
  EXPECT_EQ(prefix->part_from_busy(request), 0u) << "once is enough";
  EXPECT_TRUE(prefix->may_compute(request));
  EXPECT_EQ(prefix->block_table(request).block_count, 1u);
  EXPECT_EQ(prefix->available_blocks(), 4u) << "three are with the transfer";
  EXPECT_TRUE(prefix->extend(request, keys, 4));
  EXPECT_TRUE(prefix->commit(request, 16));
  settle_all();
  EXPECT_EQ(prefix->available_blocks(), 4u);
  ASSERT_TRUE(prefix->finish(request));
  settle_all();
  EXPECT_EQ(prefix->available_blocks(), 8u);
}

TEST_F(PrefixCacheGrowthTest, LostDeviceMemoryIsNotFoundAndItsQueuedSavesAreDropped) {
  open_with_device(8);
  const auto keys = test_keys(4);
  compute(1, keys);
  while (plane->submit_capacity() > 0) {  // no room: what follows stays queued
    BlockOp op;
    op.kind = OpKind::kStoreRemove;
    ASSERT_TRUE(plane->submit({&op, 1}));
  }
  const auto others = test_keys(3, 1000);
  ASSERT_TRUE(prefix->admit(RequestId(2), others, 3));
  ASSERT_TRUE(prefix->commit(RequestId(2), 12));
  ASSERT_TRUE(prefix->finish(RequestId(2)));
  EXPECT_EQ(prefix->leaving_blocks(), 3u);
  prefix->device_lost();
  EXPECT_EQ(prefix->match(keys).blocks, 0u);
  EXPECT_EQ(ready(keys), 4u) << "the host tier still has them";
  settle_all();
  EXPECT_EQ(prefix->leaving_blocks(), 0u);
  EXPECT_EQ(ready(others), 0u) << "what is in their device blocks now is not theirs";
  EXPECT_EQ(prefix->available_blocks(), 8u);
}

}  // namespace
}  // namespace tiercel
