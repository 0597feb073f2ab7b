// SPDX-License-Identifier: Apache-2.0
#include "index/policy/s3fifo.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "index/index_test_support.h"

namespace tiercel {
namespace {

constexpr uint32_t kCapacity = 100;
constexpr uint32_t kScanAll = kCapacity;

// A tier of kCapacity blocks without chains.
class S3FifoTest : public ::testing::Test {
 protected:
  NodeId bring(uint64_t key) {
    if (index_.resident_count(Tier::kHost) == kCapacity) evict();
    const NodeId node = index_.insert(numbered_key(key), kGroup0, kNoNode);
    index_.set_place(node, Tier::kHost, SlotId(0));
    policy_.insert(node, {});
    return node;
  }
  void evict() {
    const NodeId victim = policy_.victim(kScanAll);
    ASSERT_NE(victim, kNoNode);
    policy_.erase(victim, true);
    index_.clear_place(victim, Tier::kHost);
    index_.release_if_unused(victim);
  }
  bool has(uint64_t key) const { return index_.find(numbered_key(key), kGroup0) != kNoNode; }
  void visit(uint64_t key) {
    const NodeId node = index_.find(numbered_key(key), kGroup0);
    const uint32_t position = 0;
    policy_.visit({&node, 1}, {&position, 1}, {});
  }
  void request(uint64_t key) { has(key) ? visit(key) : static_cast<void>(bring(key)); }

  BlockIndex index_{index_options(kCapacity)};
  S3FifoPolicy policy_{{index_, Tier::kHost, kCapacity}};
};

TEST_F(S3FifoTest, BlocksVisitedAgainAndAgainOutliveAPassOfNewOnes) {
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 0; key < 50; ++key) request(key);
  }
  for (uint64_t key = 1000; key < 2000; ++key) request(key);
  for (uint64_t key = 0; key < 50; ++key) EXPECT_TRUE(has(key)) << key;
  EXPECT_EQ(policy_.check(), "");
}

TEST_F(S3FifoTest, ABlockThatComesBackAsAGhostGoesToTheMainQueue) {
  for (uint64_t key = 0; key < kCapacity + 5; ++key) request(key);
  ASSERT_FALSE(has(0));
  EXPECT_EQ(policy_.main_count(), 0u);
  request(0);
  EXPECT_EQ(policy_.main_count(), 1u);
  request(5000);
  EXPECT_EQ(policy_.main_count(), 1u) << "a block never seen before is on probation";
}

TEST_F(S3FifoTest, ABlockRemovedForAnotherReasonLeavesNoGhost) {
  const NodeId node = bring(1);
  policy_.erase(node, false);
  index_.clear_place(node, Tier::kHost);
  index_.release_if_unused(node);
  EXPECT_EQ(policy_.ghost_count(), 0u);
  bring(1);
  EXPECT_EQ(policy_.main_count(), 0u);
}

TEST_F(S3FifoTest, GhostsAreBoundedByTheCapacity) {
  for (uint64_t key = 0; key < 20 * kCapacity; ++key) request(key);
  EXPECT_LE(policy_.ghost_count(), kCapacity);
  EXPECT_GT(policy_.ghost_count(), kCapacity * 8 / 10);
}

TEST_F(S3FifoTest, ADemotedBlockThatIsVisitedIsOnProbationAgain) {
  bring(1);
  policy_.demote(bring(2));
  EXPECT_EQ(policy_.demoted_count(), 1u);
  visit(2);
  EXPECT_EQ(policy_.demoted_count(), 0u);
  EXPECT_EQ(policy_.check(), "");
}

TEST_F(S3FifoTest, TheSecondVisitOnProbationPromotes) {
  bring(1);
  visit(1);
  EXPECT_EQ(policy_.main_count(), 0u);
  visit(1);
  EXPECT_EQ(policy_.main_count(), 1u);
  EXPECT_EQ(policy_.check(), "");
}

// The main queue is a chain that may not go because of its one descendant on probation; the small
// queue is far below its share.
TEST(S3FifoPolicy, ADescendantOnProbationIsFoundBehindALongChainInTheMainQueue) {
  BlockIndex index(index_options(kCapacity));
  S3FifoPolicy policy({index, Tier::kHost, kCapacity});
  std::vector<NodeId> path;
  for (uint32_t i = 0; i < 50; ++i) {
    const NodeId node = index.insert(numbered_key(i), kGroup0, i == 0 ? kNoNode : path.back());
    index.set_place(node, Tier::kHost, SlotId(i));
    policy.insert(node, {});
    path.push_back(node);
  }
  const std::vector<uint32_t> positions(path.size());
  for (int visits = 0; visits < 2; ++visits) policy.visit(path, positions, {});
  const NodeId tail = index.insert(numbered_key(99), kGroup0, path.back());
  index.set_place(tail, Tier::kHost, SlotId(99));
  policy.insert(tail, {});
  ASSERT_EQ(policy.main_count(), 50u);
  ASSERT_EQ(policy.small_count(), 1u);
  EXPECT_EQ(policy.victim(2), tail);
}

// A long conversation: the head is visited at each turn and new blocks are added at its end.
// Whatever is evicted, the bound of 64 looks is enough while the chain is many times longer.
TEST(S3FifoPolicy, ChainsDoNotStandInTheWayOfEviction) {
  constexpr uint32_t kBlocks = 2000;
  BlockIndex index(index_options(kBlocks));
  S3FifoPolicy policy({index, Tier::kHost, kBlocks});
  Random random(1);
  std::vector<std::vector<NodeId>> chains(8);
  uint32_t misses = 0;
  uint32_t evictions = 0;
  for (uint32_t turn = 0; turn < 600; ++turn) {
    auto& chain = chains[random.below(chains.size())];
    std::erase_if(chain, [&](NodeId node) { return !index.is_live(node); });
    if (chain.size() > 600) chain.clear();  // another conversation; the old one is left to eviction
    std::vector<uint32_t> positions(chain.size());
    BlockPosition position;
    position.visit.now = TimePoint(std::chrono::milliseconds(turn));
    position.visit.known_count = static_cast<uint32_t>(chain.size());
    policy.visit(chain, positions, position.visit);
    for (const NodeId node : chain) index.hold(node);
    std::vector<NodeId> held = chain;
    for (uint32_t i = 0; i < 60; ++i) {
      if (index.node_count() == kBlocks) {
        const NodeId victim = policy.victim(64);
        if (victim == kNoNode) {
          ++misses;
          break;
        }
        ++evictions;
        policy.erase(victim, true);
        index.clear_place(victim, Tier::kHost);
        ASSERT_EQ(index.release_if_unused(victim), 1u);
        for (auto& other : chains) std::erase(other, victim);
      }
      const NodeId node =
          index.insert(random_key(random), kGroup0, held.empty() ? kNoNode : held.back());
      index.set_place(node, Tier::kHost, SlotId(0));
      index.hold(node);
      policy.insert(node, position);
      held.push_back(node);
    }
    for (const NodeId node : held) index.unhold(node);
    chain = held;
    ASSERT_EQ(policy.check(), "");
  }
  EXPECT_GT(evictions, 10'000u);
  EXPECT_EQ(misses, 0u);
}

TEST(S3FifoPolicy, KeepsItsListsInOrderOverRandomRequests) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    BlockIndex index(index_options(kCapacity));
    S3FifoPolicy policy({index, Tier::kHost, kCapacity});
    for (uint32_t step = 0; step < 3000; ++step) {
      const BlockKey key = numbered_key(std::min(random.below(400), random.below(400)));
      const NodeId present = index.find(key, kGroup0);
      if (present != kNoNode && random.chance(0.05)) {
        policy.demote(present);
      } else if (present != kNoNode) {
        const uint32_t position = 0;
        policy.visit({&present, 1}, {&position, 1}, {});
      } else {
        if (index.node_count() == kCapacity) {
          const NodeId victim = policy.victim(kScanAll);
          ASSERT_NE(victim, kNoNode);
          policy.erase(victim, true);
          index.clear_place(victim, Tier::kHost);
          index.release_if_unused(victim);
        }
        const NodeId node = index.insert(key, kGroup0, kNoNode);
        index.set_place(node, Tier::kHost, SlotId(0));
        policy.insert(node, {});
      }
      ASSERT_EQ(policy.check(), "") << "seed " << seed << " step " << step;
    }
    EXPECT_GT(policy.main_count(), 0u);
  }
}

}  // namespace
}  // namespace tiercel
