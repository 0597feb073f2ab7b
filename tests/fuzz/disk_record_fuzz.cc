// SPDX-License-Identifier: Apache-2.0
//
// Records of the disk tier: whatever decodes is written back to the same bytes, is none in another
// slot or folder, and none with one changed bit.
#include <algorithm>
#include <array>

#include "base/checksum.h"
#include "fuzz_target.h"
#include "tier/disk/disk_format.h"

namespace tiercel::fuzz {
namespace {

using RecordBytes = std::array<std::byte, kDiskRecordBytes>;

constexpr size_t kSlotAt = 52;
constexpr DiskFolderId kFolder{std::byte{1}, std::byte{2}, std::byte{3}};

void check_decoding(const RecordBytes& bytes, SlotId slot) {
  const Result<DiskRecord> record = decode_disk_record(bytes, kFolder, slot);
  if (!record) {
    const bool empty = std::all_of(bytes.begin(), bytes.end(),
                                   [](std::byte byte) { return byte == std::byte{0}; });
    require(record.code() == (empty ? Code::kNotFound : Code::kCorrupt),
            "what does not decode is an empty slot or corrupt");
    return;
  }
  RecordBytes again;
  encode_disk_record(*record, kFolder, again);
  require(again == bytes, "a decoded record is written as it was read");
  require(record->slot == slot, "a record is one of its slot");
  require(!decode_disk_record(bytes, kFolder, SlotId(slot.value() ^ 1)),
          "a record is none in another slot");
  DiskFolderId other = kFolder;
  other[15] ^= std::byte{1};
  require(!decode_disk_record(bytes, other, slot), "a record is none in another folder");
}

// The fuzzer cannot guess a checksum, so it gets one.
void seal(RecordBytes& bytes, uint32_t slot) {
  std::array<std::byte, sizeof(slot)> place;
  for (size_t i = 0; i < sizeof(slot); ++i) {
    place[i] = bytes[kSlotAt + i] = static_cast<std::byte>(slot >> (8 * i));
  }
  const uint32_t sum = crc32c(std::span(bytes).first<kDiskRecordBytes - sizeof(uint32_t)>(),
                              crc32c(place, crc32c(kFolder)));
  for (size_t i = 0; i < sizeof(sum); ++i) {
    bytes[kDiskRecordBytes - sizeof(sum) + i] = static_cast<std::byte>(sum >> (8 * i));
  }
}

void check_flip(RecordBytes bytes, SlotId slot, size_t bit) {
  if (!decode_disk_record(bytes, kFolder, slot)) return;
  bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  require(!decode_disk_record(bytes, kFolder, slot), "one changed bit makes a record corrupt");
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  Input input({data, size});
  const size_t bit = input.u16() % (tiercel::kDiskRecordBytes * 8);
  const uint32_t slot = input.u16();
  RecordBytes bytes;
  input.fill(bytes);
  check_decoding(bytes, tiercel::SlotId(slot));
  seal(bytes, slot);
  check_decoding(bytes, tiercel::SlotId(slot));
  check_flip(bytes, tiercel::SlotId(slot), bit);
  return 0;
}
