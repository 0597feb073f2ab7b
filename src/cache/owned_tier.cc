// SPDX-License-Identifier: Apache-2.0
#include "cache/owned_tier.h"

#include <numeric>

#include "base/assert.h"

namespace tiercel {
namespace {

uint64_t count_slots(const SlotGeometry& geometry) {
  uint64_t slots = 0;
  for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
    uint32_t most = 0;
    for (uint32_t group = 0; group < geometry.group_count(); ++group) {
      most = std::max(most, geometry.slots_in_extent(extent, GroupId(static_cast<uint8_t>(group))));
    }
    slots += most;
  }
  return slots;
}

}  // namespace

OwnedTier::OwnedTier(Tier tier, const SlotGeometry& geometry, BlockIndex& index,
                     std::unique_ptr<EvictionPolicy> policy, const Protections& protections)
    : tier_(tier),
      index_(index),
      allocator_(geometry),
      policy_(std::move(policy)),
      protections_(protections),
      slots_total_(count_slots(geometry)) {
  const size_t ids = static_cast<size_t>(geometry.extent_count()) * geometry.slots_per_extent_max();
  references_.resize(ids);
  retired_.resize(ids);
  marks_.resize(ids);
}

uint32_t OwnedTier::evictions_max() const {
  // One eviction makes room where the tier has one slot class. With several, a victim may free a
  // slot of another class; then at most a few extents' worth go before one of them is empty and can
  // change hands.
  return 4 * allocator_.geometry().slots_per_extent_max() + 16;
}

std::optional<SlotId> OwnedTier::acquire(GroupId group) {
  if (const auto slot = allocator_.allocate(group)) return slot;
  for (uint32_t evictions = 0; evictions < evictions_max(); ++evictions) {
    const NodeId victim = next_victim();
    if (victim == kNoNode) return std::nullopt;
    // Nearly always its slot serves as it is: no extent changes.
    const bool fits = index_.group(victim) == group;
    const SlotId left = take_away(victim, true);
    ++evicted_;
    if (fits && !is_to_be_kept(left)) return left;
    retire(left);
    if (const auto slot = allocator_.allocate(group)) return slot;
  }
  return std::nullopt;
}

std::optional<SlotId> OwnedTier::acquire_reused(GroupId group) {
  for (uint32_t evictions = 0;; ++evictions) {
    for (size_t i = reusable_.size(); i-- > 0;) {
      const SlotId slot = reusable_[i];
      // Not of another group's extent, nor taken meanwhile.
      if (!allocator_.adopt(slot, group)) continue;
      reusable_.erase(reusable_.begin() + static_cast<ptrdiff_t>(i));
      return slot;
    }
    if (evictions == evictions_max()) return std::nullopt;
    const std::optional<SlotId> slot = evict_one();
    if (!slot) return std::nullopt;
    if (reusable_.size() == kReusableMax) reusable_.erase(reusable_.begin());
    reusable_.push_back(*slot);
  }
}

bool OwnedTier::evict() { return evict_one().has_value(); }

std::optional<SlotId> OwnedTier::evict_one() {
  const NodeId victim = next_victim();
  if (victim == kNoNode) return std::nullopt;
  const SlotId slot = take_away(victim, true);
  retire(slot);
  ++evicted_;
  return slot;
}

NodeId OwnedTier::next_victim() {
  const NodeId victim = policy_->victim(kVictimScanMax);
  return victim == kNoNode || protections_.tail_first ? victim : first_of_path(victim);
}

NodeId OwnedTier::first_of_path(NodeId node) const {
  NodeId first = node;
  for (NodeId at = node; at != kNoNode; at = index_.parent(at)) {
    if (index_.is_in(at, tier_) && index_.hold_count(at) == 0) first = at;
  }
  return first;
}

bool OwnedTier::adopt(NodeId node, SlotId slot, const BlockPosition& position) {
  if (!allocator_.adopt(slot, index_.group(node))) return false;
  publish(node, slot, position);
  return true;
}

void OwnedTier::publish(NodeId node, SlotId slot, const BlockPosition& position) {
  index_.set_place(node, tier_, slot);
  marks_[slot.value()] = 0;
  policy_->insert(node, position);
}

void OwnedTier::drop(NodeId node, bool evicted) { retire(take_away(node, evicted)); }

SlotId OwnedTier::take_away(NodeId node, bool evicted) {
  const BlockKey key = index_.key(node);
  policy_->erase(node, evicted);
  const SlotId slot = index_.clear_place(node, tier_);
  const bool current = index_.is_current(node);
  const bool gone = index_.tiers(node) == 0;
  index_.release_if_unused(node);
  if (gone && current) demote_window_blocks(key);
  return slot;
}

void OwnedTier::drop_all() {
  for (NodeId node = 0; node < index_.node_count_max() && index_.resident_count(tier_) > 0;
       ++node) {
    if (index_.is_live(node) && has(node)) drop(node, false);
  }
}

void OwnedTier::demote_window_blocks(const BlockKey& key) {
  // Without the full-attention block of the same key no cut needs the window groups' blocks.
  const uint32_t groups = allocator_.geometry().group_count();
  if (groups == 1) return;
  for (uint32_t group = 0; group < groups; ++group) {
    const GroupId id(static_cast<uint8_t>(group));
    if (!index_.is_window_group(id)) continue;
    const NodeId node = index_.find(key, id);
    if (node != kNoNode && index_.is_in(node, tier_)) policy_->demote(node);
  }
}

void OwnedTier::retire(SlotId slot) {
  if (has_mark(slot, Mark::kBadSlot)) {
    allocator_.quarantine(slot);
    ++withdrawn_;
    return;
  }
  if (!is_to_be_kept(slot)) {
    allocator_.free(slot);
    return;
  }
  retired_[slot.value()] = 1;
  allocator_.quarantine(slot);
}

void OwnedTier::drop_reference(SlotId slot) {
  TIERCEL_ASSERT(references_[slot.value()] > 0, "a slot reference is dropped once");
  if (--references_[slot.value()] == 0 && retired_[slot.value()] != 0) {
    retired_[slot.value()] = 0;
    allocator_.release_quarantine(slot);
  }
}

void OwnedTier::visit(std::span<const NodeId> path, const RequestVisit& visit) {
  path_.clear();
  positions_.clear();
  for (size_t position = 0; position < path.size(); ++position) {
    const NodeId node = path[position];
    if (node == kNoNode || !index_.is_in(node, tier_)) continue;
    path_.push_back(node);
    positions_.push_back(static_cast<uint32_t>(position));
  }
  if (!path_.empty()) policy_->visit(path_, positions_, visit);
}

uint64_t OwnedTier::total_references() const {
  return std::accumulate(references_.begin(), references_.end(), uint64_t{0});
}

}  // namespace tiercel
