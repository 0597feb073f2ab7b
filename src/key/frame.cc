// SPDX-License-Identifier: Apache-2.0
//
//   offset  bytes                       offset  bytes
//      0      8  magic "TIERCELF"          86      1  checksum kind
//      8      4  format version            87      1  zero
//     12      4  token count               88      8  stored bytes
//     16     32  namespace                 96      8  raw bytes
//     48     32  block key                104      8  writer epoch
//     80      2  rank                     112      4  payload checksum
//     82      2  rank count               116     72  zero
//     84      1  group                    188      4  CRC32C of bytes 0 to 187
//     85      1  codec
//
// All numbers little-endian and at multiples of their size.

#include "tiercel/frame.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/checksum.h"
#include "key/little_endian.h"

namespace tiercel {
namespace {

constexpr std::string_view kMagic = "TIERCELF";
constexpr size_t kVersionAt = 8;
constexpr size_t kTokenCountAt = 12;
constexpr size_t kNamespaceAt = 16;
constexpr size_t kKeyAt = 48;
constexpr size_t kRankAt = 80;
constexpr size_t kRankCountAt = 82;
constexpr size_t kGroupAt = 84;
constexpr size_t kCodecAt = 85;
constexpr size_t kChecksumKindAt = 86;
constexpr size_t kFirstReservedAt = 87;
constexpr size_t kStoredBytesAt = 88;
constexpr size_t kRawBytesAt = 96;
constexpr size_t kWriterEpochAt = 104;
constexpr size_t kChecksumAt = 112;
constexpr size_t kReservedAt = 116;
constexpr size_t kFrameChecksumAt = kFrameBytes - sizeof(uint32_t);

using FrameBytes = std::span<const std::byte, kFrameBytes>;

uint32_t checksum_of_frame(FrameBytes bytes) { return crc32c(bytes.first<kFrameChecksumAt>()); }

bool reserved_is_zero(FrameBytes bytes) {
  const auto reserved = bytes.subspan<kReservedAt, kFrameChecksumAt - kReservedAt>();
  return bytes[kFirstReservedAt] == std::byte{0} &&
         std::all_of(reserved.begin(), reserved.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

// What is wrong with the bytes themselves, or nullptr. A constant, so that asking allocates
// nothing. The version comes before the checksum: another version may keep it elsewhere.
const char* fault_of(FrameBytes bytes) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return "no frame magic";
  if (load_little_endian<uint32_t>(&bytes[kVersionAt]) != kFormatVersion) {
    return "frame of another format version";
  }
  if (load_little_endian<uint32_t>(&bytes[kFrameChecksumAt]) != checksum_of_frame(bytes)) {
    return "frame checksum does not match";
  }
  if (!reserved_is_zero(bytes)) return "reserved bytes of the frame are not zero";
  if (bytes[kCodecAt] != static_cast<std::byte>(Codec::kRaw)) return "unknown codec in the frame";
  if (bytes[kChecksumKindAt] != static_cast<std::byte>(ChecksumKind::kCrc32c)) {
    return "unknown checksum kind in the frame";
  }
  return nullptr;
}

Frame fields_of(FrameBytes bytes) {
  Frame frame;
  std::memcpy(frame.name_space.bytes.data(), &bytes[kNamespaceAt], frame.name_space.bytes.size());
  std::memcpy(frame.key.bytes.data(), &bytes[kKeyAt], frame.key.bytes.size());
  frame.group = GroupId(std::to_integer<uint8_t>(bytes[kGroupAt]));
  frame.slice.rank = load_little_endian<uint16_t>(&bytes[kRankAt]);
  frame.slice.rank_count = load_little_endian<uint16_t>(&bytes[kRankCountAt]);
  frame.token_count = load_little_endian<uint32_t>(&bytes[kTokenCountAt]);
  frame.codec = static_cast<Codec>(bytes[kCodecAt]);
  frame.checksum_kind = static_cast<ChecksumKind>(bytes[kChecksumKindAt]);
  frame.stored_bytes = load_little_endian<uint64_t>(&bytes[kStoredBytesAt]);
  frame.raw_bytes = load_little_endian<uint64_t>(&bytes[kRawBytesAt]);
  frame.writer_epoch = load_little_endian<uint64_t>(&bytes[kWriterEpochAt]);
  frame.checksum = load_little_endian<uint32_t>(&bytes[kChecksumAt]);
  return frame;
}

}  // namespace

void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  store_little_endian(kFormatVersion, &out[kVersionAt]);
  store_little_endian(frame.token_count, &out[kTokenCountAt]);
  std::memcpy(&out[kNamespaceAt], frame.name_space.bytes.data(), frame.name_space.bytes.size());
  std::memcpy(&out[kKeyAt], frame.key.bytes.data(), frame.key.bytes.size());
  store_little_endian(frame.slice.rank, &out[kRankAt]);
  store_little_endian(frame.slice.rank_count, &out[kRankCountAt]);
  store_little_endian(frame.group.value(), &out[kGroupAt]);
  out[kCodecAt] = static_cast<std::byte>(frame.codec);
  out[kChecksumKindAt] = static_cast<std::byte>(frame.checksum_kind);
  store_little_endian(frame.stored_bytes, &out[kStoredBytesAt]);
  store_little_endian(frame.raw_bytes, &out[kRawBytesAt]);
  store_little_endian(frame.writer_epoch, &out[kWriterEpochAt]);
  store_little_endian(frame.checksum, &out[kChecksumAt]);
  store_little_endian(checksum_of_frame(out), &out[kFrameChecksumAt]);
}

Result<Frame> decode_frame(FrameBytes bytes) {
  if (const char* fault = fault_of(bytes)) return Error(Code::kCorrupt, fault);
  return fields_of(bytes);
}

Code check_frame(FrameBytes bytes, const Frame& expected, uint32_t* checksum) {
  if (fault_of(bytes) != nullptr) return Code::kCorrupt;
  Frame found = fields_of(bytes);
  const uint32_t promised = found.checksum;
  found.checksum = expected.checksum;
  found.writer_epoch = expected.writer_epoch;
  if (found != expected) return Code::kCorrupt;
  *checksum = promised;
  return Code::kOk;
}

}  // namespace tiercel
