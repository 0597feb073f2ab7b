// SPDX-License-Identifier: Apache-2.0
//
// What a restart finds on disk: the contents come from the folder (tests/tier/disk), here it is
// what becomes of them.
#include "cache/disk_cache_fixture.h"

namespace tiercel {
namespace {

class CacheDiskRecovery : public DiskCacheFixture {
 protected:
  void reorder(DiskContents& contents, const std::vector<size_t>& order) {
    std::vector<DiskBlock> blocks;
    for (const size_t index : order) {
      blocks.push_back(contents.blocks[index]);
      blocks.back().sequence = blocks.size();
    }
    contents.blocks = std::move(blocks);
  }
  void append(DiskContents& contents, const DiskContents& more) {
    contents.blocks.insert(contents.blocks.end(), more.blocks.begin(), more.blocks.end());
  }
  // Blocks that push others out of the disk tier, one by one.
  void put_new_blocks(uint32_t count, uint32_t first_token) {
    for (uint32_t i = 0; i < count; ++i)
      store(1000 + first_token + i, test_keys(1, first_token + i * 4));
  }
};

TEST_F(CacheDiskRecovery, WhatWasWrittenInPrefixOrderIsFoundAgainInItsSlots) {
  const auto keys = test_keys(6);
  open_disk(test_config(8, 2), 32, contents_of(keys, 3));
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 6u);
  EXPECT_EQ(cache->stats().disk_unreachable_blocks, 0u);
  EXPECT_EQ(cache->stats().disk_slots_used, 6u);
  EXPECT_EQ(places(keys), std::vector(6, BlockPlace::kDisk));
  EXPECT_EQ(cache->check(true), "");
  start_load(1, keys, 6);
  const auto gets = ops(OpKind::kDiskGet);
  ASSERT_EQ(gets.size(), 12u / 2);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(gets[i].key, keys[i]);
    EXPECT_EQ(gets[i].disk_slot, SlotId(3 + i));
  }
  settle();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, WhatWasWrittenInAnyOrderIsFoundAgain) {
  const auto keys = test_keys(8);
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    DiskContents contents = contents_of(keys);
    std::vector<size_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    reorder(contents, order);
    open_disk(test_config(8), 32, contents);
    EXPECT_EQ(cache->stats().disk_recovered_blocks, 8u) << round;
    EXPECT_EQ(cache->stats().disk_unreachable_blocks, 0u) << round;
    EXPECT_EQ(ready(keys), 8u) << round;
    ASSERT_EQ(cache->check(true), "") << round;
  }
}

TEST_F(CacheDiskRecovery, BranchesBehindABlockThatWasWrittenLastAreFoundAgain) {
  // Two paths that share their first two blocks, all children before their parents.
  const auto left = test_keys(5);
  Sequence sequence(make_root(*make_namespace(test_spec()), Scope{}), 4);
  std::vector<TokenId> tokens(20);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (size_t i = 8; i < 20; ++i) tokens[i] += 100;
  sequence.append(tokens);
  const std::vector<BlockKey> right(sequence.keys().begin(), sequence.keys().end());
  ASSERT_EQ(left[1], right[1]);
  ASSERT_NE(left[2], right[2]);
  DiskContents contents = contents_of(left);
  DiskContents more = contents_of(right, 10);
  more.blocks.erase(more.blocks.begin(), more.blocks.begin() + 2);
  append(contents, more);
  reorder(contents, {4, 7, 3, 6, 2, 5, 1, 0});
  open_disk(test_config(8), 32, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 8u);
  EXPECT_EQ(ready(left), 5u);
  EXPECT_EQ(ready(right), 5u);
}

TEST_F(CacheDiskRecovery, WhatLiesBehindAGapIsDroppedAndCounted) {
  const auto keys = test_keys(6);
  DiskContents contents = contents_of(keys);
  contents.blocks.erase(contents.blocks.begin() + 2);
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 2u);
  EXPECT_EQ(cache->stats().disk_unreachable_blocks, 3u);
  EXPECT_EQ(cache->stats().disk_slots_used, 2u) << "their slots are free";
  EXPECT_EQ(ready(keys), 2u);
  EXPECT_EQ(cache->stats().index_nodes, 2u);
  store(1, test_keys(6, 1000));
  EXPECT_EQ(count_on(Tier::kDisk), 8u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, ARingOfParentsIsUnreachable) {
  const auto keys = test_keys(3);
  DiskContents contents = contents_of(keys);
  contents.blocks[0].has_parent = true;
  contents.blocks[0].parent = keys[2];
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 0u);
  EXPECT_EQ(cache->stats().disk_unreachable_blocks, 3u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, ABlockThatIsItsOwnParentIsUnreachable) {
  DiskContents contents = contents_of(test_keys(1));
  contents.blocks[0].has_parent = true;
  contents.blocks[0].parent = contents.blocks[0].key;
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_unreachable_blocks, 1u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, BlocksOfAnotherNamespaceStayUntilTheirRoomIsNeeded) {
  // Their keys are of another model; nothing tells them apart but that nobody asks for them.
  KvSpec other = test_spec();
  other.model_id = "another";
  Sequence sequence(make_root(*make_namespace(other), Scope{}), 4);
  sequence.append(std::vector<TokenId>(16, 1));
  const std::vector<BlockKey> foreign(sequence.keys().begin(), sequence.keys().end());
  const auto keys = test_keys(4);
  DiskContents contents = contents_of(foreign);
  append(contents, contents_of(keys, 4));
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 8u);
  EXPECT_EQ(ready(keys), 4u);
  EXPECT_EQ(ready(foreign), 4u);
  put_new_blocks(3, 5000);
  EXPECT_EQ(ready(foreign), 1u) << "the older ones go first, tail first";
  EXPECT_EQ(ready(keys), 4u);
}

TEST_F(CacheDiskRecovery, TheOldestGoesFirstAndTailFirst) {
  for (const char* policy : {"lru", "s3fifo"}) {
    const auto old_path = test_keys(3);
    const auto new_path = test_keys(3, 1000);
    DiskContents contents = contents_of(old_path);
    append(contents, contents_of(new_path, 3));
    CacheConfig config = test_config(8);
    config.eviction_policy = policy;
    open_disk(config, 8, contents);
    // Six of eight slots are used.
    put_new_blocks(2, 5000);
    EXPECT_EQ(ready(old_path), 3u) << policy;
    for (uint32_t left = 3; left-- > 0;) {
      put_new_blocks(1, 6000 + left * 4);
      EXPECT_EQ(ready(old_path), left) << policy;
      EXPECT_EQ(ready(new_path), 3u) << policy;
    }
  }
}

TEST_F(CacheDiskRecovery, TheSameBlockTwiceIsTakenOnce) {
  const auto keys = test_keys(2);
  DiskContents contents = contents_of(keys);
  append(contents, contents_of(keys, 4));
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 2u);
  EXPECT_EQ(cache->stats().disk_slots_used, 2u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, ASlotIsTakenOnceAndWhatCannotHaveItIsUnreachable) {
  const auto keys = test_keys(3);
  const auto others = test_keys(3, 1000);
  DiskContents contents = contents_of(keys);
  append(contents, contents_of(others));  // in the same slots
  DiskContents beyond = contents_of(test_keys(2, 2000), 1u << 20);
  append(contents, beyond);
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 3u);
  EXPECT_EQ(cache->stats().disk_slots_used, 3u);
  EXPECT_EQ(ready(keys), 3u);
  EXPECT_EQ(ready(others), 0u);
  EXPECT_EQ(cache->check(true), "");
  EXPECT_EQ(cache->stats().index_nodes, 3u);
}

TEST_F(CacheDiskRecovery, WhatWaitedForABlockWithoutASlotIsCountedToo) {
  const auto keys = test_keys(3);
  const auto others = test_keys(3, 1000);
  DiskContents contents = contents_of(keys);
  DiskContents more = contents_of(others, 3);
  more.blocks[0].slot = SlotId(0);  // taken
  append(contents, more);
  reorder(contents, {0, 1, 2, 5, 4, 3});
  open_disk(test_config(8), 8, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 3u);
  EXPECT_EQ(cache->stats().disk_unreachable_blocks, 2u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, BlocksOfAWindowGroupAreOfUseWithoutThoseBeforeThem) {
  CacheConfig config = test_config(8);
  config.spec = test_spec(2);
  config.spec.groups[1].attention = AttentionKind::kWindow;
  config.spec.groups[1].window_tokens = 8;
  config.payload_bytes = {{64}, {64}};
  const auto geometry = SlotGeometry::for_blocks(config.payload_bytes, 16, 2).value();
  const auto keys = test_keys(6);
  DiskContents contents;
  const DiskContents path = contents_of(keys);
  for (uint32_t i = 4; i < 6; ++i) {  // the later one first
    DiskBlock block = path.blocks[9 - i];
    block.group = GroupId(1);
    block.slot = geometry.slot_at(geometry.extent_count() - 1, i);
    contents.blocks.push_back(block);
  }
  append(contents, path);
  open_disk(config, 16, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 8u);
  EXPECT_EQ(cache->stats().disk_unreachable_blocks, 0u);
  EXPECT_EQ(ready(keys), 6u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskRecovery, AWholeTierOfOneLongPathIsFoundAgain) {
  CacheConfig config = test_config(8);
  config.request_blocks_max = 4096;
  const auto keys = test_keys(4096);
  DiskContents contents = contents_of(keys);
  std::reverse(contents.blocks.begin(), contents.blocks.end());
  open_disk(config, 4096, contents);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 4096u);
  EXPECT_EQ(ready(keys), 4096u);
  EXPECT_EQ(cache->stats().disk_slots_free, 0u);
  store(1, test_keys(1, 100000));
  EXPECT_EQ(ready(keys), 4095u);
}

TEST_F(CacheDiskRecovery, WhatABlockHasInFrontOfItMayBeComputedAgain) {
  // The first block is missing: the others were dropped, and are put again with it.
  const auto keys = test_keys(3);
  DiskContents contents = contents_of(keys);
  contents.blocks.erase(contents.blocks.begin());
  open_disk(test_config(8), 8, contents);
  store(1, keys);
  EXPECT_EQ(count_on(Tier::kDisk), 3u);
  EXPECT_EQ(ready(keys), 3u);
}

}  // namespace
}  // namespace tiercel
