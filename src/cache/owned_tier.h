// SPDX-License-Identifier: Apache-2.0
//
// OwnedTier: the control side of one tier whose slots we assign (host, disk): index places, slots
// and the eviction policy, kept in step.
//
// A slot that a transfer may still touch has references. Whoever takes a place away *retires* the
// slot: it is free at once if nothing refers to it, else it waits in quarantine until the last
// reference goes. So no slot is ever given to a second owner while an old transfer can write to it.
// Threads: control thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/protections.h"
#include "index/block_index.h"
#include "index/eviction_policy.h"
#include "tier/slot_allocator.h"

namespace tiercel {

class OwnedTier {
 public:
  OwnedTier(Tier tier, const SlotGeometry& geometry, BlockIndex& index,
            std::unique_ptr<EvictionPolicy> policy, const Protections& protections);

  // A slot for a new block of `group`, evicting as needed; nullopt if nothing may be evicted. The
  // caller's node must be held, or have children, to be safe from this.
  std::optional<SlotId> acquire(GroupId group);

  // The same, but only a slot that a block had before, as far as such ones are known: in a file
  // system that is full the others have no space.
  std::optional<SlotId> acquire_reused(GroupId group);

  bool has_victim() { return policy_->victim(kVictimScanMax) != kNoNode; }
  // Evicts one block; false if none may go.
  bool evict();

  // A block that a restart has found in `slot`: takes the slot and publishes the block. False, and
  // nothing changed, if the slot is not free for the group.
  bool adopt(NodeId node, SlotId slot, const BlockPosition& position);

  // The block that eviction would come to next if the tier below had it; kNoNode if there is none.
  NodeId next_to_move() { return policy_->next_to_move(kVictimScanMax); }

  // The block is here now and visible.
  void publish(NodeId node, SlotId slot, const BlockPosition& position);

  // Takes the block out of this tier whatever the reason, and gives the node back if nothing else
  // needs it. Must be in the tier.
  void drop(NodeId node, bool evicted);
  // Every block, held or not. Linear in the index: for what happens once in a while, as the loss of
  // a rank.
  void drop_all();

  // A slot that was acquired but never published, or whose place was taken away, is given back.
  void retire(SlotId slot);

  void add_reference(SlotId slot) { ++references_[slot.value()]; }
  void drop_reference(SlotId slot);

  // What is to be remembered of the block in a slot; forgotten with the next block of the slot.
  enum class Mark : uint8_t {
    kPutOwed = 1,  // the store has not got it though it should: its put was dropped or failed
    kBadSlot = 2   // the slot is never given out again once it has been retired
  };
  void set_mark(SlotId slot, Mark mark, bool is_set) {
    uint8_t& marks = marks_[slot.value()];
    marks = static_cast<uint8_t>(is_set ? marks | static_cast<uint8_t>(mark)
                                        : marks & ~static_cast<uint8_t>(mark));
  }
  bool has_mark(SlotId slot, Mark mark) const {
    return (marks_[slot.value()] & static_cast<uint8_t>(mark)) != 0;
  }

  // Tells the policy that a request looked at these blocks (root first; those not in the tier are
  // skipped).
  void visit(std::span<const NodeId> path, const RequestVisit& visit);

  // Without the withdrawn ones, which no transfer holds.
  SlotAllocator::Counts counts() const {
    SlotAllocator::Counts counts = allocator_.counts();
    counts.quarantined -= withdrawn_;
    return counts;
  }
  // Slots that were marked bad and have been retired.
  uint64_t withdrawn() const { return withdrawn_; }
  uint64_t slots_total() const { return slots_total_; }
  uint64_t evicted() const { return evicted_; }
  uint64_t side_bytes() const {
    return references_.size() * (sizeof(references_[0]) + sizeof(retired_[0]) + sizeof(marks_[0]));
  }
  const SlotAllocator& allocator() const { return allocator_; }
  uint64_t total_references() const;

  Tier tier() const { return tier_; }
  bool has(NodeId node) const { return index_.is_in(node, tier_); }
  bool has(NodeId node, SlotId slot) const { return has(node) && this->slot(node) == slot; }
  SlotId slot(NodeId node) const { return index_.slot(node, tier_); }

 private:
  static constexpr size_t kReusableMax = 64;

  // The block that eviction takes next; kNoNode if none may go.
  NodeId next_victim();
  // As drop(), but the slot stays taken: it is returned.
  SlotId take_away(NodeId node, bool evicted);
  // Whether nobody may have the slot now: a transfer still uses it, or it is bad.
  bool is_to_be_kept(SlotId slot) const {
    return has_mark(slot, Mark::kBadSlot) ||
           (references_[slot.value()] != 0 && protections_.quarantine);
  }
  // The slot that was taken away from a block; nullopt if none may go.
  std::optional<SlotId> evict_one();
  uint32_t evictions_max() const;
  // What eviction would take if it did not begin at the tail (see Protections).
  NodeId first_of_path(NodeId node) const;
  void demote_window_blocks(const BlockKey& key);

  const Tier tier_;
  BlockIndex& index_;
  SlotAllocator allocator_;
  std::unique_ptr<EvictionPolicy> policy_;
  const Protections protections_;
  const uint64_t slots_total_;
  std::vector<uint16_t> references_;  // by slot id
  std::vector<uint8_t> retired_;      // by slot id: in quarantine
  std::vector<uint8_t> marks_;        // by slot id
  std::vector<NodeId> path_;          // scratch of visit()
  std::vector<uint32_t> positions_;
  std::vector<SlotId> reusable_;  // of acquire_reused(): free, or taken meanwhile; latest last
  uint64_t withdrawn_ = 0;
  uint64_t evicted_ = 0;
};

}  // namespace tiercel
