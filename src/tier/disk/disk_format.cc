// SPDX-License-Identifier: Apache-2.0
//
// A header, 4096 bytes:                      A record, 160 bytes:
//
//   offset  bytes                              offset  bytes
//      0      8  magic "TIERCELD"                 0      4  magic "TCDR"
//      8      4  format version                   4      1  flags: bit 0, has a parent
//     12      1  kind: 0 data, 1 metadata         5      1  group
//     13      3  zero                             6      1  codec
//     16     16  folder id                        7      1  checksum kind
//     32      4  rank                             8      2  rank
//     36      4  rank count                      10      2  rank count
//     40      4  group count                     12      4  token count
//     44      4  extent count                    16      8  sequence
//     48      4  last extent slots               24      8  written, seconds since 1970
//     52      4  zero                            32      8  stored bytes
//     56      8  generation                      40      8  raw bytes
//     64      8  first sequence                  48      4  payload checksum
//     72     64  payload bytes, 8 groups         52      4  slot
//    136     32  slots per extent, 8 groups      56     32  namespace
//    168   3924  zero                            88     32  block key
//   4092      4  CRC32C of bytes 0 to 4091      120     32  parent's key, or zero
//                                               152      4  zero
//                                               156      4  CRC32C of folder id, slot and
//                                                           bytes 0 to 155
//
// All numbers little-endian and at multiples of their size.

#include "tier/disk/disk_format.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "base/assert.h"
#include "base/checksum.h"
#include "key/little_endian.h"

namespace tiercel {
namespace {

using HeaderBytes = std::span<const std::byte, kDiskHeaderBytes>;
using RecordBytes = std::span<const std::byte, kDiskRecordBytes>;

namespace header_at {
constexpr std::string_view kMagic = "TIERCELD";
constexpr size_t kVersion = 8;
constexpr size_t kKind = 12;
constexpr size_t kZeroBehindKind = 13;
constexpr size_t kFolderId = 16;
constexpr size_t kRank = 32;
constexpr size_t kRankCount = 36;
constexpr size_t kGroupCount = 40;
constexpr size_t kExtentCount = 44;
constexpr size_t kLastExtentSlots = 48;
constexpr size_t kZeroBehindExtents = 52;
constexpr size_t kGeneration = 56;
constexpr size_t kFirstSequence = 64;
constexpr size_t kPayloadBytes = 72;
constexpr size_t kSlotsPerExtent = kPayloadBytes + kGroupCountMax * sizeof(uint64_t);
constexpr size_t kZero = kSlotsPerExtent + kGroupCountMax * sizeof(uint32_t);
constexpr size_t kChecksum = kDiskHeaderBytes - sizeof(uint32_t);
}  // namespace header_at

namespace record_at {
constexpr std::string_view kMagic = "TCDR";
constexpr size_t kFlags = 4;
constexpr size_t kGroup = 5;
constexpr size_t kCodec = 6;
constexpr size_t kChecksumKind = 7;
constexpr size_t kRank = 8;
constexpr size_t kRankCount = 10;
constexpr size_t kTokenCount = 12;
constexpr size_t kSequence = 16;
constexpr size_t kWritten = 24;
constexpr size_t kStoredBytes = 32;
constexpr size_t kRawBytes = 40;
constexpr size_t kPayloadChecksum = 48;
constexpr size_t kSlot = 52;
constexpr size_t kNamespace = 56;
constexpr size_t kKey = 88;
constexpr size_t kParent = 120;
constexpr size_t kZero = 152;
constexpr size_t kChecksum = kDiskRecordBytes - sizeof(uint32_t);
}  // namespace record_at

constexpr std::byte kHasParent{1};

// Each byte is compared with the one before it: memcmp is much faster than a loop over bytes, and
// empty slots are what a restart sees most.
bool all_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

std::string describe_version(uint32_t version) {
  const bool newer = version > kDiskFormatVersion;
  return "disk format version " + std::to_string(version) + " is " + (newer ? "newer" : "older") +
         " than version " + std::to_string(kDiskFormatVersion) + ", the one that this build reads";
}

uint32_t group_count_of(HeaderBytes bytes) {
  return load_little_endian<uint32_t>(&bytes[header_at::kGroupCount]);
}

bool reserved_is_zero(HeaderBytes bytes) {
  using namespace header_at;  // NOLINT: nothing but the offsets
  const size_t groups = group_count_of(bytes);
  const size_t payloads_end = kPayloadBytes + groups * sizeof(uint64_t);
  const size_t slots_end = kSlotsPerExtent + groups * sizeof(uint32_t);
  return all_zero(bytes.subspan(kZeroBehindKind, kFolderId - kZeroBehindKind)) &&
         all_zero(bytes.subspan(kZeroBehindExtents, kGeneration - kZeroBehindExtents)) &&
         all_zero(bytes.subspan(payloads_end, kSlotsPerExtent - payloads_end)) &&
         all_zero(bytes.subspan(slots_end, kZero - slots_end)) &&
         all_zero(bytes.subspan(kZero, kChecksum - kZero));
}

DiskHeader fields_of(HeaderBytes bytes) {
  using namespace header_at;  // NOLINT: nothing but the offsets
  DiskHeader header;
  header.kind = static_cast<DiskFileKind>(bytes[kKind]);
  std::memcpy(header.folder_id.data(), &bytes[kFolderId], header.folder_id.size());
  header.rank = load_little_endian<uint32_t>(&bytes[kRank]);
  header.rank_count = load_little_endian<uint32_t>(&bytes[kRankCount]);
  header.extent_count = load_little_endian<uint32_t>(&bytes[kExtentCount]);
  header.last_extent_slots = load_little_endian<uint32_t>(&bytes[kLastExtentSlots]);
  header.generation = load_little_endian<uint64_t>(&bytes[kGeneration]);
  header.first_sequence = load_little_endian<uint64_t>(&bytes[kFirstSequence]);
  for (size_t group = 0; group < group_count_of(bytes); ++group) {
    header.payload_bytes.push_back(
        load_little_endian<uint64_t>(&bytes[kPayloadBytes + group * sizeof(uint64_t)]));
    header.slots_per_extent.push_back(
        load_little_endian<uint32_t>(&bytes[kSlotsPerExtent + group * sizeof(uint32_t)]));
  }
  return header;
}

// What is wrong with the fields of a header whose checksum is right, or nullptr.
const char* fault_of(const DiskHeader& header) {
  if (header.rank_count == 0 || header.rank_count > kRankCountMax ||
      header.rank >= header.rank_count) {
    return "disk header with a rank that cannot be";
  }
  if (std::count(header.payload_bytes.begin(), header.payload_bytes.end(), 0u) != 0 ||
      std::count(header.slots_per_extent.begin(), header.slots_per_extent.end(), 0u) != 0 ||
      header.extent_count == 0) {
    return "disk header with an empty geometry";
  }
  if (header.kind == DiskFileKind::kData &&
      (header.generation != 0 || header.first_sequence != 0)) {
    return "header of a data file with fields of a metadata file";
  }
  return nullptr;
}

// In one call over one copy: half the time of two calls, and a restart makes millions.
uint32_t checksum_of_record(RecordBytes bytes, const DiskFolderId& folder_id, uint32_t slot) {
  constexpr size_t kSlotBehindId = sizeof(DiskFolderId);
  constexpr size_t kRecordBehindSlot = kSlotBehindId + sizeof(slot);
  std::array<std::byte, kRecordBehindSlot + record_at::kChecksum> input;
  std::memcpy(input.data(), folder_id.data(), folder_id.size());
  store_little_endian(slot, &input[kSlotBehindId]);
  std::memcpy(&input[kRecordBehindSlot], bytes.data(), record_at::kChecksum);
  return crc32c(input);
}

// What is wrong with bytes that are not all zero, or nullptr. Constants, so that asking allocates
// nothing.
const char* fault_of(RecordBytes bytes, const DiskFolderId& folder_id, SlotId slot) {
  using namespace record_at;  // NOLINT: nothing but the offsets
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return "no record magic";
  if (load_little_endian<uint32_t>(&bytes[kChecksum]) !=
      checksum_of_record(bytes, folder_id, slot.value())) {
    return "torn record, or one of another folder or slot";
  }
  if (load_little_endian<uint32_t>(&bytes[kSlot]) != slot.value()) return "record of another slot";
  const bool has_parent = bytes[kFlags] == kHasParent;
  if (!has_parent && bytes[kFlags] != std::byte{0}) return "unknown flags in the record";
  if (!has_parent && !all_zero(bytes.subspan<kParent, kZero - kParent>())) {
    return "record without a parent that names one";
  }
  if (bytes[kCodec] != static_cast<std::byte>(Codec::kRaw)) return "unknown codec in the record";
  if (bytes[kChecksumKind] != static_cast<std::byte>(ChecksumKind::kCrc32c)) {
    return "unknown checksum kind in the record";
  }
  if (!all_zero(bytes.subspan<kZero, kChecksum - kZero>())) {
    return "reserved bytes of the record are not zero";
  }
  return nullptr;
}

}  // namespace

void encode_disk_header(const DiskHeader& header, std::span<std::byte, kDiskHeaderBytes> out) {
  using namespace header_at;  // NOLINT: nothing but the offsets
  const size_t groups = header.payload_bytes.size();
  TIERCEL_ASSERT(groups <= kGroupCountMax && header.slots_per_extent.size() == groups,
                 "a header has one geometry for each group");
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  store_little_endian(kDiskFormatVersion, &out[kVersion]);
  out[kKind] = static_cast<std::byte>(header.kind);
  std::memcpy(&out[kFolderId], header.folder_id.data(), header.folder_id.size());
  store_little_endian(header.rank, &out[kRank]);
  store_little_endian(header.rank_count, &out[kRankCount]);
  store_little_endian(static_cast<uint32_t>(groups), &out[kGroupCount]);
  store_little_endian(header.extent_count, &out[kExtentCount]);
  store_little_endian(header.last_extent_slots, &out[kLastExtentSlots]);
  store_little_endian(header.generation, &out[kGeneration]);
  store_little_endian(header.first_sequence, &out[kFirstSequence]);
  for (size_t group = 0; group < groups; ++group) {
    store_little_endian(header.payload_bytes[group],
                        &out[kPayloadBytes + group * sizeof(uint64_t)]);
    store_little_endian(header.slots_per_extent[group],
                        &out[kSlotsPerExtent + group * sizeof(uint32_t)]);
  }
  store_little_endian(crc32c(out.first<kChecksum>()), &out[kChecksum]);
}

Result<DiskHeader> decode_disk_header(HeaderBytes bytes) {
  using namespace header_at;  // NOLINT: nothing but the offsets
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    if (all_zero(bytes)) return Error(Code::kNotFound, "no disk header yet");
    return Error(Code::kCorrupt, "no disk header magic");
  }
  // Before the checksum: another version may keep it elsewhere.
  const auto version = load_little_endian<uint32_t>(&bytes[kVersion]);
  if (version != kDiskFormatVersion) {
    return Error(Code::kUnsupported, describe_version(version));
  }
  if (load_little_endian<uint32_t>(&bytes[kChecksum]) != crc32c(bytes.first<kChecksum>())) {
    return Error(Code::kCorrupt, "checksum of the disk header does not match");
  }
  if (bytes[kKind] != static_cast<std::byte>(DiskFileKind::kData) &&
      bytes[kKind] != static_cast<std::byte>(DiskFileKind::kMetadata)) {
    return Error(Code::kCorrupt, "disk header of an unknown kind of file");
  }
  if (group_count_of(bytes) == 0 || group_count_of(bytes) > kGroupCountMax) {
    return Error(Code::kCorrupt, "disk header with a number of groups that cannot be");
  }
  if (!reserved_is_zero(bytes)) {
    return Error(Code::kCorrupt, "reserved bytes of the disk header are not zero");
  }
  DiskHeader header = fields_of(bytes);
  if (const char* fault = fault_of(header)) return Error(Code::kCorrupt, fault);
  return header;
}

void encode_disk_record(const DiskRecord& record, const DiskFolderId& folder_id,
                        std::span<std::byte, kDiskRecordBytes> out) {
  using namespace record_at;  // NOLINT: nothing but the offsets
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  out[kGroup] = std::byte{record.group.value()};
  out[kCodec] = static_cast<std::byte>(record.codec);
  out[kChecksumKind] = static_cast<std::byte>(ChecksumKind::kCrc32c);
  store_little_endian(record.slice.rank, &out[kRank]);
  store_little_endian(record.slice.rank_count, &out[kRankCount]);
  store_little_endian(record.token_count, &out[kTokenCount]);
  store_little_endian(record.sequence, &out[kSequence]);
  store_little_endian(record.written_unix_s, &out[kWritten]);
  store_little_endian(record.stored_bytes, &out[kStoredBytes]);
  store_little_endian(record.raw_bytes, &out[kRawBytes]);
  store_little_endian(record.payload_checksum, &out[kPayloadChecksum]);
  store_little_endian(record.slot.value(), &out[kSlot]);
  std::memcpy(&out[kNamespace], record.name_space.bytes.data(), record.name_space.bytes.size());
  std::memcpy(&out[kKey], record.key.bytes.data(), record.key.bytes.size());
  if (record.parent) {
    out[kFlags] = kHasParent;
    std::memcpy(&out[kParent], record.parent->bytes.data(), record.parent->bytes.size());
  }
  store_little_endian(checksum_of_record(out, folder_id, record.slot.value()), &out[kChecksum]);
}

Result<DiskRecord> decode_disk_record(RecordBytes bytes, const DiskFolderId& folder_id,
                                      SlotId slot) {
  using namespace record_at;  // NOLINT: nothing but the offsets
  // Short enough to need no memory: a new tier has millions of empty slots.
  if (all_zero(bytes)) return Error(Code::kNotFound, "empty slot");
  if (const char* fault = fault_of(bytes, folder_id, slot)) return Error(Code::kCorrupt, fault);
  DiskRecord record;
  record.slot = slot;
  record.group = GroupId(std::to_integer<uint8_t>(bytes[kGroup]));
  record.slice.rank = load_little_endian<uint16_t>(&bytes[kRank]);
  record.slice.rank_count = load_little_endian<uint16_t>(&bytes[kRankCount]);
  record.codec = static_cast<Codec>(bytes[kCodec]);
  record.token_count = load_little_endian<uint32_t>(&bytes[kTokenCount]);
  record.sequence = load_little_endian<uint64_t>(&bytes[kSequence]);
  record.written_unix_s = load_little_endian<int64_t>(&bytes[kWritten]);
  record.stored_bytes = load_little_endian<uint64_t>(&bytes[kStoredBytes]);
  record.raw_bytes = load_little_endian<uint64_t>(&bytes[kRawBytes]);
  record.payload_checksum = load_little_endian<uint32_t>(&bytes[kPayloadChecksum]);
  std::memcpy(record.name_space.bytes.data(), &bytes[kNamespace], record.name_space.bytes.size());
  std::memcpy(record.key.bytes.data(), &bytes[kKey], record.key.bytes.size());
  if (bytes[kFlags] == kHasParent) {
    std::memcpy(record.parent.emplace().bytes.data(), &bytes[kParent], sizeof(BlockKey));
  }
  return record;
}

uint64_t disk_data_bytes(const SlotGeometry& geometry, uint32_t rank) {
  return kDiskHeaderBytes + geometry.tier_bytes(rank);
}

uint64_t disk_metadata_bytes(const SlotGeometry& geometry) {
  return disk_record_offset(SlotId(geometry.slot_count_max()));
}

}  // namespace tiercel
