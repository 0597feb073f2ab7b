// SPDX-License-Identifier: Apache-2.0

#include "tier/disk/disk_format.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "tier/disk/disk_samples.h"

namespace tiercel {
namespace {

using HeaderBytes = std::array<std::byte, kDiskHeaderBytes>;
using RecordBytes = std::array<std::byte, kDiskRecordBytes>;

HeaderBytes encoded(const DiskHeader& header) {
  HeaderBytes bytes;
  bytes.fill(std::byte{0xff});  // every byte must be written
  encode_disk_header(header, bytes);
  return bytes;
}

RecordBytes encoded(const DiskRecord& record,
                    const DiskFolderId& folder_id = testing::sample_folder_id()) {
  RecordBytes bytes;
  bytes.fill(std::byte{0xff});
  encode_disk_record(record, folder_id, bytes);
  return bytes;
}

Result<DiskRecord> decoded(const RecordBytes& bytes, uint32_t slot = 5) {
  return decode_disk_record(bytes, testing::sample_folder_id(), SlotId(slot));
}

// These make the checksum right again, so that only the check under test can object.
void reseal(HeaderBytes& bytes) {
  const uint32_t checksum = crc32c(std::span(bytes).first(kDiskHeaderBytes - 4));
  std::memcpy(&bytes[kDiskHeaderBytes - 4], &checksum, 4);
}

void reseal(RecordBytes& bytes, uint32_t slot = 5) {
  uint32_t checksum = crc32c(testing::sample_folder_id());
  checksum = crc32c(std::as_bytes(std::span(&slot, 1)), checksum);
  checksum = crc32c(std::span(bytes).first(kDiskRecordBytes - 4), checksum);
  std::memcpy(&bytes[kDiskRecordBytes - 4], &checksum, 4);
}

std::string refusal(const HeaderBytes& bytes) {
  const Result<DiskHeader> header = decode_disk_header(bytes);
  return header ? "no refusal" : header.error().to_string();
}

std::string refusal(const RecordBytes& bytes, uint32_t slot = 5) {
  const Result<DiskRecord> record = decoded(bytes, slot);
  return record ? "no refusal" : record.error().to_string();
}

template <size_t kSize>
std::array<std::byte, kSize> with(std::array<std::byte, kSize> bytes, size_t offset,
                                  uint8_t value) {
  bytes[offset] = std::byte{value};
  reseal(bytes);
  return bytes;
}

TEST(DiskHeader, RoundTrips) {
  Random random(21);
  for (int round = 0; round < 300; ++round) {
    const DiskHeader header = testing::random_disk_header(random);
    const Result<DiskHeader> again = decode_disk_header(encoded(header));
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(*again, header);
  }
}

TEST(DiskHeader, APageOfZerosIsNoHeaderYet) {
  EXPECT_EQ(decode_disk_header(HeaderBytes{}).code(), Code::kNotFound);
  HeaderBytes bytes{};
  bytes[kDiskHeaderBytes - 1] = std::byte{1};
  EXPECT_EQ(decode_disk_header(bytes).code(), Code::kCorrupt);
}

TEST(DiskHeader, EveryFlippedBitIsSeen) {
  HeaderBytes bytes = encoded(testing::sample_disk_header());
  for (size_t bit = 0; bit < 8 * kDiskHeaderBytes; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const bool in_version = bit / 8 >= 8 && bit / 8 < 12;
    EXPECT_EQ(decode_disk_header(bytes).code(), in_version ? Code::kUnsupported : Code::kCorrupt)
        << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(DiskHeader, EveryTornHeaderIsCorrupt) {
  const HeaderBytes whole = encoded(testing::sample_disk_header());
  DiskHeader older = testing::sample_disk_header();
  older.generation = 6;
  older.extent_count = 10;
  for (size_t written = 512; written < kDiskHeaderBytes; written += 512) {
    HeaderBytes torn = encoded(older);
    std::memcpy(torn.data(), whole.data(), written);
    EXPECT_EQ(decode_disk_header(torn).code(), Code::kCorrupt) << written;
  }
}

TEST(DiskHeader, AnotherVersionIsNamedWhateverElseItsBytesSay) {
  HeaderBytes bytes = with(encoded(testing::sample_disk_header()), 8, 3);
  bytes[100] ^= std::byte{1};
  EXPECT_EQ(refusal(bytes),
            "unsupported: disk format version 3 is newer than version 2, the one that this build "
            "reads");
  EXPECT_EQ(refusal(with(bytes, 8, 1)),
            "unsupported: disk format version 1 is older than version 2, the one that this build "
            "reads");
}

TEST(DiskHeader, EachFieldIsCheckedByItself) {
  const HeaderBytes good = encoded(testing::sample_disk_header());
  EXPECT_EQ(refusal(good), "no refusal");
  EXPECT_EQ(refusal(with(good, 0, 'X')), "corrupt: no disk header magic");
  EXPECT_EQ(refusal(with(good, 12, 2)), "corrupt: disk header of an unknown kind of file");
  EXPECT_EQ(refusal(with(good, 12, 0)),
            "corrupt: header of a data file with fields of a metadata file");
  const std::string rank = "corrupt: disk header with a rank that cannot be";
  EXPECT_EQ(refusal(with(good, 32, 4)), rank);
  EXPECT_EQ(refusal(with(good, 36, 0)), rank);
  EXPECT_EQ(refusal(with(good, 36, 65)), rank);
  const std::string groups = "corrupt: disk header with a number of groups that cannot be";
  EXPECT_EQ(refusal(with(good, 40, 0)), groups);
  EXPECT_EQ(refusal(with(good, 40, 9)), groups);
  const std::string geometry = "corrupt: disk header with an empty geometry";
  EXPECT_EQ(refusal(with(good, 44, 0)), geometry);                         // extent count
  EXPECT_EQ(refusal(with(good, 40, 4)), geometry);                         // payload of the fourth
  EXPECT_EQ(refusal(with(with(good, 136 + 4, 0), 137 + 4, 0)), geometry);  // slots of the second
  for (const size_t offset : {13, 15, 52, 55, 72 + 3 * 8, 135, 136 + 3 * 4, 167, 168, 4091}) {
    EXPECT_EQ(refusal(with(good, offset, 1)),
              "corrupt: reserved bytes of the disk header are not zero")
        << offset;
  }
}

TEST(DiskHeader, ArbitraryBytesAreSafe) {
  Random random(22);
  for (int round = 0; round < 2000; ++round) {
    HeaderBytes bytes = encoded(testing::random_disk_header(random));
    for (int change = 0; change < 4; ++change) {
      bytes[random.below(180)] = static_cast<std::byte>(random.below(256));
    }
    reseal(bytes);
    const Result<DiskHeader> header = decode_disk_header(bytes);
    if (header) {
      EXPECT_EQ(encoded(*header), bytes);
    }
  }
}

TEST(DiskRecord, RoundTrips) {
  Random random(23);
  for (int round = 0; round < 2000; ++round) {
    const DiskRecord record = testing::random_disk_record(random);
    DiskFolderId folder_id;
    testing::fill_random(random, folder_id);
    const Result<DiskRecord> again =
        decode_disk_record(encoded(record, folder_id), folder_id, record.slot);
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(*again, record);
  }
}

TEST(DiskRecord, ZerosAreAnEmptySlot) {
  EXPECT_EQ(decoded(RecordBytes{}).code(), Code::kNotFound);
  for (size_t offset = 0; offset < kDiskRecordBytes; ++offset) {
    RecordBytes bytes{};
    bytes[offset] = std::byte{1};
    EXPECT_EQ(decoded(bytes).code(), Code::kCorrupt) << offset;
  }
}

TEST(DiskRecord, EveryFlippedBitIsCorrupt) {
  RecordBytes bytes = encoded(testing::sample_disk_record());
  for (size_t bit = 0; bit < 8 * kDiskRecordBytes; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(decoded(bytes).code(), Code::kCorrupt) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(DiskRecord, EveryTornRecordIsCorrupt) {
  const RecordBytes whole = encoded(testing::sample_disk_record());
  DiskRecord older = testing::sample_disk_record();
  older.key = testing::digest_of<BlockKey>("older");
  older.sequence = 7;
  older.payload_checksum = 1;
  older.parent.reset();
  for (const RecordBytes& before : {RecordBytes{}, encoded(older)}) {
    for (size_t written = 17; written < kDiskRecordBytes; ++written) {
      RecordBytes torn = before;
      std::memcpy(torn.data(), whole.data(), written);
      EXPECT_EQ(decoded(torn).code(), Code::kCorrupt) << written;
    }
  }
}

TEST(DiskRecord, IsNoneInAnotherSlotOrFolder) {
  const RecordBytes bytes = encoded(testing::sample_disk_record());
  EXPECT_TRUE(decoded(bytes, 5));
  for (const uint32_t slot : {0u, 4u, 6u, 5u + (1u << 31)}) {
    EXPECT_EQ(decoded(bytes, slot).code(), Code::kCorrupt) << slot;
  }
  for (size_t bit = 0; bit < 8 * sizeof(DiskFolderId); ++bit) {
    DiskFolderId other = testing::sample_folder_id();
    other[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(decode_disk_record(bytes, other, SlotId(5)).code(), Code::kCorrupt) << bit;
  }
}

TEST(DiskRecord, EachFieldIsCheckedByItself) {
  const RecordBytes good = encoded(testing::sample_disk_record());
  EXPECT_EQ(refusal(good), "no refusal");
  EXPECT_EQ(refusal(with(good, 0, 'X')), "corrupt: no record magic");
  EXPECT_EQ(refusal(with(good, 4, 3)), "corrupt: unknown flags in the record");
  EXPECT_EQ(refusal(with(good, 4, 0)), "corrupt: record without a parent that names one");
  EXPECT_EQ(refusal(with(good, 6, 1)), "corrupt: unknown codec in the record");
  EXPECT_EQ(refusal(with(good, 7, 2)), "corrupt: unknown checksum kind in the record");
  EXPECT_EQ(refusal(with(good, 52, 6)), "corrupt: record of another slot");
  for (size_t offset = 152; offset < 156; ++offset) {
    EXPECT_EQ(refusal(with(good, offset, 1)), "corrupt: reserved bytes of the record are not zero");
  }
  EXPECT_EQ(refusal(with(good, 160 - 5 - 20, 1)), "no refusal");  // a byte of the parent is free
}

TEST(DiskRecord, ArbitraryBytesBehindAValidStartAreSafe) {
  Random random(24);
  for (int round = 0; round < 20000; ++round) {
    DiskRecord record = testing::random_disk_record(random);
    record.slot = SlotId(5);
    RecordBytes bytes = encoded(record);
    for (size_t i = random.below(kDiskRecordBytes); i < kDiskRecordBytes; ++i) {
      bytes[i] = static_cast<std::byte>(random.below(256));
    }
    if (random.chance(0.5)) reseal(bytes);
    const Result<DiskRecord> again = decoded(bytes);
    if (again) {
      EXPECT_EQ(encoded(*again), bytes);
    }
  }
}

TEST(DiskLayout, RecordsAndSlotsStandOneBehindTheOther) {
  const SlotGeometry geometry = *SlotGeometry::create({.payload_bytes = {{4096, 100}, {9000, 1}},
                                                       .extent_count = 3,
                                                       .slots_per_extent = {6, 3},
                                                       .last_extent_slots = 2});
  EXPECT_EQ(disk_record_offset(SlotId(0)), 2 * 4096u);
  EXPECT_EQ(disk_record_offset(SlotId(7)), 2 * 4096u + 7 * 160u);
  EXPECT_EQ(disk_record_offset(SlotId(UINT32_MAX)), 2 * 4096u + uint64_t{UINT32_MAX} * 160);
  EXPECT_EQ(disk_slot_offset(0), 4096u);
  EXPECT_EQ(disk_data_bytes(geometry, 0), 4096 + geometry.tier_bytes(0));
  EXPECT_EQ(disk_data_bytes(geometry, 1), 4096 + geometry.tier_bytes(1));
  EXPECT_EQ(disk_metadata_bytes(geometry), 2 * 4096 + 14 * 160u);
}

}  // namespace
}  // namespace tiercel
