// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a rank's two files; docs/format.md has them byte by byte.
//
//   data file:      header (one page), then slots as SlotGeometry places them
//   metadata file:  header A, header B (one page each; the valid one with the higher generation
//                   counts, and a change is written over the other), then one record per slot id
//
// A record says what stands in a slot. It needs no order with the payload: the payload carries a
// frame of its own, and a record whose payload does not match is a miss. A record is bound to its
// folder and to its slot, so that one that was copied elsewhere is none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiercel/frame.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "tier/slot_geometry.h"

namespace tiercel {

inline constexpr uint32_t kDiskFormatVersion = 2;
inline constexpr size_t kDiskHeaderBytes = 4096;
inline constexpr size_t kDiskRecordBytes = 160;

// Random, made with the folder of an instance and the same in all files of all its ranks.
using DiskFolderId = std::array<std::byte, 16>;

enum class DiskFileKind : uint8_t { kData = 0, kMetadata = 1 };

// What both files say of themselves at their beginning.
struct DiskHeader {
  DiskFileKind kind = DiskFileKind::kData;
  DiskFolderId folder_id{};
  uint32_t rank = 0;
  uint32_t rank_count = 1;
  // Of this rank. The extent count of the data file's header is that of its creation; the one of
  // the metadata file counts.
  std::vector<uint64_t> payload_bytes;     // [group]
  std::vector<uint32_t> slots_per_extent;  // [group]
  uint32_t extent_count = 0;
  uint32_t last_extent_slots = 0;  // 0: as the others
  uint64_t generation = 0;         // metadata only: of A and B, the higher counts
  // Metadata only: records with a lower sequence have been cleared (Cache::clear).
  uint64_t first_sequence = 0;

  friend bool operator==(const DiskHeader&, const DiskHeader&) = default;
};

void encode_disk_header(const DiskHeader& header, std::span<std::byte, kDiskHeaderBytes> out);
// kNotFound for a page of zeros, kUnsupported for a newer (or older) version with both numbers,
// kCorrupt for whatever else is no header. Any input is safe.
Result<DiskHeader> decode_disk_header(std::span<const std::byte, kDiskHeaderBytes> bytes);

struct DiskRecord {
  SlotId slot;
  GroupId group;
  Slice slice;
  Codec codec = Codec::kRaw;
  uint32_t token_count = 0;
  uint64_t sequence = 0;       // order of writing within this rank; never used twice
  int64_t written_unix_s = 0;  // wall clock, for ages only
  uint64_t stored_bytes = 0;
  uint64_t raw_bytes = 0;
  uint32_t payload_checksum = 0;
  Namespace name_space;
  BlockKey key;
  std::optional<BlockKey> parent;  // nothing: the first block of its sequence

  friend bool operator==(const DiskRecord&, const DiskRecord&) = default;
};

void encode_disk_record(const DiskRecord& record, const DiskFolderId& folder_id,
                        std::span<std::byte, kDiskRecordBytes> out);
// kNotFound for zeros (an empty slot), kCorrupt for anything that is no record of this folder and
// `slot`. Any input is safe. Allocates nothing unless it fails.
Result<DiskRecord> decode_disk_record(std::span<const std::byte, kDiskRecordBytes> bytes,
                                      const DiskFolderId& folder_id, SlotId slot);

constexpr uint64_t disk_record_offset(SlotId slot) {
  return 2 * kDiskHeaderBytes + uint64_t{slot.value()} * kDiskRecordBytes;
}
// Of the metadata file: A has the even generations, B the odd ones.
constexpr uint64_t disk_header_offset(uint64_t generation) {
  return (generation % 2) * kDiskHeaderBytes;
}
// Of the data file.
constexpr uint64_t disk_slot_offset(uint64_t offset_in_tier) {
  return kDiskHeaderBytes + offset_in_tier;
}
// Lengths of the two files for a geometry.
uint64_t disk_data_bytes(const SlotGeometry& geometry, uint32_t rank);
uint64_t disk_metadata_bytes(const SlotGeometry& geometry);

}  // namespace tiercel
