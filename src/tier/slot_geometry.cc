// SPDX-License-Identifier: Apache-2.0
#include "tier/slot_geometry.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tiercel {

namespace {

// File offsets are signed.
constexpr uint64_t kTierBytesMax = INT64_MAX;
constexpr uint64_t kPayloadBytesMax = kTierBytesMax - kFrameBytes - kSlotAlignmentBytes;

Error refuse(const std::string& field, uint64_t value, const std::string& allowed) {
  return Error(Code::kInvalid, "slot geometry: " + field + " is " + std::to_string(value) +
                                   "; allowed: " + allowed);
}

Status check_payloads(const PayloadBytes& payload_bytes) {
  if (payload_bytes.empty() || payload_bytes.size() > kGroupCountMax) {
    return refuse("group count", payload_bytes.size(), "1 to " + std::to_string(kGroupCountMax));
  }
  const size_t rank_count = payload_bytes[0].size();
  if (rank_count == 0 || rank_count > kRankCountMax) {
    return refuse("rank count", rank_count, "1 to " + std::to_string(kRankCountMax));
  }
  for (size_t group = 0; group < payload_bytes.size(); ++group) {
    if (payload_bytes[group].size() != rank_count) {
      return refuse("rank count of group " + std::to_string(group), payload_bytes[group].size(),
                    std::to_string(rank_count) + ", as in group 0");
    }
    for (size_t rank = 0; rank < rank_count; ++rank) {
      const uint64_t bytes = payload_bytes[group][rank];
      if (bytes >= 1 && bytes <= kPayloadBytesMax) continue;
      return refuse(
          "payload_bytes of group " + std::to_string(group) + ", rank " + std::to_string(rank),
          bytes, "1 to " + std::to_string(kPayloadBytesMax));
    }
  }
  return {};
}

Error too_long(uint32_t rank) {
  return Error(Code::kInvalid, "slot geometry: the tier of rank " + std::to_string(rank) +
                                   " would be longer than " + std::to_string(kTierBytesMax) +
                                   " bytes; use fewer or smaller slots");
}

bool multiply(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product) && *product <= kTierBytesMax;
}

}  // namespace

Result<SlotGeometry> SlotGeometry::create(SlotGeometryOptions options) {
  TIERCEL_TRY(check_payloads(options.payload_bytes));
  if (options.extent_count == 0) return refuse("extent_count", 0, "at least 1");
  const size_t group_count = options.payload_bytes.size();
  if (options.slots_per_extent.size() != group_count) {
    return refuse("number of entries in slots_per_extent", options.slots_per_extent.size(),
                  std::to_string(group_count) + ", one for each group");
  }
  for (size_t group = 0; group < group_count; ++group) {
    if (options.slots_per_extent[group] != 0) continue;
    return refuse("slots_per_extent of group " + std::to_string(group), 0, "at least 1");
  }
  SlotGeometry geometry;
  geometry.extent_count_ = options.extent_count;
  geometry.slots_per_extent_max_ =
      *std::max_element(options.slots_per_extent.begin(), options.slots_per_extent.end());
  if (options.last_extent_slots > geometry.slots_per_extent_max_) {
    return refuse("last_extent_slots", options.last_extent_slots,
                  "0 to " + std::to_string(geometry.slots_per_extent_max_));
  }
  geometry.last_extent_slots_ =
      options.last_extent_slots == 0 ? geometry.slots_per_extent_max_ : options.last_extent_slots;
  const uint64_t slot_count = uint64_t{options.extent_count - 1} * geometry.slots_per_extent_max_ +
                              geometry.last_extent_slots_;
  if (slot_count > UINT32_MAX) {
    return refuse("number of slots", slot_count, "1 to " + std::to_string(UINT32_MAX));
  }
  geometry.slot_count_max_ = static_cast<uint32_t>(slot_count);
  geometry.slots_per_extent_ = std::move(options.slots_per_extent);
  geometry.payload_bytes_ = std::move(options.payload_bytes);
  geometry.stride_bytes_ = geometry.payload_bytes_;
  for (auto& strides : geometry.stride_bytes_) {
    for (uint64_t& bytes : strides) bytes = slot_stride_bytes(bytes);
  }
  const auto rank_count = static_cast<uint32_t>(geometry.payload_bytes_[0].size());
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    uint64_t extent_bytes = 0;
    uint64_t last_bytes = 0;
    for (uint32_t group = 0; group < group_count; ++group) {
      const uint64_t stride = geometry.stride_bytes_[group][rank];
      uint64_t bytes = 0;
      if (!multiply(stride, geometry.slots_per_extent_[group], &bytes)) return too_long(rank);
      extent_bytes = std::max(extent_bytes, bytes);
      last_bytes = std::max(last_bytes, stride * std::min(geometry.slots_per_extent_[group],
                                                          geometry.last_extent_slots_));
    }
    uint64_t tier_bytes = 0;
    if (!multiply(extent_bytes, options.extent_count - 1, &tier_bytes) ||
        tier_bytes > kTierBytesMax - last_bytes) {
      return too_long(rank);
    }
    geometry.extent_bytes_.push_back(extent_bytes);
    geometry.tier_bytes_.push_back(tier_bytes + last_bytes);
  }
  return geometry;
}

Result<SlotGeometry> SlotGeometry::for_blocks(PayloadBytes payload_bytes, uint32_t capacity_blocks,
                                              uint32_t extents_wanted) {
  TIERCEL_TRY(check_payloads(payload_bytes));
  if (capacity_blocks == 0) return refuse("capacity_blocks", 0, "at least 1");
  if (extents_wanted == 0) return refuse("extents_wanted", 0, "at least 1");
  const auto divide_up = [](uint32_t a, uint32_t b) { return a / b + (a % b != 0 ? 1 : 0); };
  const size_t group_count = payload_bytes.size();
  const uint32_t slots_per_extent = divide_up(capacity_blocks, extents_wanted);
  const uint32_t extents_per_group = divide_up(capacity_blocks, slots_per_extent);
  const uint64_t extent_count = uint64_t{extents_per_group} * group_count;
  if (extent_count > UINT32_MAX) {
    return refuse("number of extents", extent_count, "1 to " + std::to_string(UINT32_MAX));
  }
  SlotGeometryOptions options;
  options.payload_bytes = std::move(payload_bytes);
  options.extent_count = static_cast<uint32_t>(extent_count);
  options.slots_per_extent.assign(group_count, slots_per_extent);
  if (group_count == 1) {
    options.last_extent_slots = capacity_blocks - (extents_per_group - 1) * slots_per_extent;
  }
  return create(std::move(options));
}

uint32_t SlotGeometry::slots_in_extent(uint32_t extent, GroupId group) const {
  if (extent >= extent_count_ || group.value() >= group_count()) return 0;
  const uint32_t slots = slots_per_extent_[group.value()];
  return extent + 1 == extent_count_ ? std::min(slots, last_extent_slots_) : slots;
}

uint64_t SlotGeometry::payload_bytes(GroupId group, uint32_t rank) const {
  return payload_bytes_[group.value()][rank];
}

uint64_t SlotGeometry::stride_bytes(GroupId group, uint32_t rank) const {
  return stride_bytes_[group.value()][rank];
}

uint64_t SlotGeometry::extent_bytes(uint32_t rank) const { return extent_bytes_[rank]; }

uint64_t SlotGeometry::tier_bytes(uint32_t rank) const { return tier_bytes_[rank]; }

bool SlotGeometry::exists(SlotId slot, GroupId group) const {
  return index_in_extent(slot) < slots_in_extent(extent_of(slot), group);
}

std::optional<uint64_t> SlotGeometry::offset(SlotId slot, GroupId group, uint32_t rank) const {
  if (rank >= rank_count() || !exists(slot, group)) return std::nullopt;
  return extent_of(slot) * extent_bytes_[rank] +
         index_in_extent(slot) * stride_bytes_[group.value()][rank];
}

}  // namespace tiercel
