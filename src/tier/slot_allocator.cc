// SPDX-License-Identifier: Apache-2.0
#include "tier/slot_allocator.h"

#include <algorithm>

#include "base/assert.h"

namespace tiercel {

namespace {

bool test_bit(const std::vector<uint64_t>& bits, uint32_t position) {
  return (bits[position / 64] >> (position % 64) & 1) != 0;
}

void flip_bit(std::vector<uint64_t>& bits, uint32_t position) {
  bits[position / 64] ^= uint64_t{1} << (position % 64);
}

}  // namespace

SlotAllocator::SlotAllocator(const SlotGeometry& geometry)
    : geometry_(geometry),
      extents_(geometry.extent_count()),
      free_slots_(geometry.slot_count_max()),
      quarantined_((uint64_t{geometry.slot_count_max()} + 63) / 64, 0) {
  for (auto& lists : partial_extents_) std::fill(std::begin(lists), std::end(lists), kNoExtent);
  // From the back, so that the lowest extent is taken first.
  for (uint32_t extent = geometry.extent_count(); extent-- > 0;) link(extent);
  counts_.extents_free = geometry.extent_count();
}

SlotAllocator::~SlotAllocator() = default;

uint32_t SlotAllocator::slots_of(const Extent& extent) const {
  return geometry_.slots_in_extent(static_cast<uint32_t>(&extent - extents_.data()),
                                   GroupId(extent.group));
}

uint32_t* SlotAllocator::list_of(const Extent& extent) {
  if (extent.group == kNoGroup) return &free_extents_;
  const uint64_t occupied = uint64_t{extent.used} + extent.quarantined;
  const uint64_t slots = slots_of(extent);
  if (occupied == slots) return nullptr;
  return &partial_extents_[extent.group][occupied * kFullnessClasses / slots];
}

void SlotAllocator::link(uint32_t extent) {
  uint32_t* const list = list_of(extents_[extent]);
  if (list == nullptr) return;
  extents_[extent].previous = kNoExtent;
  extents_[extent].next = *list;
  if (*list != kNoExtent) extents_[*list].previous = extent;
  *list = extent;
}

void SlotAllocator::unlink(uint32_t extent) {
  Extent& e = extents_[extent];
  uint32_t* const list = list_of(e);
  if (list == nullptr) return;
  (e.previous == kNoExtent ? *list : extents_[e.previous].next) = e.next;
  if (e.next != kNoExtent) extents_[e.next].previous = e.previous;
  e.previous = kNoExtent;
  e.next = kNoExtent;
}

void SlotAllocator::assign(uint32_t extent, GroupId group) {
  unlink(extent);
  extents_[extent].group = group.value();
  link(extent);
  --counts_.extents_free;
  ++counts_.extents_assigned;
  counts_.free_in_extents += slots_of(extents_[extent]);
}

void SlotAllocator::take(uint32_t extent, SlotId slot) {
  unlink(extent);
  ++extents_[extent].used;
  link(extent);
  free_slots_.clear(slot.value());
  ++counts_.used;
  ++used_by_group_[extents_[extent].group];
  --counts_.free_in_extents;
}

std::optional<SlotId> SlotAllocator::allocate(GroupId group) {
  if (!can_allocate(group)) return std::nullopt;
  uint32_t extent = kNoExtent;
  for (uint32_t fullness = kFullnessClasses; fullness-- > 0 && extent == kNoExtent;) {
    extent = partial_extents_[group.value()][fullness];
  }
  if (extent == kNoExtent) {
    extent = free_extents_;
    assign(extent, group);
  }
  // The extent has a free slot, so the first one from its start lies in it.
  const auto free = free_slots_.next_set(geometry_.slot_at(extent, 0).value());
  TIERCEL_ASSERT(free && geometry_.extent_of(SlotId(*free)) == extent,
                 "an extent has fewer free slots than it counts");
  const SlotId slot(*free);
  take(extent, slot);
  return slot;
}

bool SlotAllocator::can_allocate(GroupId group) const {
  if (group.value() >= geometry_.group_count()) return false;
  if (counts_.free_in_extents == 0 && counts_.extents_free == 0) return false;
  if (free_extents_ != kNoExtent) return true;
  const auto& lists = partial_extents_[group.value()];
  return std::any_of(std::begin(lists), std::end(lists),
                     [](uint32_t extent) { return extent != kNoExtent; });
}

bool SlotAllocator::adopt(SlotId slot, GroupId group) {
  if (!geometry_.exists(slot, group)) return false;
  const uint32_t extent = geometry_.extent_of(slot);
  const uint8_t serves = extents_[extent].group;
  if (serves != kNoGroup && serves != group.value()) return false;
  if (!free_slots_.test(slot.value())) return false;
  if (serves == kNoGroup) assign(extent, group);
  take(extent, slot);
  return true;
}

bool SlotAllocator::is_valid(SlotId slot) const {
  const uint32_t extent = geometry_.extent_of(slot);
  return extent < geometry_.extent_count() && extents_[extent].group != kNoGroup &&
         geometry_.exists(slot, GroupId(extents_[extent].group));
}

bool SlotAllocator::is_used(SlotId slot) const {
  return is_valid(slot) && !free_slots_.test(slot.value()) && !test_bit(quarantined_, slot.value());
}

bool SlotAllocator::is_quarantined(SlotId slot) const {
  return is_valid(slot) && test_bit(quarantined_, slot.value());
}

void SlotAllocator::give_back_slot(uint32_t extent, SlotId slot) {
  free_slots_.set(slot.value());
  ++counts_.free_in_extents;
  if (extents_[extent].used != 0 || extents_[extent].quarantined != 0) return;
  counts_.free_in_extents -= slots_of(extents_[extent]);
  extents_[extent].group = kNoGroup;
  --counts_.extents_assigned;
  ++counts_.extents_free;
}

bool SlotAllocator::free(SlotId slot) {
  if (!is_used(slot)) {
    ++counts_.refused_frees;
    return false;
  }
  const uint32_t extent = geometry_.extent_of(slot);
  unlink(extent);
  --extents_[extent].used;
  --counts_.used;
  --used_by_group_[extents_[extent].group];
  give_back_slot(extent, slot);
  link(extent);
  return true;
}

bool SlotAllocator::quarantine(SlotId slot) {
  if (!is_used(slot)) {
    ++counts_.refused_frees;
    return false;
  }
  // Used or in quarantine, the slot is taken: the extent stays in its list.
  Extent& extent = extents_[geometry_.extent_of(slot)];
  --extent.used;
  ++extent.quarantined;
  --counts_.used;
  ++counts_.quarantined;
  --used_by_group_[extent.group];
  flip_bit(quarantined_, slot.value());
  return true;
}

bool SlotAllocator::release_quarantine(SlotId slot) {
  if (!is_quarantined(slot)) {
    ++counts_.refused_frees;
    return false;
  }
  const uint32_t extent = geometry_.extent_of(slot);
  unlink(extent);
  --extents_[extent].quarantined;
  --counts_.quarantined;
  flip_bit(quarantined_, slot.value());
  give_back_slot(extent, slot);
  link(extent);
  return true;
}

std::optional<GroupId> SlotAllocator::group_of(SlotId slot) const {
  if (!is_valid(slot)) return std::nullopt;
  return GroupId(extents_[geometry_.extent_of(slot)].group);
}

SlotAllocator::Counts SlotAllocator::counts() const { return counts_; }

uint64_t SlotAllocator::used(GroupId group) const {
  return group.value() < kGroupCountMax ? used_by_group_[group.value()] : 0;
}

std::string SlotAllocator::check() const {
  Counts found;
  uint64_t used_by_group[kGroupCountMax] = {};
  for (uint32_t at = 0; at < extents_.size(); ++at) {
    const Extent& extent = extents_[at];
    const std::string name = "extent " + std::to_string(at);
    const uint32_t slots = extent.group == kNoGroup ? 0 : slots_of(extent);
    (extent.group == kNoGroup ? found.extents_free : found.extents_assigned) += 1;
    uint32_t used = 0;
    uint32_t quarantined = 0;
    for (uint32_t index = 0; index < geometry_.slots_per_extent_max(); ++index) {
      const uint32_t slot = geometry_.slot_at(at, index).value();
      if (slot >= geometry_.slot_count_max()) break;
      const bool is_free = free_slots_.test(slot);
      const bool in_quarantine = test_bit(quarantined_, slot);
      if (is_free && in_quarantine) return name + " has a slot that is free and in quarantine";
      if (index >= slots && !is_free) return name + " has a taken slot that does not exist";
      quarantined += in_quarantine ? 1 : 0;
      used += !is_free && !in_quarantine ? 1 : 0;
    }
    if (used != extent.used) return name + " counts its used slots wrongly";
    if (quarantined != extent.quarantined) return name + " counts its quarantined slots wrongly";
    found.used += used;
    found.quarantined += quarantined;
    if (extent.group == kNoGroup) continue;
    if (used + quarantined == 0) return name + " is empty and was not given back";
    found.free_in_extents += slots - used - quarantined;
    used_by_group[extent.group] += used;
  }
  if (found.used != counts_.used || found.quarantined != counts_.quarantined ||
      found.free_in_extents != counts_.free_in_extents) {
    return "the counts of slots do not add up";
  }
  if (found.extents_free != counts_.extents_free ||
      found.extents_assigned != counts_.extents_assigned) {
    return "the counts of extents do not add up";
  }
  if (!std::equal(std::begin(used_by_group), std::end(used_by_group), std::begin(used_by_group_))) {
    return "the used slots by group do not add up";
  }
  return check_lists();
}

std::string SlotAllocator::check_lists() const {
  uint64_t listed = 0;
  const auto walk = [&](uint32_t head, uint8_t group, uint32_t fullness) -> std::string {
    uint32_t previous = kNoExtent;
    for (uint32_t at = head; at != kNoExtent; at = extents_[at].next) {
      const Extent& extent = extents_[at];
      const std::string name = "extent " + std::to_string(at);
      if (++listed > extents_.size()) return "the lists of extents run in a circle";
      if (extent.previous != previous) return name + " is linked wrongly";
      if (extent.group != group) return name + " is in the list of another group";
      previous = at;
      if (group == kNoGroup) continue;
      const uint64_t occupied = uint64_t{extent.used} + extent.quarantined;
      if (occupied * kFullnessClasses / slots_of(extent) != fullness) {
        return name + " is in the list of another fullness";
      }
    }
    return {};
  };
  std::string wrong = walk(free_extents_, kNoGroup, 0);
  for (uint8_t group = 0; group < kGroupCountMax; ++group) {
    for (uint32_t fullness = 0; fullness < kFullnessClasses; ++fullness) {
      if (wrong.empty()) wrong = walk(partial_extents_[group][fullness], group, fullness);
    }
  }
  if (!wrong.empty()) return wrong;
  const auto full = std::count_if(extents_.begin(), extents_.end(), [this](const Extent& extent) {
    return extent.group != kNoGroup && extent.used + extent.quarantined == slots_of(extent);
  });
  if (listed + static_cast<uint64_t>(full) != extents_.size()) return "an extent is in no list";
  return {};
}

}  // namespace tiercel
