// SPDX-License-Identifier: Apache-2.0
//
// What every eviction policy must do, run for each policy of the registry.
#include "index/eviction_policy.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "index/index_test_support.h"

namespace tiercel {
namespace {

TEST(MakeEvictionPolicy, RefusesAnUnknownNameWithTheListAndTheNearest) {
  BlockIndex index(index_options(4));
  const auto policy = make_eviction_policy("s3fif", {index, Tier::kHost, 4});
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.code(), Code::kInvalid);
  EXPECT_NE(policy.error().message().find("lru, s3fifo"), std::string::npos);
  EXPECT_NE(policy.error().message().find("did you mean 's3fifo'"), std::string::npos);
}

class PolicyTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  static constexpr uint32_t kCapacity = 60;
  static constexpr uint32_t kScanAll = kCapacity;

  std::unique_ptr<EvictionPolicy> make(BlockIndex& index, Tier tier = Tier::kHost) {
    return make_eviction_policy(GetParam(), {index, tier, kCapacity}).value();
  }
};

TEST_P(PolicyTest, AnEmptyTierHasNoVictim) {
  BlockIndex index(index_options(4));
  EXPECT_EQ(make(index)->victim(kScanAll), kNoNode);
}

TEST_P(PolicyTest, TheBlocksOfOneRequestGoTailFirst) {
  BlockIndex index(index_options(kCapacity));
  const auto policy = make(index);
  std::vector<NodeId> path;
  BlockPosition position;
  position.visit.block_count = 20;
  for (uint32_t i = 0; i < 20; ++i) {
    const NodeId node = index.insert(numbered_key(i), kGroup0, i == 0 ? kNoNode : path.back());
    index.set_place(node, Tier::kHost, SlotId(i));
    position.position = i;
    policy->insert(node, position);
    path.push_back(node);
  }
  for (uint32_t i = 20; i-- > 0;) {
    // A bound of one look: nothing but the tail is in the way.
    ASSERT_EQ(policy->victim(1), path[i]);
    policy->erase(path[i], true);
    index.clear_place(path[i], Tier::kHost);
    index.release_if_unused(path[i]);
  }
  EXPECT_EQ(policy->victim(kScanAll), kNoNode);
}

TEST_P(PolicyTest, BlocksVisitedTogetherStillGoTailFirstWithNothingInTheWay) {
  BlockIndex index(index_options(kCapacity));
  const auto policy = make(index);
  std::vector<NodeId> path;
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < 20; ++i) {
    const NodeId node = index.insert(numbered_key(i), kGroup0, i == 0 ? kNoNode : path.back());
    index.set_place(node, Tier::kHost, SlotId(i));
    policy->insert(node, {});
    path.push_back(node);
    positions.push_back(i);
  }
  for (int visits = 0; visits < 4; ++visits) policy->visit(path, positions, {});
  for (uint32_t i = 20; i-- > 0;) {
    ASSERT_EQ(policy->victim(1), path[i]);
    policy->erase(path[i], true);
    index.clear_place(path[i], Tier::kHost);
    index.release_if_unused(path[i]);
  }
}

TEST_P(PolicyTest, AHeldBlockIsNoVictimAndADemotedOneIsTheNext) {
  BlockIndex index(index_options(kCapacity));
  const auto policy = make(index);
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < 10; ++i) {
    const NodeId node = index.insert(numbered_key(i), kGroup0, kNoNode);
    index.set_place(node, Tier::kHost, SlotId(i));
    policy->insert(node, {});
    nodes.push_back(node);
  }
  policy->demote(nodes[7]);
  EXPECT_EQ(policy->victim(1), nodes[7]);
  index.hold(nodes[7]);
  EXPECT_EQ(policy->victim(kScanAll), nodes[0]);
  index.unhold(nodes[7]);
  EXPECT_EQ(policy->victim(kScanAll), nodes[7]);
  for (const NodeId node : nodes) index.hold(node);
  EXPECT_EQ(policy->victim(kScanAll), kNoNode);
  index.unhold(nodes[4]);
  EXPECT_EQ(policy->victim(kScanAll), nodes[4]);
}

// Random trees, holds, visits, demotions, removals, two tiers: there is a victim exactly if brute
// force finds a block that is evictable, it is evictable, and each block is known to the policy
// exactly once.
TEST_P(PolicyTest, FindsAVictimExactlyIfThereIsOneOverRandomOperations) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    BlockIndexOptions options = index_options(400, kHostBit | kDiskBit);
    options.group_count = 2;
    options.window_group_mask = 2;
    BlockIndex index(options);
    const auto policy = make(index);
    std::vector<NodeId> nodes;  // all nodes of the index
    uint32_t victims = 0;
    uint32_t no_victims = 0;
    const auto evict = [&](NodeId node, bool evicted) {
      policy->erase(node, evicted);
      index.clear_place(node, Tier::kHost);
    };
    const auto forget_dead = [&] {
      std::erase_if(nodes, [&](NodeId node) { return !index.is_live(node); });
    };
    uint64_t next_key = 0;
    for (uint32_t step = 0; step < 4000; ++step) {
      // Now and then everything is held.
      if (step % 200 == 199) {
        for (const NodeId node : nodes) index.hold(node);
      }
      const uint64_t choice = random.below(12);
      if (choice < 5 && nodes.size() < 300 && index.resident_count(Tier::kHost) < kCapacity) {
        const GroupId group(static_cast<uint8_t>(random.chance(0.2)));
        NodeId parent = nodes.empty() ? kNoNode : nodes[random.below(nodes.size())];
        if (parent != kNoNode && index.group(parent) != group) parent = kNoNode;
        // Keys come back, so that ghosts are met.
        const BlockKey key =
            numbered_key(random.chance(0.3) && next_key > 0 ? random.below(next_key) : next_key++);
        if (index.find(key, group) != kNoNode) continue;
        const NodeId node = index.insert(key, group, parent);
        nodes.push_back(node);
        index.set_place(node, Tier::kHost, SlotId(0));
        BlockPosition position;
        position.visit.now = TimePoint(std::chrono::milliseconds(step / 8));
        policy->insert(node, position);
      } else if (choice == 5 && !nodes.empty()) {
        const NodeId node = nodes[random.below(nodes.size())];
        if (!index.is_in(node, Tier::kDisk)) {
          index.set_place(node, Tier::kDisk, SlotId(0));
        } else if (index.evictable(node, Tier::kDisk)) {
          index.clear_place(node, Tier::kDisk);
          index.release_if_unused(node);
        }
      } else if (choice == 6 && !nodes.empty()) {
        std::vector<NodeId> path;
        for (NodeId node = nodes[random.below(nodes.size())]; node != kNoNode;
             node = index.parent(node)) {
          if (index.is_in(node, Tier::kHost)) path.insert(path.begin(), node);
        }
        std::vector<uint32_t> positions;
        for (uint32_t i = 0; i < path.size(); ++i) positions.push_back(i);
        policy->visit(path, positions, {});
      } else if (choice == 7 && !nodes.empty()) {
        const NodeId node = nodes[random.below(nodes.size())];
        const uint64_t what = random.below(4);
        if (what < 2) {
          index.hold(node);
        } else if (what == 2) {
          while (index.hold_count(node) != 0) index.unhold(node);
          index.release_if_unused(node);
        } else if (index.is_in(node, Tier::kHost)) {
          policy->demote(node);
        }
      } else if (choice == 8 && !nodes.empty()) {
        const NodeId node = nodes[random.below(nodes.size())];
        if (index.is_in(node, Tier::kHost) && index.evictable(node, Tier::kHost)) {
          evict(node, false);
          index.release_if_unused(node);
        } else if (!index.is_in(node, Tier::kHost) &&
                   index.resident_count(Tier::kHost) < kCapacity) {
          index.set_place(node, Tier::kHost, SlotId(0));
          policy->insert(node, {});
        }
      } else {
        std::set<NodeId> evictable;
        for (const NodeId node : nodes) {
          if (index.is_in(node, Tier::kHost) && index.evictable(node, Tier::kHost)) {
            evictable.insert(node);
          }
        }
        const NodeId victim = policy->victim(kScanAll);
        ASSERT_EQ(victim == kNoNode, evictable.empty()) << "seed " << seed << " step " << step;
        if (victim == kNoNode) {
          ++no_victims;
          for (const NodeId node : nodes) {
            while (index.hold_count(node) != 0) index.unhold(node);
          }
        } else {
          ASSERT_TRUE(evictable.contains(victim));
          ++victims;
          evict(victim, true);
          index.release_if_unused(victim);
        }
      }
      forget_dead();
    }
    EXPECT_GT(victims, 100u);
    EXPECT_GT(no_victims, 0u);
    // To the last one: each block comes out once.
    for (const NodeId node : nodes) {
      while (index.hold_count(node) != 0) index.unhold(node);
    }
    const uint32_t left = index.resident_count(Tier::kHost);
    uint32_t drained = 0;
    for (NodeId node; (node = policy->victim(kScanAll)) != kNoNode; ++drained) {
      ASSERT_TRUE(index.is_in(node, Tier::kHost));
      evict(node, true);
      index.release_if_unused(node);
    }
    // What stays behind stays for a descendant that is on disk only.
    EXPECT_EQ(drained + index.resident_count(Tier::kHost), left);
    EXPECT_EQ(index.check(), "");
  }
}

TEST_P(PolicyTest, VictimLooksAtNoMoreThanItsBoundAndStillGetsThereInTheEnd) {
  BlockIndex index(index_options(kCapacity));
  const auto policy = make(index);
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < kCapacity; ++i) {
    const NodeId node = index.insert(numbered_key(i), kGroup0, kNoNode);
    index.set_place(node, Tier::kHost, SlotId(i));
    policy->insert(node, {});
    index.hold(node);
    nodes.push_back(node);
  }
  EXPECT_EQ(policy->victim(0), kNoNode);
  EXPECT_EQ(policy->victim(5), kNoNode);
  index.unhold(nodes[kCapacity / 2]);
  EXPECT_EQ(policy->victim(kScanAll), nodes[kCapacity / 2]);
}

INSTANTIATE_TEST_SUITE_P(AllPolicies, PolicyTest, ::testing::ValuesIn(eviction_policy_names()),
                         [](const auto& policy) { return std::string(policy.param); });

}  // namespace
}  // namespace tiercel
