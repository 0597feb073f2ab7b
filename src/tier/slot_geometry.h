// SPDX-License-Identifier: Apache-2.0
//
// SlotGeometry: from a slot id to a place in a tier's memory.
//
// A tier is cut into extents of equal size. An extent serves one slot class at a time (a class is a
// group: slots of one stride per rank) and holds the same number of slots on every rank, though a
// slot's bytes may differ per rank. Slot id = extent × slots_per_extent_max + index in the extent:
// it has the same meaning on all ranks, and the control plane and the rank workers compute places
// from it independently.
//
// A slot is a page-aligned payload with the frame directly behind it, so that the object that a
// store moves is one piece of memory:
//   [ payload | frame (kFrameBytes) | padding ], stride a multiple of 4096 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiercel/frame.h"
#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

inline constexpr size_t kSlotAlignmentBytes = 4096;

// Stride of a slot for a payload: payload + frame, rounded up to the alignment.
constexpr uint64_t slot_stride_bytes(uint64_t payload_bytes) {
  return (payload_bytes + kFrameBytes + kSlotAlignmentBytes - 1) / kSlotAlignmentBytes *
         kSlotAlignmentBytes;
}

// The frame of a slot whose payload is that long; `slot` is at least payload and frame.
template <typename Byte>
constexpr std::span<Byte, kFrameBytes> slot_frame(std::span<Byte> slot, uint64_t payload_bytes) {
  return slot.subspan(payload_bytes).template first<kFrameBytes>();
}

// payload_bytes[group][rank]: length of a full block's slice; every entry at least 1.
using PayloadBytes = std::vector<std::vector<uint64_t>>;

struct SlotGeometryOptions {
  PayloadBytes payload_bytes;  // 1 to kGroupCountMax groups; equal rank counts, 1 to kRankCountMax
  uint32_t extent_count = 0;   // at least 1
  // Slots that an extent holds if it serves group 0..n-1; the same on every rank. At least 1.
  std::vector<uint32_t> slots_per_extent;
  uint32_t last_extent_slots = 0;  // 0: as the others; else the last extent holds this many
};

class SlotGeometry {
 public:
  // kInvalid with the field, its value and the allowed range. Slot ids fit 32 bits and a tier's
  // length 63 bits (a file offset); what would not fit is refused.
  static Result<SlotGeometry> create(SlotGeometryOptions options);

  // A geometry with one or more groups that has room for `capacity_blocks` blocks of *each* group
  // at once on each rank, cut into about `extents_wanted` extents per group: exact capacity for a
  // single group. kInvalid as create, and if `capacity_blocks` or `extents_wanted` is 0.
  static Result<SlotGeometry> for_blocks(PayloadBytes payload_bytes, uint32_t capacity_blocks,
                                         uint32_t extents_wanted);

  // What create() makes the same geometry from again, in another process for example.
  SlotGeometryOptions options() const {
    return {.payload_bytes = payload_bytes_,
            .extent_count = extent_count_,
            .slots_per_extent = slots_per_extent_,
            .last_extent_slots = last_extent_slots_};
  }

  uint32_t group_count() const { return static_cast<uint32_t>(payload_bytes_.size()); }
  uint32_t rank_count() const { return static_cast<uint32_t>(extent_bytes_.size()); }
  uint32_t extent_count() const { return extent_count_; }
  uint32_t slots_per_extent_max() const { return slots_per_extent_max_; }  // over the groups
  uint32_t slots_in_extent(uint32_t extent, GroupId group) const;
  // All extents serving the group with the most slots. Every slot id that exists is below it.
  uint32_t slot_count_max() const { return slot_count_max_; }

  uint64_t payload_bytes(GroupId group, uint32_t rank) const;
  uint64_t stride_bytes(GroupId group, uint32_t rank) const;
  uint64_t extent_bytes(uint32_t rank) const;  // room for every class
  // Length of the tier: all extents, of which the last may be shorter.
  uint64_t tier_bytes(uint32_t rank) const;

  // At or above extent_count() if there is no such slot.
  uint32_t extent_of(SlotId slot) const { return slot.value() / slots_per_extent_max_; }
  uint32_t index_in_extent(SlotId slot) const { return slot.value() % slots_per_extent_max_; }
  SlotId slot_at(uint32_t extent, uint32_t index) const {
    return SlotId(extent * slots_per_extent_max_ + index);
  }
  // Whether the id names a slot if its extent serves `group`; safe for any values.
  bool exists(SlotId slot, GroupId group) const;
  // Offset of the slot's payload in the tier's memory on `rank`. nullopt if the slot does not exist
  // for this group (never trust an id that came in a message).
  std::optional<uint64_t> offset(SlotId slot, GroupId group, uint32_t rank) const;

 private:
  SlotGeometry() = default;

  // Constant after create(). All sums and products below were checked against overflow there.
  PayloadBytes payload_bytes_;              // [group][rank]
  PayloadBytes stride_bytes_;               // [group][rank]
  std::vector<uint32_t> slots_per_extent_;  // [group]
  std::vector<uint64_t> extent_bytes_;      // [rank]
  std::vector<uint64_t> tier_bytes_;        // [rank]
  uint32_t extent_count_ = 0;
  uint32_t slots_per_extent_max_ = 1;
  uint32_t last_extent_slots_ = 0;  // bound on the slots of the last extent, for every group
  uint32_t slot_count_max_ = 0;
};

}  // namespace tiercel
