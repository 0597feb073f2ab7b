// SPDX-License-Identifier: Apache-2.0
//
// HostTier: the control side of the host tier: index places, slots and the eviction policy, kept in
// step.
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

class HostTier {
 public:
  HostTier(const SlotGeometry& geometry, BlockIndex& index, std::unique_ptr<EvictionPolicy> policy,
           const Protections& protections);

  // A slot for a new block of `group`, evicting as needed; nullopt if nothing may be evicted. The
  // caller's node must be held, or have children, to be safe from this.
  std::optional<SlotId> acquire(GroupId group);

  // The block is here now and visible.
  void publish(NodeId node, SlotId slot, const BlockPosition& position);

  // Takes the block out of this tier whatever the reason, and gives the node back if nothing else
  // needs it. Must be in the tier.
  void drop(NodeId node, bool evicted);

  // A slot that was acquired but never published, or whose place was taken away, is given back.
  void retire(SlotId slot);

  void add_reference(SlotId slot) { ++references_[slot.value()]; }
  void drop_reference(SlotId slot);

  // The store has not got the block in this slot though it should have: its put was dropped or has
  // failed. Forgotten with the next block of the slot.
  void set_put_owed(SlotId slot, bool owed) { put_owed_[slot.value()] = owed ? 1 : 0; }
  bool put_owed(SlotId slot) const { return put_owed_[slot.value()] != 0; }

  // Tells the policy that a request looked at these blocks (root first; those not in the tier are
  // skipped).
  void visit(std::span<const NodeId> path, const RequestVisit& visit);

  SlotAllocator::Counts counts() const { return allocator_.counts(); }
  uint64_t slots_total() const { return slots_total_; }
  uint64_t evicted() const { return evicted_; }
  uint64_t side_bytes() const {
    return references_.size() *
           (sizeof(references_[0]) + sizeof(retired_[0]) + sizeof(put_owed_[0]));
  }
  const SlotAllocator& allocator() const { return allocator_; }
  uint64_t total_references() const;

 private:
  // What eviction would take if it did not begin at the tail (see Protections).
  NodeId first_of_path(NodeId node) const;
  void demote_window_blocks(const BlockKey& key);

  BlockIndex& index_;
  SlotAllocator allocator_;
  std::unique_ptr<EvictionPolicy> policy_;
  const Protections protections_;
  const uint64_t slots_total_;
  std::vector<uint16_t> references_;  // by slot id
  std::vector<uint8_t> retired_;      // by slot id: in quarantine
  std::vector<uint8_t> put_owed_;     // by slot id
  std::vector<NodeId> path_;          // scratch of visit()
  std::vector<uint32_t> positions_;
  uint64_t evicted_ = 0;
};

}  // namespace tiercel
