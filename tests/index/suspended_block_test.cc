// SPDX-License-Identifier: Apache-2.0
//
// Blocks in use (EvictionPolicy::suspend), for each policy of the registry, and what holds mean in
// the device tier.
#include <vector>

#include <gtest/gtest.h>

#include "index/eviction_policy.h"
#include "index/index_test_support.h"

namespace tiercel {
namespace {

class SuspendedBlock : public ::testing::TestWithParam<std::string_view> {
 protected:
  static constexpr uint32_t kCapacity = 60;

  std::vector<NodeId> insert_path(EvictionPolicy& policy, uint32_t first, uint32_t count) {
    std::vector<NodeId> path;
    for (uint32_t i = first; i < first + count; ++i) {
      path.push_back(index.insert(numbered_key(i), kGroup0, path.empty() ? kNoNode : path.back()));
      index.set_place(path.back(), Tier::kDevice, SlotId(i));
      policy.insert(path.back(), {});
    }
    return path;
  }
  std::unique_ptr<EvictionPolicy> make(bool moves_pinned = false) {
    const EvictionPolicyContext context{index, Tier::kDevice, kCapacity, moves_pinned};
    return make_eviction_policy(GetParam(), context).value();
  }

  BlockIndex index{index_options(kCapacity, kDeviceBit | kHostBit)};
};

TEST_P(SuspendedBlock, IsNoVictimAndInNobodysWay) {
  const auto policy = make();
  const auto used = insert_path(*policy, 0, 30);
  for (const NodeId node : used) policy->suspend(node);
  EXPECT_EQ(policy->victim(kCapacity), kNoNode);
  const auto other = insert_path(*policy, 30, 3);
  EXPECT_EQ(policy->victim(1), other.back()) << "thirty blocks in use cost no look";
}

TEST_P(SuspendedBlock, GoesTailFirstOnceItIsNotUsedAnyMore) {
  const auto policy = make();
  const auto path = insert_path(*policy, 0, 20);
  for (const NodeId node : path) policy->suspend(node);
  for (const NodeId node : path) policy->resume(node);
  for (size_t i = path.size(); i-- > 0;) {
    ASSERT_EQ(policy->victim(1), path[i]);
    policy->erase(path[i], true);
    index.clear_place(path[i], Tier::kDevice);
    index.release_if_unused(path[i]);
  }
}

TEST_P(SuspendedBlock, CountsVisitsAndMayBeErased) {
  const auto policy = make();
  const auto path = insert_path(*policy, 0, 4);
  const auto other = insert_path(*policy, 10, 4);
  for (const NodeId node : path) policy->suspend(node);
  for (int i = 0; i < 3; ++i) policy->visit(path, std::vector<uint32_t>{0, 1, 2, 3}, {});
  EXPECT_EQ(policy->victim(kCapacity), other.back());
  const auto take_away = [&](NodeId node) {
    policy->erase(node, false);
    index.clear_place(node, Tier::kDevice);
    index.release_if_unused(node);
  };
  take_away(path.back());
  for (size_t i = 0; i + 1 < path.size(); ++i) policy->resume(path[i]);
  uint32_t victims = 0;
  for (NodeId node = policy->victim(kCapacity); node != kNoNode; ++victims) {
    take_away(node);
    node = policy->victim(kCapacity);
  }
  EXPECT_EQ(victims, 7u) << "each of the others goes once";
}

// A tail that is in the host tier alone keeps all blocks before it.
TEST_P(SuspendedBlock, WhatASearchMayNotTakeIsMetOnceWhereItIsMoved) {
  for (const bool moves_pinned : {true, false}) {
    SCOPED_TRACE(moves_pinned);
    const auto policy = make(moves_pinned);
    const uint32_t first = moves_pinned ? 0 : 30;
    const auto pinned = insert_path(*policy, first, 12);
    policy->erase(pinned.back(), false);
    index.set_place(pinned.back(), Tier::kHost, SlotId(first));
    index.clear_place(pinned.back(), Tier::kDevice);
    const auto other = insert_path(*policy, first + 12, 3);
    EXPECT_EQ(policy->victim(4), kNoNode);
    EXPECT_EQ(policy->victim(4), kNoNode);
    EXPECT_EQ(policy->victim(4), moves_pinned ? other.back() : kNoNode) << "eleven have been met";
    EXPECT_EQ(policy->victim(1), moves_pinned ? other.back() : kNoNode);
    // They keep their order, for the time when they may go.
    index.set_place(pinned.back(), Tier::kDevice, SlotId(first));
    policy->insert(pinned.back(), {});
    index.clear_place(pinned.back(), Tier::kHost);
    for (const auto* path :
         moves_pinned ? std::vector{&other, &pinned} : std::vector{&pinned, &other}) {
      for (size_t i = path->size(); i-- > 0;) {
        ASSERT_EQ(policy->victim(kCapacity), (*path)[i]);
        policy->erase((*path)[i], true);
        index.clear_place((*path)[i], Tier::kDevice);
        index.release_if_unused((*path)[i]);
      }
    }
  }
}

TEST_P(SuspendedBlock, HoldsOfOthersDoNotKeepADeviceBlock) {
  const auto policy = make();
  const auto path = insert_path(*policy, 0, 2);
  index.hold(path.back());
  EXPECT_TRUE(index.evictable(path.back(), Tier::kDevice));
  EXPECT_EQ(policy->victim(1), path.back());
  index.set_place(path.back(), Tier::kHost, SlotId(1));
  EXPECT_FALSE(index.evictable(path.back(), Tier::kHost));
  index.unhold(path.back());
}

INSTANTIATE_TEST_SUITE_P(AllPolicies, SuspendedBlock, ::testing::Values("lru", "s3fifo"));

}  // namespace
}  // namespace tiercel
