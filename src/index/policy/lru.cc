// SPDX-License-Identifier: Apache-2.0
#include "index/policy/lru.h"

#include <utility>

#include "base/assert.h"

namespace tiercel {

namespace {
// The links of a path lie all over the memory: ask for them some steps ahead.
constexpr size_t kLookAhead = 8;
constexpr uint32_t kListed = 1;
constexpr uint32_t kSuspended = 2;
}  // namespace

LruPolicy::LruPolicy(const EvictionPolicyContext& context)
    : index_(context.index),
      tier_(context.tier),
      moves_pinned_(context.moves_pinned),
      list_(context.index, context.tier) {}

void LruPolicy::visit(std::span<const NodeId> path, std::span<const uint32_t> /*positions*/,
                      const RequestVisit& /*visit*/) {
  for (size_t i = path.size(); i-- > 0;) {
    if (i >= kLookAhead) __builtin_prefetch(&index_.links(path[i - kLookAhead], tier_), 1);
    TIERCEL_ASSERT(is_known(path[i]), "visit of a block that the policy was not told of");
    if (is_listed(path[i])) list_.move_to_front(path[i]);
  }
}

void LruPolicy::insert(NodeId node, const BlockPosition& /*position*/) {
  TIERCEL_ASSERT(!is_known(node), "block was inserted into the policy twice");
  link(node);
}

bool LruPolicy::is_listed(NodeId node) const { return index_.links(node, tier_).word == kListed; }

void LruPolicy::link(NodeId node) {
  index_.links(node, tier_).word = kListed;
  const NodeId parent = index_.parent(node);
  if (parent != kNoNode && index_.is_in(parent, tier_) && is_listed(parent)) {
    list_.insert_behind(parent, node);
  } else {
    list_.push_front(node);
  }
}

void LruPolicy::erase(NodeId node, bool /*evicted*/) {
  TIERCEL_ASSERT(is_known(node), "erase of a block that the policy was not told of");
  if (is_listed(node)) list_.remove(node);
  index_.links(node, tier_).word = 0;
}

void LruPolicy::demote(NodeId node) {
  TIERCEL_ASSERT(is_listed(node), "demotion of a block that the policy was not told of");
  list_.move_to_back(node);
}

void LruPolicy::suspend(NodeId node) {
  TIERCEL_ASSERT(is_listed(node), "suspension of a block that is not listed");
  list_.remove(node);
  index_.links(node, tier_).word = kSuspended;
}

void LruPolicy::resume(NodeId node) {
  TIERCEL_ASSERT(is_known(node) && !is_listed(node), "only what was suspended is resumed");
  link(node);
}

template <typename Suits>
NodeId LruPolicy::first_from_back(uint32_t scan_max, bool moves, Suits&& suits) {
  NodeId node = list_.back();
  for (uint32_t seen = 0; seen < scan_max && node != kNoNode; ++seen) {
    if (suits(node)) {
      list_.prefetch_before(node);
      return node;
    }
    // Deepest first, so that a path keeps its order.
    const NodeId passed = std::exchange(node, list_.before(node));
    if (moves) list_.move_to_front(passed);
  }
  return kNoNode;
}

NodeId LruPolicy::victim(uint32_t scan_max) {
  return first_from_back(scan_max, moves_pinned_,
                         [this](NodeId node) { return index_.evictable(node, tier_); });
}

NodeId LruPolicy::next_to_move(uint32_t scan_max) {
  return first_from_back(scan_max, false,
                         [this](NodeId node) { return index_.hold_count(node) == 0; });
}

}  // namespace tiercel
