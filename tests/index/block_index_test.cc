// SPDX-License-Identifier: Apache-2.0
#include "index/block_index.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "index/index_test_support.h"

namespace tiercel {
namespace {

TEST(BlockIndex, FindsWhatWasInsertedAndNothingElse) {
  BlockIndex index(index_options(16));
  const NodeId a = index.insert(numbered_key(1), kGroup0, kNoNode);
  const NodeId b = index.insert(numbered_key(2), kGroup0, a);
  EXPECT_EQ(index.find(numbered_key(1), kGroup0), a);
  EXPECT_EQ(index.find(numbered_key(2), kGroup0), b);
  EXPECT_EQ(index.find(numbered_key(3), kGroup0), kNoNode);
  EXPECT_EQ(index.key(b), numbered_key(2));
  EXPECT_EQ(index.parent(b), a);
  EXPECT_EQ(index.parent(a), kNoNode);
  EXPECT_EQ(index.child_count(a), 1u);
  EXPECT_EQ(index.check(), "");
}

TEST(BlockIndex, TheSameKeyInTwoGroupsIsTwoBlocks) {
  BlockIndexOptions options = index_options(16);
  options.group_count = 2;
  BlockIndex index(options);
  const NodeId a = index.insert(numbered_key(1), GroupId(0), kNoNode);
  EXPECT_EQ(index.find(numbered_key(1), GroupId(1)), kNoNode);
  const NodeId b = index.insert(numbered_key(1), GroupId(1), kNoNode);
  EXPECT_NE(a, b);
  EXPECT_EQ(index.find(numbered_key(1), GroupId(0)), a);
  EXPECT_EQ(index.find(numbered_key(1), GroupId(1)), b);
  EXPECT_EQ(index.find(numbered_key(1), GroupId(7)), kNoNode);
  EXPECT_EQ(index.group(b), GroupId(1));
}

TEST(BlockIndex, TakesExactlyItsCapacityAndThenRefuses) {
  for (const uint32_t capacity : {1u, 2u, 7u, 11u, 12u, 13u, 1000u}) {
    BlockIndex index(index_options(capacity));
    for (uint32_t i = 0; i < capacity; ++i) {
      ASSERT_NE(index.insert(numbered_key(i), kGroup0, kNoNode), kNoNode) << i << "/" << capacity;
    }
    EXPECT_EQ(index.insert(numbered_key(capacity), kGroup0, kNoNode), kNoNode);
    EXPECT_EQ(index.find(numbered_key(capacity), kGroup0), kNoNode);
    EXPECT_EQ(index.check(), "");
    EXPECT_EQ(index.release_if_unused(index.find(numbered_key(0), kGroup0)), 1u);
    EXPECT_NE(index.insert(numbered_key(capacity), kGroup0, kNoNode), kNoNode);
    EXPECT_EQ(index.node_count(), capacity);
    EXPECT_EQ(index.check(), "");
  }
}

TEST(BlockIndex, APlaceIsSeenFromSetToClear) {
  BlockIndex index(index_options(4, kHostBit | kDiskBit));
  const NodeId node = index.insert(numbered_key(1), kGroup0, kNoNode);
  EXPECT_EQ(index.tiers(node), 0);
  index.set_place(node, Tier::kDisk, SlotId(9));
  index.set_place(node, Tier::kHost, SlotId(5));
  EXPECT_EQ(index.tiers(node), kHostBit | kDiskBit);
  EXPECT_EQ(index.slot(node, Tier::kHost), SlotId(5));
  EXPECT_EQ(index.slot(node, Tier::kDisk), SlotId(9));
  EXPECT_EQ(index.resident_count(Tier::kHost), 1u);
  EXPECT_EQ(index.clear_place(node, Tier::kHost), SlotId(5));
  EXPECT_FALSE(index.is_in(node, Tier::kHost));
  EXPECT_TRUE(index.is_in(node, Tier::kDisk));
  EXPECT_EQ(index.resident_count(Tier::kHost), 0u);
  EXPECT_EQ(index.check(), "");
}

TEST(BlockIndex, ReleaseCascadesUpAVeryLongChainWithoutRecursion) {
  constexpr uint32_t kLength = 300'000;
  BlockIndex index(index_options(kLength));
  Random random(1);
  NodeId parent = kNoNode;
  for (uint32_t i = 0; i < kLength; ++i) parent = index.insert(random_key(random), kGroup0, parent);
  EXPECT_EQ(index.release_if_unused(parent), kLength);
  EXPECT_EQ(index.node_count(), 0u);
  EXPECT_EQ(index.check(), "");
}

TEST(BlockIndex, ReleaseStopsAtAPlaceAChildOrAHold) {
  BlockIndex index(index_options(16));
  const NodeId a = index.insert(numbered_key(1), kGroup0, kNoNode);
  const NodeId b = index.insert(numbered_key(2), kGroup0, a);
  const NodeId c = index.insert(numbered_key(3), kGroup0, b);
  const NodeId d = index.insert(numbered_key(4), kGroup0, b);
  EXPECT_EQ(index.release_if_unused(b), 0u) << "has children";
  index.hold(c);
  EXPECT_EQ(index.release_if_unused(c), 0u) << "is held";
  index.set_place(a, Tier::kHost, SlotId(0));
  EXPECT_EQ(index.release_if_unused(d), 1u);
  EXPECT_TRUE(index.unhold(c));
  EXPECT_EQ(index.release_if_unused(c), 2u) << "c and b; a has a place";
  EXPECT_TRUE(index.is_live(a));
  EXPECT_EQ(index.check(), "");
}

TEST(BlockIndex, F16SecondUnholdIsRefusedCountedAndLeavesTheOtherHoldAlone) {
  BlockIndex index(index_options(4));
  const NodeId node = index.insert(numbered_key(1), kGroup0, kNoNode);
  index.set_place(node, Tier::kHost, SlotId(0));
  index.hold(node);  // request A
  index.hold(node);  // reader B
  EXPECT_TRUE(index.unhold(node));
  EXPECT_FALSE(index.evictable(node, Tier::kHost)) << "B still protects it";
  EXPECT_TRUE(index.unhold(node));
  EXPECT_TRUE(index.evictable(node, Tier::kHost));
  EXPECT_EQ(index.unbalanced_unholds(), 0u);
  EXPECT_FALSE(index.unhold(node));
  EXPECT_FALSE(index.unhold(node));
  EXPECT_FALSE(index.unhold(NodeId{3})) << "a node that never was";
  EXPECT_FALSE(index.unhold(kNoNode));
  EXPECT_EQ(index.unbalanced_unholds(), 4u);
  EXPECT_EQ(index.hold_count(node), 0u);
  index.hold(node);
  EXPECT_FALSE(index.evictable(node, Tier::kHost)) << "earlier mistakes use up no later hold";
}

TEST(BlockIndex, ManyMoreHoldsThanRequestsCanBeAliveAreCounted) {
  BlockIndex index(index_options(4));
  const NodeId node = index.insert(numbered_key(1), kGroup0, kNoNode);
  for (uint32_t i = 0; i < 200'000; ++i) index.hold(node);
  EXPECT_EQ(index.hold_count(node), 200'000u);
  EXPECT_EQ(index.total_holds(), 200'000u);
}

TEST(BlockIndexDeathTest, InsertingAKeyTwiceIsAProgrammingError) {
  BlockIndex index(index_options(4));
  index.insert(numbered_key(1), kGroup0, kNoNode);
  EXPECT_DEATH(index.insert(numbered_key(1), kGroup0, kNoNode), "in the index already");
}

TEST(BlockIndex, APlaceWithDescendantsMayGoOnlyIfAnotherTierHasTheBlock) {
  BlockIndex index(index_options(8, kHostBit | kDiskBit));
  const NodeId a = index.insert(numbered_key(1), kGroup0, kNoNode);
  const NodeId b = index.insert(numbered_key(2), kGroup0, a);
  index.set_place(a, Tier::kHost, SlotId(0));
  index.set_place(b, Tier::kDisk, SlotId(0));
  EXPECT_FALSE(index.evictable(a, Tier::kHost)) << "its child is on disk";
  EXPECT_TRUE(index.evictable(b, Tier::kDisk));
  index.set_place(a, Tier::kDisk, SlotId(1));
  EXPECT_TRUE(index.evictable(a, Tier::kHost));
  EXPECT_TRUE(index.evictable(a, Tier::kDisk));
  index.hold(a);
  EXPECT_FALSE(index.evictable(a, Tier::kHost));
}

TEST(BlockIndex, BlocksOfWindowGroupsMayGoBeforeTheirDescendants) {
  BlockIndexOptions options = index_options(8);
  options.group_count = 2;
  options.window_group_mask = 2;
  BlockIndex index(options);
  for (const uint8_t group : {uint8_t{0}, uint8_t{1}}) {
    const NodeId a = index.insert(numbered_key(1), GroupId(group), kNoNode);
    index.insert(numbered_key(2), GroupId(group), a);
    index.set_place(a, Tier::kHost, SlotId(group));
    EXPECT_EQ(index.evictable(a, Tier::kHost), group == 1);
  }
}

// A tier that is small beside another costs four bytes a node and not sixteen.
TEST(BlockIndex, PlacesOfASmallTierTakeTheLessOfTwoForms) {
  constexpr uint32_t kNodes = 1000;
  BlockIndexOptions options = index_options(kNodes, kHostBit | kDiskBit);
  EXPECT_EQ(BlockIndex(options).memory_use().place_bytes, uint64_t{kNodes} * (16 + 16));
  options.place_count_max[static_cast<size_t>(Tier::kHost)] = 10;
  options.place_count_max[static_cast<size_t>(Tier::kDisk)] = 990;
  EXPECT_EQ(BlockIndex(options).memory_use().place_bytes, uint64_t{kNodes} * (4 + 16) + 10 * 16);
}

TEST(BlockIndexDeathTest, ATierMayNotHaveMorePlacesThanItSaid) {
  BlockIndexOptions options = index_options(8, kHostBit | kDiskBit);
  options.place_count_max[static_cast<size_t>(Tier::kHost)] = 1;
  BlockIndex index(options);
  const NodeId first = index.insert(numbered_key(1), kGroup0, kNoNode);
  const NodeId second = index.insert(numbered_key(2), kGroup0, kNoNode);
  index.set_place(first, Tier::kHost, SlotId(0));
  EXPECT_DEATH(index.set_place(second, Tier::kHost, SlotId(1)), "more blocks than it said");
  index.clear_place(first, Tier::kHost);
  index.set_place(second, Tier::kHost, SlotId(1));
  EXPECT_EQ(index.slot(second, Tier::kHost), SlotId(1));
}

TEST(BlockIndex, HitsSaturate) {
  BlockIndex index(index_options(2));
  const NodeId node = index.insert(numbered_key(1), kGroup0, kNoNode);
  for (int i = 0; i < 1000; ++i) index.count_hit(node);
  EXPECT_EQ(index.hit_count(node), UINT8_MAX);
}

TEST(BlockIndex, ANewEpochHidesEverythingAtOnceAndTheSweepMeetsEachStaleNodeOnce) {
  BlockIndex index(index_options(64));
  for (uint32_t i = 0; i < 20; ++i) {
    index.set_place(index.insert(numbered_key(i), kGroup0, kNoNode), Tier::kHost, SlotId(i));
  }
  EXPECT_TRUE(index.sweep_done());
  EXPECT_EQ(index.next_stale(100), kNoNode);
  ASSERT_TRUE(index.advance_epoch());
  EXPECT_EQ(index.find(numbered_key(3), kGroup0), kNoNode);
  EXPECT_EQ(index.stale_count(), 20u);
  EXPECT_FALSE(index.sweep_done());
  EXPECT_FALSE(index.advance_epoch()) << "not while stale nodes are left";
  // Equal keys of both epochs live side by side.
  const NodeId fresh = index.insert(numbered_key(3), kGroup0, kNoNode);
  EXPECT_EQ(index.find(numbered_key(3), kGroup0), fresh);
  EXPECT_EQ(index.check(), "");
  uint32_t swept = 0;
  while (!index.sweep_done()) {
    const NodeId node = index.next_stale(3);
    if (node == kNoNode) continue;
    EXPECT_FALSE(index.is_current(node));
    index.clear_place(node, Tier::kHost);
    swept += index.release_if_unused(node);
    ASSERT_EQ(index.check(), "");
  }
  EXPECT_EQ(swept, 20u);
  EXPECT_EQ(index.node_count(), 1u);
  EXPECT_EQ(index.find(numbered_key(3), kGroup0), fresh);
  EXPECT_TRUE(index.advance_epoch());
}

TEST(BlockIndex, AStaleNodeThatIsHeldKeepsTheEpochOpenAndIsMetInALaterPass) {
  BlockIndex index(index_options(8));
  const NodeId held = index.insert(numbered_key(1), kGroup0, kNoNode);
  index.set_place(held, Tier::kHost, SlotId(0));
  index.hold(held);
  ASSERT_TRUE(index.advance_epoch());
  EXPECT_EQ(index.next_stale(8), held);
  EXPECT_TRUE(index.sweep_done());
  EXPECT_EQ(index.stale_count(), 1u);
  EXPECT_FALSE(index.advance_epoch());
  EXPECT_TRUE(index.unhold(held));
  EXPECT_EQ(index.next_stale(8), held) << "another pass";
  index.clear_place(held, Tier::kHost);
  EXPECT_EQ(index.release_if_unused(held), 1u);
  EXPECT_TRUE(index.advance_epoch());
}

TEST(BlockIndex, EpochsMayGoRoundMoreOftenThanTheirNumberHasValues) {
  BlockIndex index(index_options(8));
  for (uint32_t i = 0; i < 600; ++i) {
    const NodeId node = index.insert(numbered_key(1), kGroup0, kNoNode);
    ASSERT_TRUE(index.advance_epoch());
    ASSERT_EQ(index.find(numbered_key(1), kGroup0), kNoNode) << i;
    ASSERT_EQ(index.next_stale(8), node);
    ASSERT_EQ(index.release_if_unused(node), 1u);
  }
  EXPECT_EQ(index.check(), "");
}

TEST(BlockIndex, F05KeysThatAreEqualInTheHashedBytesAreNeverTakenForEachOther) {
  constexpr uint32_t kCount = 400;
  BlockIndex index(index_options(kCount));
  Random random(5);
  const BlockKey pattern = random_key(random);
  const auto colliding_key = [&](uint32_t i) {
    BlockKey key = pattern;  // differs in the last two bytes only
    key.bytes[30] = static_cast<std::byte>(i & 255);
    key.bytes[31] = static_cast<std::byte>(i >> 8);
    return key;
  };
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(index.find(colliding_key(i), kGroup0), kNoNode);
    nodes.push_back(index.insert(colliding_key(i), kGroup0, kNoNode));
  }
  ASSERT_EQ(index.check(), "");
  std::vector<BlockKey> keys;
  for (uint32_t i = 0; i < 2 * kCount; ++i) keys.push_back(colliding_key(i));
  std::vector<NodeId> found(keys.size());
  index.find_all(keys, kGroup0, kHostBit, true, found);
  for (uint32_t i = 0; i < 2 * kCount; ++i) {
    EXPECT_EQ(found[i], i < kCount ? nodes[i] : kNoNode) << i;
    EXPECT_EQ(index.find(keys[i], kGroup0), found[i]) << i;
  }
  for (uint32_t i = 0; i < kCount; i += 2) EXPECT_EQ(index.release_if_unused(nodes[i]), 1u);
  ASSERT_EQ(index.check(), "");
  for (uint32_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(index.find(colliding_key(i), kGroup0), i % 2 == 0 ? kNoNode : nodes[i]);
  }
}

TEST(BlockIndex, FindAllEqualsFindOnEveryLengthAndReportsTheLeadingRun) {
  BlockIndex index(index_options(2000, kHostBit | kDiskBit));
  Random random(3);
  std::vector<BlockKey> pool;
  for (uint32_t i = 0; i < 4000; ++i) {
    pool.push_back(random_key(random));
    if (i % 2 != 0) continue;
    const NodeId node = index.insert(pool.back(), kGroup0, kNoNode);
    if (i % 6 != 0) index.set_place(node, i % 4 == 0 ? Tier::kHost : Tier::kDisk, SlotId(i));
  }
  for (uint32_t round = 0; round < 400; ++round) {
    // Mostly hits, so that runs get long.
    const size_t length = random.below(round < 100 ? 70 : 400);
    std::vector<BlockKey> keys;
    for (size_t i = 0; i < length; ++i) {
      const uint64_t pick = random.below(pool.size());
      keys.push_back(pool[random.chance(0.98) ? pick / 12 * 12 + 2 + 2 * random.below(2) : pick]);
    }
    const auto tiers = static_cast<uint8_t>(random.between(0, 7));
    const bool whole = random.chance(0.5);
    std::vector<NodeId> out(length + 1, 12345);
    const uint32_t run = index.find_all(keys, kGroup0, tiers, whole, out);
    uint32_t expected = 0;
    while (expected < length) {
      const NodeId node = index.find(keys[expected], kGroup0);
      if (node == kNoNode || (index.tiers(node) & tiers) == 0) break;
      ++expected;
    }
    ASSERT_EQ(run, expected);
    for (size_t i = 0; i < (whole ? length : run); ++i) {
      ASSERT_EQ(out[i], index.find(keys[i], kGroup0));
    }
    EXPECT_EQ(out[length], 12345u) << "nothing is written behind the keys";
  }
}

TEST(BlockIndex, StaysWithinEightyBytesPerBlockAndSixteenMoreForEachTier) {
  for (const uint32_t count : {10'000u, 1'000'000u}) {
    const uint64_t one = BlockIndex(index_options(count)).memory_use().total_bytes();
    const uint64_t two =
        BlockIndex(index_options(count, kHostBit | kDiskBit)).memory_use().total_bytes();
    EXPECT_LE(one, uint64_t{80} * count);
    EXPECT_EQ(two - one, uint64_t{16} * count);
  }
}

TEST(BlockIndex, CreateRefusesOptionsOutOfRangeAndNamesThem) {
  const auto message = [](BlockIndexOptions options) {
    auto index = BlockIndex::create(options);
    return index ? std::string() : index.error().to_string();
  };
  BlockIndexOptions options = index_options(0);
  EXPECT_NE(message(options).find("node_count_max is 0"), std::string::npos);
  options = index_options((1u << 31) + 1);
  EXPECT_NE(message(options).find("node_count_max is 2147483649"), std::string::npos);
  for (const uint8_t mask : {uint8_t{0}, uint8_t{8}}) {
    EXPECT_NE(message(index_options(4, mask)).find("tier_mask is"), std::string::npos);
  }
  options = index_options(4);
  options.group_count = 9;
  EXPECT_NE(message(options).find("group_count is 9"), std::string::npos);
  options.group_count = 2;
  options.window_group_mask = 4;
  EXPECT_NE(message(options).find("window_group_mask is 4"), std::string::npos);
  EXPECT_EQ(message(index_options(4)), "");
}

}  // namespace
}  // namespace tiercel
