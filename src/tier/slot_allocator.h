// SPDX-License-Identifier: Apache-2.0
//
// SlotAllocator: the control side of a tier: which slots are free, used, or in quarantine.
//
// Extents are given to a slot class when it needs room and given back when their last slot is free.
// A slot in quarantine belongs to a transfer that passed its deadline but may still touch the
// memory: it is neither free nor used until the transfer has really let go. Ids that do not exist
// are refused like ids in the wrong state.
//
// Invariant, always: free + used + quarantined = total, per extent and per tier, and every slot is
// in exactly one state. Freeing a slot that is not used is refused and counted. Threads: control
// thread only. allocate() and free() take constant time and allocate no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiercel/ids.h"

#include "tier/free_slot_map.h"
#include "tier/slot_geometry.h"

namespace tiercel {

class SlotAllocator {
 public:
  // Keeps a copy of the geometry.
  explicit SlotAllocator(const SlotGeometry& geometry);
  ~SlotAllocator();

  // A free slot for `group`, taking a new extent if the class has none left; nullopt if there is
  // none. Extents that are fuller (by eighths) come first, so that emptier ones can be given back;
  // in an extent, the lowest free slot.
  std::optional<SlotId> allocate(GroupId group);
  bool can_allocate(GroupId group) const;

  // Takes a given free slot, as recovery finds it in use; false if it is not free or its extent
  // serves another group.
  bool adopt(SlotId slot, GroupId group);

  // Used → free. False (and counted) if the slot was not used.
  bool free(SlotId slot);
  // Used → quarantined → free (when the transfer has let go). False and counted if not in that
  // state.
  bool quarantine(SlotId slot);
  bool release_quarantine(SlotId slot);

  // The group that the slot's extent serves; nullopt if the extent is unassigned or the id out of
  // range.
  std::optional<GroupId> group_of(SlotId slot) const;
  bool is_used(SlotId slot) const;
  bool is_quarantined(SlotId slot) const;

  struct Counts {
    uint64_t used = 0, quarantined = 0, free_in_extents = 0;  // slots
    uint32_t extents_assigned = 0, extents_free = 0;
    uint64_t refused_frees = 0;  // double frees and quarantines met and refused
  };
  Counts counts() const;
  uint64_t used(GroupId group) const;

  // Every invariant; empty if all hold, else what is wrong. Linear, for tests and simulation.
  std::string check() const;

  const SlotGeometry& geometry() const { return geometry_; }

 private:
  static constexpr uint32_t kNoExtent = UINT32_MAX;
  static constexpr uint8_t kNoGroup = UINT8_MAX;
  // Extents with free slots are listed by how full they are; those without are in no list.
  static constexpr uint32_t kFullnessClasses = 8;

  struct Extent {
    uint32_t used = 0;
    uint32_t quarantined = 0;
    uint32_t previous = kNoExtent;  // in the list that the extent is in
    uint32_t next = kNoExtent;
    uint8_t group = kNoGroup;
  };

  // The list an extent belongs in by its group and counts; nullptr for a full one.
  uint32_t* list_of(const Extent& extent);
  uint32_t slots_of(const Extent& extent) const;
  void link(uint32_t extent);
  void unlink(uint32_t extent);
  bool is_valid(SlotId slot) const;
  void take(uint32_t extent, SlotId slot);
  void assign(uint32_t extent, GroupId group);
  // The extent is out of its list and its counts are without the slot already.
  void give_back_slot(uint32_t extent, SlotId slot);
  std::string check_lists() const;

  const SlotGeometry geometry_;
  std::vector<Extent> extents_;
  uint32_t free_extents_ = kNoExtent;
  uint32_t partial_extents_[kGroupCountMax][kFullnessClasses];
  uint64_t used_by_group_[kGroupCountMax] = {};
  FreeSlotMap free_slots_;             // also set for ids that do not exist in their extent
  std::vector<uint64_t> quarantined_;  // one bit a slot
  Counts counts_;
};

}  // namespace tiercel
