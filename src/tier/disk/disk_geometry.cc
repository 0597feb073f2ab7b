// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_geometry.h"

#include <algorithm>
#include <string>

#include "base/quantity.h"
#include "tier/disk/disk_format.h"

namespace tiercel {
namespace {

// Products of sizes and counts, before it is known whether they fit.
__extension__ using Wide = unsigned __int128;

// One extent below this saves nothing: with one group the last extent may have any length.
constexpr uint32_t kSlotsPerExtentMin = 1024;
// Keeps slot ids within 32 bits, whatever the sizes of the groups.
constexpr uint32_t kSlotsPerExtentMax = uint32_t{1} << 20;

Wide header_bytes(const PayloadBytes& payload_bytes) {
  return Wide{3} * kDiskHeaderBytes * payload_bytes[0].size();
}

// A slot of the group on all ranks, without its record.
Wide slot_bytes(const PayloadBytes& payload_bytes, size_t group) {
  Wide sum = 0;
  for (const uint64_t payload : payload_bytes[group]) sum += slot_stride_bytes(payload);
  return sum;
}

Wide record_bytes(const PayloadBytes& payload_bytes) {
  return Wide{kDiskRecordBytes} * payload_bytes[0].size();
}

// Of a whole extent: on each rank it has room for every group.
uint64_t extent_bytes_on(const PayloadBytes& payload_bytes,
                         const std::vector<uint32_t>& slots_per_extent, size_t rank) {
  Wide largest = 0;
  for (size_t group = 0; group < payload_bytes.size(); ++group) {
    largest = std::max(
        largest, Wide{slot_stride_bytes(payload_bytes[group][rank])} * slots_per_extent[group]);
  }
  return static_cast<uint64_t>(std::min(largest, Wide{UINT64_MAX}));
}

Wide extent_bytes(const PayloadBytes& payload_bytes,
                  const std::vector<uint32_t>& slots_per_extent) {
  Wide sum = record_bytes(payload_bytes) *
             *std::max_element(slots_per_extent.begin(), slots_per_extent.end());
  for (size_t rank = 0; rank < payload_bytes[0].size(); ++rank) {
    sum += extent_bytes_on(payload_bytes, slots_per_extent, rank);
  }
  return sum;
}

Error too_small(uint64_t bytes, Wide least, const std::string& what) {
  const auto least_bytes = static_cast<uint64_t>(std::min(least, Wide{UINT64_MAX}));
  return Error(Code::kInvalid, "disk_bytes is " + exact_bytes(bytes) + "; allowed: at least " +
                                   exact_bytes(least_bytes) + ", which is " + what);
}

// Refuses what no geometry can be made of.
Status check(const PayloadBytes& payload_bytes, const std::vector<uint32_t>& slots_per_extent) {
  return SlotGeometry::create({.payload_bytes = payload_bytes,
                               .extent_count = 1,
                               .slots_per_extent = slots_per_extent,
                               .last_extent_slots = 1})
      .map([](const SlotGeometry&) {});
}

// Slots of one group that fit.
Wide slots_in(const PayloadBytes& payload_bytes, uint64_t bytes) {
  const Wide headers = header_bytes(payload_bytes);
  if (bytes <= headers) return 0;
  const Wide slot = slot_bytes(payload_bytes, 0) + record_bytes(payload_bytes);
  return std::min((bytes - headers) / slot, Wide{UINT32_MAX});
}

// Extents of about the same share of `bytes`, whose slots fill them for every group.
std::vector<uint32_t> shared_extents(const PayloadBytes& payload_bytes, uint64_t bytes) {
  const uint64_t share = bytes / (uint64_t{kDiskExtentsPerGroup} * payload_bytes.size());
  std::vector<uint32_t> slots;
  for (size_t group = 0; group < payload_bytes.size(); ++group) {
    const Wide count = share / (slot_bytes(payload_bytes, group) + record_bytes(payload_bytes));
    slots.push_back(static_cast<uint32_t>(std::clamp(count, Wide{1}, Wide{kSlotsPerExtentMax})));
  }
  const std::vector<uint32_t> first = slots;
  for (size_t group = 0; group < payload_bytes.size(); ++group) {
    uint64_t count = kSlotsPerExtentMax;
    for (size_t rank = 0; rank < payload_bytes[group].size(); ++rank) {
      count = std::min(count, extent_bytes_on(payload_bytes, first, rank) /
                                  slot_stride_bytes(payload_bytes[group][rank]));
    }
    slots[group] = static_cast<uint32_t>(count);
  }
  return slots;
}

}  // namespace

uint64_t disk_files_bytes(const SlotGeometry& geometry) {
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < geometry.rank_count(); ++rank) {
    sum += disk_data_bytes(geometry, rank) + disk_metadata_bytes(geometry);
  }
  return sum;
}

Result<SlotGeometry> new_disk_geometry(const PayloadBytes& payload_bytes, uint64_t bytes) {
  TIERCEL_TRY(check(payload_bytes, std::vector<uint32_t>(payload_bytes.size(), 1)));
  if (payload_bytes.size() > 1) {
    return fitted_disk_geometry(payload_bytes, shared_extents(payload_bytes, bytes), bytes);
  }
  const auto slots = static_cast<uint32_t>(slots_in(payload_bytes, bytes));
  const uint32_t share = slots / kDiskExtentsPerGroup + 1;
  return fitted_disk_geometry(payload_bytes, {std::max(share, kSlotsPerExtentMin)}, bytes);
}

Result<SlotGeometry> fitted_disk_geometry(const PayloadBytes& payload_bytes,
                                          const std::vector<uint32_t>& slots_per_extent,
                                          uint64_t bytes) {
  TIERCEL_TRY(check(payload_bytes, slots_per_extent));
  const Wide headers = header_bytes(payload_bytes);
  SlotGeometryOptions options{.payload_bytes = payload_bytes, .slots_per_extent = slots_per_extent};
  if (payload_bytes.size() == 1) {
    const auto slots = static_cast<uint32_t>(slots_in(payload_bytes, bytes));
    if (slots == 0) {
      return too_small(bytes, headers + slot_bytes(payload_bytes, 0) + record_bytes(payload_bytes),
                       "one block on all ranks");
    }
    options.extent_count = (slots - 1) / slots_per_extent[0] + 1;
    options.last_extent_slots = slots - (options.extent_count - 1) * slots_per_extent[0];
    return SlotGeometry::create(std::move(options));
  }
  const Wide extent = extent_bytes(payload_bytes, slots_per_extent);
  const Wide extents_max =
      UINT32_MAX / *std::max_element(slots_per_extent.begin(), slots_per_extent.end());
  const Wide extents = bytes <= headers ? 0 : std::min((bytes - headers) / extent, extents_max);
  if (extents < payload_bytes.size()) {
    return too_small(bytes, headers + extent * payload_bytes.size(),
                     "one extent of " +
                         format_bytes(static_cast<uint64_t>(std::min(extent, Wide{UINT64_MAX}))) +
                         " for each group");
  }
  options.extent_count = static_cast<uint32_t>(extents);
  return SlotGeometry::create(std::move(options));
}

}  // namespace tiercel
