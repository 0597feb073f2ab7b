// SPDX-License-Identifier: Apache-2.0
#include "index/policy/lru.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "index/index_test_support.h"

namespace tiercel {
namespace {

// A request is a path of names; a name is the path so far, so that equal prefixes are equal blocks.
using Path = std::vector<uint32_t>;

// Tail-first LRU said in the plainest way: for each block the number of the last request that used
// it; the victim is the block of the oldest request, of these the longest path.
class PlainLru {
 public:
  void use(const Path& block, uint64_t request) { last_use_[block] = request; }
  bool has(const Path& block) const { return last_use_.contains(block); }
  size_t size() const { return last_use_.size(); }

  // Blocks that are a prefix of another one, or of `in_use`, may not go.
  Path take_victim(const Path& in_use) {
    const Path* victim = nullptr;
    for (const auto& [block, request] : last_use_) {
      if (is_prefix(block, in_use) || has_longer(block)) continue;
      const uint64_t best = victim == nullptr ? UINT64_MAX : last_use_.at(*victim);
      if (request < best || (request == best && block.size() > victim->size())) victim = &block;
    }
    if (victim == nullptr) return {};
    const Path taken = *victim;
    last_use_.erase(taken);
    return taken;
  }

 private:
  static bool is_prefix(const Path& a, const Path& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  bool has_longer(const Path& block) const {
    const auto behind = last_use_.upper_bound(block);
    return behind != last_use_.end() && is_prefix(block, behind->first);
  }

  std::map<Path, uint64_t> last_use_;
};

TEST(LruPolicy, GivesTheSameVictimsAsAPlainTailFirstLruOverRandomRequests) {
  constexpr uint32_t kCapacity = 80;
  uint32_t victims = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Random random(seed);
    BlockIndex index(index_options(kCapacity + 1));
    LruPolicy policy({index, Tier::kHost, kCapacity});
    PlainLru plain;
    std::map<Path, NodeId> node_of;
    std::map<NodeId, Path> path_of;
    for (uint64_t request = 1; request <= 600; ++request) {
      Path names;
      const uint64_t length = random.between(1, 30);
      const uint64_t width = random.between(1, 3);  // how much requests share
      for (uint64_t i = 0; i < length; ++i)
        names.push_back(static_cast<uint32_t>(random.below(width)));

      std::vector<NodeId> known;
      std::vector<uint32_t> positions;
      for (uint32_t i = 0; i < names.size(); ++i) {
        const Path block(names.begin(), names.begin() + i + 1);
        if (!node_of.contains(block)) break;
        known.push_back(node_of[block]);
        positions.push_back(i);
        plain.use(block, request);
      }
      for (const NodeId node : known) index.hold(node);
      std::vector<NodeId> held = known;
      policy.visit(known, positions, {});
      for (size_t i = known.size(); i < names.size(); ++i) {
        const Path block(names.begin(), names.begin() + static_cast<long>(i) + 1);
        if (plain.size() == kCapacity) {
          const Path expected = plain.take_victim(names);
          const NodeId victim = policy.victim(UINT32_MAX);
          ASSERT_EQ(victim == kNoNode ? Path{} : path_of[victim], expected)
              << "seed " << seed << " request " << request;
          ASSERT_FALSE(expected.empty());
          ++victims;
          policy.erase(victim, true);
          index.clear_place(victim, Tier::kHost);
          ASSERT_EQ(index.release_if_unused(victim), 1u);
          node_of.erase(expected);
          path_of.erase(victim);
        }
        const NodeId node =
            index.insert(random_key(random), kGroup0, held.empty() ? kNoNode : held.back());
        index.hold(node);
        index.set_place(node, Tier::kHost, SlotId(0));
        BlockPosition position;
        position.position = static_cast<uint32_t>(i);
        policy.insert(node, position);
        plain.use(block, request);
        node_of[block] = node;
        path_of[node] = block;
        held.push_back(node);
      }
      for (const NodeId node : held) index.unhold(node);
    }
    ASSERT_EQ(index.check(), "");
  }
  EXPECT_GT(victims, 10'000u) << "the test is too weak";
}

TEST(LruPolicyDeathTest, ToldOfABlockTwiceIsAProgrammingError) {
  BlockIndex index(index_options(4));
  LruPolicy policy({index, Tier::kHost, 4});
  const NodeId node = index.insert(numbered_key(1), kGroup0, kNoNode);
  index.set_place(node, Tier::kHost, SlotId(0));
  policy.insert(node, {});
  EXPECT_DEATH(policy.insert(node, {}), "twice");
  policy.erase(node, true);
  EXPECT_DEATH(policy.erase(node, true), "not told of");
}

}  // namespace
}  // namespace tiercel
