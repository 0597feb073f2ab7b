// SPDX-License-Identifier: Apache-2.0
//
// BlockIndex against a model of maps, over random operations.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "index/block_index.h"
#include "index/index_test_support.h"

namespace tiercel {
namespace {

struct ModelBlock {
  uint32_t key = 0;
  uint8_t group = 0;
  NodeId parent = kNoNode;
  uint32_t holds = 0;
  uint32_t epoch = 0;
  std::map<Tier, uint32_t> slots;
};

// What BlockIndex promises, said with standard containers.
class ModelTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  static constexpr uint32_t kCapacity = 300;
  static constexpr uint32_t kKeyCount = 500;
  static constexpr uint8_t kWindowGroup = 1;
  static constexpr uint32_t kPooledPlaces = 60;

  ModelTest() : random_(GetParam()), index_(options()) {
    for (uint32_t i = 0; i < kKeyCount; ++i) keys_.push_back(random_key(random_));
    // Some keys share the bytes that are hashed.
    for (uint32_t i = 1; i < 60; ++i) {
      std::copy_n(keys_[0].bytes.begin(), 8, keys_[i].bytes.begin());
    }
  }

  BlockIndexOptions options() {
    BlockIndexOptions options = index_options(kCapacity, kHostBit | kDiskBit);
    options.group_count = 2;
    options.window_group_mask = 1u << kWindowGroup;
    options.seed = random_.next();
    if (host_is_pooled()) {
      options.place_count_max[static_cast<size_t>(Tier::kHost)] = kPooledPlaces;
    }
    return options;
  }

  // The host tier's places stand by node in half of the tests, and in a pool in the others.
  static bool host_is_pooled() { return GetParam() % 2 == 0; }

  NodeId model_find(uint32_t key, uint8_t group) const {
    for (const auto& [node, block] : blocks_) {
      if (block.key == key && block.group == group && block.epoch == epoch_) return node;
    }
    return kNoNode;
  }

  uint32_t children(NodeId node) const {
    return static_cast<uint32_t>(std::count_if(
        blocks_.begin(), blocks_.end(), [&](const auto& b) { return b.second.parent == node; }));
  }

  bool model_evictable(NodeId node, Tier tier) const {
    const ModelBlock& block = blocks_.at(node);
    if (block.holds != 0) return false;
    const size_t others = block.slots.size() - block.slots.count(tier);
    return others != 0 || block.group == kWindowGroup || children(node) == 0;
  }

  uint32_t model_release(NodeId node) {
    uint32_t released = 0;
    while (node != kNoNode && blocks_.at(node).slots.empty() && blocks_.at(node).holds == 0 &&
           children(node) == 0) {
      const NodeId parent = blocks_.at(node).parent;
      blocks_.erase(node);
      ++released;
      node = parent;
    }
    return released;
  }

  NodeId random_node() {
    if (blocks_.empty()) return kNoNode;
    auto at = blocks_.begin();
    std::advance(at, static_cast<long>(random_.below(blocks_.size())));
    return at->first;
  }

  void insert() {
    const auto key = static_cast<uint32_t>(random_.below(kKeyCount));
    const auto group = static_cast<uint8_t>(random_.below(2));
    if (model_find(key, group) != kNoNode) return;
    NodeId parent = random_node();
    if (parent != kNoNode &&
        (blocks_.at(parent).group != group || blocks_.at(parent).epoch != epoch_)) {
      parent = kNoNode;
    }
    const NodeId node = index_.insert(keys_[key], GroupId(group), parent);
    if (blocks_.size() == kCapacity) {
      ASSERT_EQ(node, kNoNode) << "the index is full";
      ++refused_;
      return;
    }
    ASSERT_NE(node, kNoNode);
    ASSERT_FALSE(blocks_.contains(node)) << "the node is in use";
    blocks_[node] = ModelBlock{key, group, parent, 0, epoch_, {}};
  }

  void toggle_place() {
    const NodeId node = random_node();
    if (node == kNoNode) return;
    const Tier tier = random_.chance(0.5) ? Tier::kHost : Tier::kDisk;
    auto& slots = blocks_.at(node).slots;
    if (!slots.contains(tier)) {
      if (tier == Tier::kHost && host_is_pooled() && index_.resident_count(tier) == kPooledPlaces) {
        ++pool_full_;
        return;
      }
      const auto slot = static_cast<uint32_t>(random_.below(1000));
      index_.set_place(node, tier, SlotId(slot));
      slots[tier] = slot;
      return;
    }
    ASSERT_EQ(index_.evictable(node, tier), model_evictable(node, tier));
    if (!index_.evictable(node, tier)) return;
    ASSERT_EQ(index_.clear_place(node, tier), SlotId(slots[tier]));
    slots.erase(tier);
    ASSERT_EQ(index_.release_if_unused(node), model_release(node));
  }

  void toggle_hold() {
    const NodeId node = random_node();
    if (node == kNoNode) return;
    if (random_.chance(0.45)) {
      index_.hold(node);
      ++blocks_.at(node).holds;
      return;
    }
    const bool held = blocks_.at(node).holds != 0;
    ASSERT_EQ(index_.unhold(node), held);
    if (held) {
      --blocks_.at(node).holds;
    } else {
      ++unbalanced_;
    }
    ASSERT_EQ(index_.unbalanced_unholds(), unbalanced_);
    ASSERT_EQ(index_.release_if_unused(node), model_release(node));
  }

  void sweep_one() {
    const NodeId node = index_.next_stale(16);
    if (node == kNoNode) return;
    ModelBlock& block = blocks_.at(node);
    ASSERT_NE(block.epoch, epoch_);
    while (block.holds != 0) {
      ASSERT_TRUE(index_.unhold(node));
      --block.holds;
    }
    for (const auto& [tier, slot] : block.slots) {
      ASSERT_EQ(index_.clear_place(node, tier), SlotId(slot));
    }
    block.slots.clear();
    ASSERT_EQ(index_.release_if_unused(node), model_release(node));
  }

  void advance() {
    const auto stale = std::count_if(blocks_.begin(), blocks_.end(),
                                     [&](const auto& b) { return b.second.epoch != epoch_; });
    ASSERT_EQ(index_.stale_count(), static_cast<uint32_t>(stale));
    ASSERT_EQ(index_.advance_epoch(), stale == 0);
    if (stale == 0) {
      ++epoch_;
      ++epochs_done_;
    }
  }

  void compare() {
    ASSERT_EQ(index_.check(), "");
    ASSERT_EQ(index_.node_count(), blocks_.size());
    uint64_t holds = 0;
    for (const auto& [node, block] : blocks_) {
      ASSERT_TRUE(index_.is_live(node));
      ASSERT_EQ(index_.key(node), keys_[block.key]);
      ASSERT_EQ(index_.parent(node), block.parent);
      ASSERT_EQ(index_.hold_count(node), block.holds);
      ASSERT_EQ(index_.is_current(node), block.epoch == epoch_);
      ASSERT_EQ(index_.is_in(node, Tier::kHost), block.slots.contains(Tier::kHost));
      ASSERT_EQ(index_.is_in(node, Tier::kDisk), block.slots.contains(Tier::kDisk));
      for (const auto& [tier, slot] : block.slots) ASSERT_EQ(index_.slot(node, tier), SlotId(slot));
      holds += block.holds;
    }
    ASSERT_EQ(index_.total_holds(), holds);
    for (const uint8_t group : {uint8_t{0}, uint8_t{1}}) {
      std::map<uint32_t, NodeId> expected;
      for (const auto& [node, block] : blocks_) {
        if (block.group == group && block.epoch == epoch_) expected[block.key] = node;
      }
      std::vector<NodeId> found(kKeyCount);
      index_.find_all(keys_, GroupId(group), 0, true, found);
      for (uint32_t key = 0; key < kKeyCount; ++key) {
        const auto at = expected.find(key);
        ASSERT_EQ(found[key], at == expected.end() ? kNoNode : at->second);
        ASSERT_EQ(index_.find(keys_[key], GroupId(group)), found[key]);
      }
    }
  }

  Random random_;
  BlockIndex index_;
  std::vector<BlockKey> keys_;
  std::map<NodeId, ModelBlock> blocks_;
  uint32_t epoch_ = 0;
  uint64_t unbalanced_ = 0;
  uint32_t refused_ = 0;
  uint32_t epochs_done_ = 0;
  uint32_t pool_full_ = 0;
};

TEST_P(ModelTest, AgreesWithTheModelOverRandomOperations) {
  for (uint32_t step = 0; step < 15'000; ++step) {
    // Times of growth and times of decline, so that the index gets full and nearly empty.
    const bool grow = step / 1500 % 2 == 0;
    const uint64_t choice = random_.below(100);
    if (choice < (grow ? 60u : 10u)) {
      insert();
    } else if (choice < 80) {
      toggle_place();
    } else if (choice < 90) {
      toggle_hold();
    } else if (choice < 98) {
      sweep_one();
    } else {
      advance();
    }
    if (HasFatalFailure()) FAIL() << "step " << step;
    if (step % 100 == 0) compare();
    if (HasFatalFailure()) FAIL() << "step " << step;
  }
  compare();
  EXPECT_GT(refused_, 0u) << "the index was never full: the test is too weak";
  EXPECT_EQ(pool_full_ > 0, host_is_pooled()) << "the pool was never full: the test is too weak";
  EXPECT_GT(epochs_done_, 2u) << "no epoch was swept: the test is too weak";
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, ::testing::Range(uint64_t{1}, uint64_t{5}));

// F10, F14: whatever is evicted in whatever order as `evictable` allows, a block that is anywhere
// has all its ancestors somewhere.
TEST(BlockIndex, F10F14EvictionInAnyAllowedOrderLeavesNoHoleInTheUnionOfTheTiers) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    BlockIndex index(index_options(400, kHostBit | kDiskBit));
    std::vector<NodeId> nodes;
    uint32_t evictions = 0;
    for (uint32_t step = 0; step < 4000; ++step) {
      const uint64_t choice = random.below(3);
      if (choice == 0 && nodes.size() < 390) {
        // Prefix order: a new block only under one that is somewhere.
        const NodeId parent =
            nodes.empty() || random.chance(0.05) ? kNoNode : nodes[random.below(nodes.size())];
        const NodeId node = index.insert(random_key(random), kGroup0, parent);
        ASSERT_NE(node, kNoNode);
        index.set_place(node, random.chance(0.5) ? Tier::kHost : Tier::kDisk, SlotId(0));
        nodes.push_back(node);
      } else if (!nodes.empty()) {
        const size_t pick = random.below(nodes.size());
        const NodeId node = nodes[pick];
        const Tier tier = random.chance(0.5) ? Tier::kHost : Tier::kDisk;
        if (!index.is_in(node, tier)) {
          index.set_place(node, tier, SlotId(0));
        } else if (index.evictable(node, tier)) {
          index.clear_place(node, tier);
          ++evictions;
          if (index.tiers(node) == 0) {
            ASSERT_EQ(index.release_if_unused(node), 1u);
            nodes[pick] = nodes.back();
            nodes.pop_back();
          }
        }
      }
      for (const NodeId node : nodes) {
        const NodeId parent = index.parent(node);
        ASSERT_TRUE(parent == kNoNode || (index.is_live(parent) && index.tiers(parent) != 0));
      }
    }
    EXPECT_GT(evictions, 300u);
    EXPECT_EQ(index.check(), "");
  }
}

}  // namespace
}  // namespace tiercel
