// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as the index and its policies can show them:
// a victim that the same request names (F14), counts that drift (F58). F05, F10 and F16 are beside
// the other tests of BlockIndex.

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "index/eviction_policy.h"
#include "index/index_test_support.h"

namespace tiercel {
namespace {

// F14: storing blocks 2 to 5 when 2 was there already threw out 2 to make room for 3 to 5.
class FieldCaseF14 : public ::testing::TestWithParam<std::string_view> {
 protected:
  static constexpr uint32_t kCapacity = 4;

  // A full tier of four blocks, the first of them the oldest. One call puts four blocks, of which
  // `there` are old ones: what is there is held, then each new one takes the place of a victim and
  // is held too. True if all four are there at the end.
  static bool all_are_there_after_put(std::string_view policy_name,
                                      const std::vector<uint32_t>& there, bool hold) {
    BlockIndex index(index_options(64));
    const auto policy = make_eviction_policy(policy_name, {index, Tier::kHost, kCapacity}).value();
    std::vector<NodeId> called;
    const auto add = [&](uint32_t number) {
      const NodeId node = index.insert(numbered_key(number), kGroup0, kNoNode);
      index.set_place(node, Tier::kHost, SlotId(number));
      policy->insert(node, {});
      return node;
    };
    for (uint32_t number = 0; number < kCapacity; ++number) add(number);
    for (const uint32_t number : there) {
      called.push_back(index.find(numbered_key(number), kGroup0));
      if (hold) index.hold(called.back());
    }
    for (uint32_t number = kCapacity; called.size() < kCapacity; ++number) {
      const NodeId victim = policy->victim(kCapacity);
      if (victim == kNoNode) return false;
      EXPECT_TRUE(index.evictable(victim, Tier::kHost));
      policy->erase(victim, true);
      index.clear_place(victim, Tier::kHost);
      index.release_if_unused(victim);
      called.push_back(add(number));
      if (hold) index.hold(called.back());
    }
    EXPECT_EQ(index.resident_count(Tier::kHost), kCapacity);
    const auto is_there = [&](uint32_t number) {
      const NodeId node = index.find(numbered_key(number), kGroup0);
      return node != kNoNode && index.is_in(node, Tier::kHost);
    };
    for (const uint32_t number : there) {
      if (!is_there(number)) return false;
    }
    for (uint32_t number = kCapacity; number < 2 * kCapacity - there.size(); ++number) {
      if (!is_there(number)) return false;
    }
    return true;
  }

  static std::vector<uint32_t> members(uint32_t subset) {
    std::vector<uint32_t> numbers;
    for (uint32_t number = 0; number < kCapacity; ++number) {
      if ((subset >> number & 1) != 0) numbers.push_back(number);
    }
    return numbers;
  }
};

TEST_P(FieldCaseF14, BlocksOfOneCallNeverMakeRoomForEachOther) {
  uint32_t lost_without_holds = 0;
  for (uint32_t subset = 0; subset < 1u << kCapacity; ++subset) {
    EXPECT_TRUE(all_are_there_after_put(GetParam(), members(subset), true)) << subset;
    lost_without_holds += all_are_there_after_put(GetParam(), members(subset), false) ? 0 : 1;
  }
  EXPECT_GT(lost_without_holds, 0u) << "the holds are not what protects them: this proves nothing";
}

INSTANTIATE_TEST_SUITE_P(AllPolicies, FieldCaseF14, ::testing::ValuesIn(eviction_policy_names()),
                         [](const auto& policy) { return std::string(policy.param); });

// F58, F59: counts of a tier went below zero after "remove all", or past the total, because a block
// was taken out of the count of another tier than it was in.
TEST(FieldCase, F58F59CountsOfEachTierEqualAModelOverRandomOperations) {
  constexpr uint32_t kCapacity = 200;
  constexpr std::array kTiers = {Tier::kDevice, Tier::kHost, Tier::kDisk};
  BlockIndex index(index_options(kCapacity, kDeviceBit | kHostBit | kDiskBit));
  Random random(58);
  std::map<NodeId, std::set<Tier>> blocks;
  uint32_t cleared = 0;
  const auto place = [&](NodeId node, Tier tier) {
    if (!blocks[node].insert(tier).second) return;
    index.set_place(node, tier, SlotId(0));
  };
  const auto take = [&](NodeId node, Tier tier) {
    if (blocks.at(node).erase(tier) == 0) return;
    index.clear_place(node, tier);
    if (blocks.at(node).empty()) blocks.erase(node);
    index.release_if_unused(node);
  };
  for (uint32_t step = 0; step < 10'000; ++step) {
    const Tier tier = kTiers[random.below(3)];
    const Tier other = kTiers[random.below(3)];
    auto any = blocks.begin();
    if (!blocks.empty()) std::advance(any, static_cast<long>(random.below(blocks.size())));
    const uint64_t choice = random.below(100);
    if (choice < 45) {
      const NodeId parent = any == blocks.end() || random.chance(0.2) ? kNoNode : any->first;
      const NodeId node = index.insert(random_key(random), kGroup0, parent);
      if (node != kNoNode) place(node, tier);
    } else if (any != blocks.end() && choice < 60) {
      place(any->first, tier);
    } else if (any != blocks.end() && choice < 75 && any->second.contains(tier)) {
      // An eviction that moves the block to another tier, in the order that went wrong there.
      const NodeId node = any->first;
      place(node, other);
      if (other != tier && index.evictable(node, tier)) take(node, tier);
    } else if (any != blocks.end() && choice < 99) {
      if (any->second.contains(tier) && index.evictable(any->first, tier)) take(any->first, tier);
    } else if (choice == 99 && random.chance(0.3)) {
      ASSERT_TRUE(index.advance_epoch());
      while (!index.sweep_done()) {
        const NodeId node = index.next_stale(kCapacity);
        if (node == kNoNode) continue;
        for (const Tier its : kTiers) {
          if (index.is_in(node, its)) index.clear_place(node, its);
        }
        index.release_if_unused(node);
      }
      blocks.clear();
      ++cleared;
      ASSERT_EQ(index.node_count(), 0u);
    }
    for (const Tier counted : kTiers) {
      const auto expected = std::count_if(blocks.begin(), blocks.end(), [&](const auto& block) {
        return block.second.contains(counted);
      });
      ASSERT_EQ(index.resident_count(counted), static_cast<uint32_t>(expected))
          << to_string(counted) << " at step " << step;
    }
    ASSERT_LE(index.node_count(), kCapacity);
    if (step % 50 == 0) {
      ASSERT_EQ(index.check(), "");
    }
  }
  EXPECT_GT(cleared, 5u);
}

}  // namespace
}  // namespace tiercel
