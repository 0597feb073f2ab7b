// SPDX-License-Identifier: Apache-2.0
//
// The frame binds a payload to its identity. It stands behind the payload in a slot and travels
// with it to disk and stores. A reader checks all of it; whatever does not agree is `corrupt`, a
// miss.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

namespace tiercel {

inline constexpr size_t kFrameBytes = 192;

enum class Codec : uint8_t { kRaw = 0 };
enum class ChecksumKind : uint8_t { kCrc32c = 1 };

// What a frame says, decoded. Byte layout: docs/format.md.
struct Frame {
  Namespace name_space;
  BlockKey key;
  GroupId group;
  Slice slice;
  uint32_t token_count = 0;
  Codec codec = Codec::kRaw;
  ChecksumKind checksum_kind = ChecksumKind::kCrc32c;
  uint64_t stored_bytes = 0;  // length of the payload as stored
  uint64_t raw_bytes = 0;     // length after decoding; equal for kRaw
  uint64_t writer_epoch = 0;  // which start of which writer made it; for fencing and diagnosis
  uint32_t checksum = 0;      // CRC32C of the stored payload

  friend bool operator==(const Frame&, const Frame&) = default;
};

// Writes the fixed-size form, its own checksum included.
void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> out);

// Reads it back. kCorrupt if magic, version, reserved bytes or the frame's own checksum are wrong;
// trusts no length. Any input is safe.
Result<Frame> decode_frame(std::span<const std::byte, kFrameBytes> bytes);

// kOk if `bytes` decode and everything but checksum and writer epoch equals `expected`, kCorrupt if
// not. On success *checksum is the payload's checksum that the frame promises. No allocation.
Code check_frame(std::span<const std::byte, kFrameBytes> bytes, const Frame& expected,
                 uint32_t* checksum);

}  // namespace tiercel
