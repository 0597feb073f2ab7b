// SPDX-License-Identifier: Apache-2.0
//
// Whatever happens to the files between two starts, no block comes back wrong; what is whole is
// found, and what is not is counted and told.
//
//   TIERCEL_CRASH_ALL   if set: every bit and every length, which takes minutes
#include <functional>

#include "crash/damage_fixture.h"

namespace tiercel::testing {
namespace {

const std::string kData = "rank0/data";
const std::string kMetadata = "rank0/metadata";

// What may be lost when the byte at `offset` is no longer what it was: one block, or none.
std::optional<uint32_t> block_at(const std::string& file, uint64_t offset) {
  if (file == kData) {
    if (offset < kDiskHeaderBytes) return std::nullopt;
    return static_cast<uint32_t>((offset - kDiskHeaderBytes) / store_slot_bytes());
  }
  if (offset < 2 * kDiskHeaderBytes) return std::nullopt;
  return static_cast<uint32_t>((offset - 2 * kDiskHeaderBytes) / kDiskRecordBytes);
}

bool tells(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class DiskDamage : public DamageTest {
 protected:
  DiskDamage() : options_(store_options(temp_.path("store"))) {
    fill(options_);
    image_ = image_of(instance("store"));
  }

  Found look_at(const FolderImage& image) {
    std::filesystem::remove_all(instance("store"));
    put_back(instance("store"), image);
    return look(options_);
  }

  RigOptions options_;
  FolderImage image_;
};

TEST_F(DiskDamage, AnUndamagedStoreIsFoundWhole) {
  ASSERT_EQ(image_.size(), 2u);
  const Found found = look_at(image_);
  EXPECT_EQ(found.right_count(), kStorePrompts) << found.text();
  EXPECT_EQ(found.corrupt, 0u);
  EXPECT_TRUE(tells(found.notes, "3 blocks found")) << found.notes;
}

TEST_F(DiskDamage, EveryFlippedBitIsAMissOrMeansNothing) {
  uint64_t lost = 0, refused = 0;
  for (const std::string& file : {kData, kMetadata}) {
    // Of the metadata less means nothing.
    const uint64_t step = this->step(file == kData ? 1201 : 199);
    const uint64_t bits = image_[file].size() * 8;
    for (uint64_t bit = phase(step); bit < bits; bit += step) {
      SCOPED_TRACE(file + ", bit " + std::to_string(bit));
      FolderImage damaged = image_;
      char& byte = damaged[file][bit / 8];
      byte = static_cast<char>(byte ^ (1 << (bit % 8)));
      const Found found = look_at(damaged);
      ASSERT_EQ(found.wrong, 0u) << found.text();
      if (found.refusal) {
        // A flipped version is the version of another build.
        ++refused;
        ASSERT_TRUE(bit / 8 < 2 * kDiskHeaderBytes && bit / 8 % kDiskHeaderBytes >= 8 &&
                    bit / 8 % kDiskHeaderBytes < 12)
            << found.text();
        ASSERT_TRUE(tells(found.refusal->message(), "version")) << found.text();
        continue;
      }
      const std::optional<uint32_t> hit = block_at(file, bit / 8);
      for (uint32_t block = 0; block < kStorePrompts; ++block) {
        if (block == hit) continue;
        ASSERT_TRUE(found.right[block]) << found.text();
      }
      if (found.right_count() == kStorePrompts) continue;
      ++lost;
      if (file == kData) {
        ASSERT_EQ(found.corrupt, 1u) << found.text();
      } else {
        ASSERT_TRUE(tells(found.notes, "2 blocks found, 1 torn or foreign records dropped"))
            << found.text();
      }
    }
  }
  // Of the bits of both files, so many count: three payloads, frames and records.
  EXPECT_GT(lost, 0u);
  if (step(2) == 1) {
    EXPECT_EQ(lost, kStorePrompts * 8 * (kStoreBlockBytes + 192 + kDiskRecordBytes));
    EXPECT_GT(refused, 0u);
  }
}

TEST_F(DiskDamage, EveryTruncationLosesWhatWasCutOffAndNothingElse) {
  const uint64_t step = this->step(151);
  for (const std::string& file : {kData, kMetadata}) {
    const uint64_t length = image_[file].size();
    for (uint64_t cut = phase(step); cut < length; cut += step) {
      SCOPED_TRACE(file + " cut to " + std::to_string(cut));
      FolderImage damaged = image_;
      damaged[file].resize(cut);
      const Found found = look_at(damaged);
      ASSERT_EQ(found.wrong, 0u) << found.text();
      // Without a whole header nothing is known of the records; the data file says that it is ours.
      if (cut < kDiskHeaderBytes && file == kMetadata && !found.refusal) {
        ASSERT_EQ(found.right_count(), 0u) << found.text();
        ASSERT_TRUE(tells(found.notes, "made ")) << found.notes;
        ASSERT_TRUE(cut == 0 || tells(found.notes, "both headers")) << found.notes;
        continue;
      }
      // What is cut off reads as zeros, and a version of zero is that of another build.
      if (found.refusal && cut < 2 * kDiskHeaderBytes && cut % kDiskHeaderBytes >= 8 &&
          cut % kDiskHeaderBytes < 12) {
        ASSERT_TRUE(tells(found.refusal->message(), "version 0")) << found.text();
        continue;
      }
      if (cut == 0 && file == kData) {
        ASSERT_FALSE(found.refusal) << found.text();
        ASSERT_EQ(found.right_count(), 0u) << found.text();
        ASSERT_TRUE(tells(found.notes, "made ")) << found.notes;
        continue;
      }
      ASSERT_FALSE(found.refusal) << found.text();
      const uint64_t end_of_first = file == kData
                                        ? kDiskHeaderBytes + kStoreBlockBytes + kFrameBytes
                                        : 2 * kDiskHeaderBytes + kDiskRecordBytes;
      const uint64_t each = file == kData ? store_slot_bytes() : kDiskRecordBytes;
      for (uint32_t block = 0; block < kStorePrompts; ++block) {
        ASSERT_EQ(found.right[block], end_of_first + block * each <= cut) << found.text();
      }
      if (file == kData) {
        ASSERT_EQ(found.corrupt, kStorePrompts - found.right_count()) << found.text();
      }
    }
  }
}

// What is lost can be written anew, and is found again then.
TEST_F(DiskDamage, AStoreThatLostABlockTakesItAgain) {
  const std::vector<std::pair<std::string, uint64_t>> places = {
      {kData, 100},
      {kData, kDiskHeaderBytes + 100},
      {kData, kDiskHeaderBytes + store_slot_bytes() - 10},
      {kMetadata, 100},
      {kMetadata, kDiskHeaderBytes + 100},
      {kMetadata, 2 * kDiskHeaderBytes + kDiskRecordBytes + 20}};
  for (const auto& [file, offset] : places) {
    SCOPED_TRACE(file + " at " + std::to_string(offset));
    FolderImage damaged = image_;
    damaged[file][offset] = static_cast<char>(damaged[file][offset] ^ 0x10);
    const Found first = look_at(damaged);
    ASSERT_EQ(first.wrong, 0u);
    ASSERT_GE(first.right_count(), kStorePrompts - 1) << first.text();
    auto rig = DiskRig::open(options_);
    ASSERT_TRUE(rig) << rig.error().to_string();
    for (uint64_t prompt = 1; prompt <= kStorePrompts; ++prompt) {
      const Result<RigRead> read = (*rig)->read(prompt, 1);
      ASSERT_TRUE(read);
      if (read->loaded == 0) {
        ASSERT_TRUE((*rig)->save(prompt, 1));
      }
      ASSERT_TRUE((*rig)->settle());
    }
    ASSERT_TRUE((*rig)->close());
    rig->reset();
    const Found second = look(options_);
    EXPECT_EQ(second.right_count(), kStorePrompts) << second.text();
    EXPECT_EQ(second.corrupt, 0u) << second.text();
  }
}

TEST_F(DiskDamage, SwappedSlotsAreMissesAndTheThirdBlockIsFound) {
  const uint64_t each = store_slot_bytes();
  char* data = image_[kData].data();
  std::swap_ranges(data + kDiskHeaderBytes, data + kDiskHeaderBytes + each,
                   data + kDiskHeaderBytes + each);
  const Found found = look_at(image_);
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_EQ(found.corrupt, 2u) << found.text();
  EXPECT_EQ(found.right, (std::array{false, false, true})) << found.text();
}

TEST_F(DiskDamage, SwappedRecordsAreNone) {
  char* records = image_[kMetadata].data() + 2 * kDiskHeaderBytes;
  std::swap_ranges(records, records + kDiskRecordBytes, records + kDiskRecordBytes);
  const Found found = look_at(image_);
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_EQ(found.right, (std::array{false, false, true})) << found.text();
  EXPECT_TRUE(tells(found.notes, "2 torn or foreign records dropped")) << found.notes;
}

// Whole in itself, of this folder and slot, and newer than all others; only the frame knows better.
TEST_F(DiskDamage, ARecordThatPointsToAnothersPayloadIsAMiss) {
  std::span<std::byte> metadata = std::as_writable_bytes(std::span(image_[kMetadata]));
  const Result<DiskHeader> header = decode_disk_header(metadata.first<kDiskHeaderBytes>());
  ASSERT_TRUE(header) << header.error().to_string();
  const auto record_at = [&](uint32_t slot) {
    return metadata.subspan(disk_record_offset(SlotId(slot))).first<kDiskRecordBytes>();
  };
  Result<DiskRecord> record = decode_disk_record(record_at(0), header->folder_id, SlotId(0));
  ASSERT_TRUE(record) << record.error().to_string();
  record->slot = SlotId(1);
  record->sequence += 100;
  encode_disk_record(*record, header->folder_id, record_at(1));
  const Found found = look_at(image_);
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_EQ(found.corrupt, 1u) << found.text();
  EXPECT_EQ(found.right, (std::array{false, false, true})) << found.text();
  EXPECT_TRUE(tells(found.notes, "1 older copies")) << found.notes;
}

TEST_F(DiskDamage, FilesOfAnEarlierTimeBesideThoseOfNowAreMisses) {
  RigOptions options = options_;
  std::filesystem::remove_all(instance("store"));
  put_back(instance("store"), image_);
  // The same folder, in which every block has given way to another.
  fill(options, 100);
  const FolderImage later = image_of(instance("store"));
  for (const std::string& old_file : {kData, kMetadata}) {
    SCOPED_TRACE(old_file);
    FolderImage mixed = later;
    mixed[old_file] = image_[old_file];
    const Found of_then = look_at(mixed);
    EXPECT_EQ(of_then.wrong, 0u);
    EXPECT_EQ(of_then.right_count(), 0u) << of_then.text();
    std::filesystem::remove_all(instance("store"));
    put_back(instance("store"), mixed);
    const Found of_now = look(options_, 100);
    EXPECT_EQ(of_now.wrong, 0u);
    EXPECT_EQ(of_now.right_count(), 0u) << of_now.text();
    EXPECT_EQ(of_then.corrupt + of_now.corrupt, kStorePrompts);
  }
}

TEST_F(DiskDamage, AFileOfAnotherStoreIsToldAndNoBlockOfEitherIsUsed) {
  fill(store_options(temp_.path("other")), 100);
  const FolderImage other = image_of(instance("other"));
  for (const std::string& file : {kData, kMetadata}) {
    SCOPED_TRACE(file);
    FolderImage mixed = image_;
    mixed[file] = other.at(file);
    for (const uint64_t first : {1u, 100u}) {
      std::filesystem::remove_all(instance("store"));
      put_back(instance("store"), mixed);
      const Found found = look(options_, first);
      EXPECT_EQ(found.wrong, 0u);
      EXPECT_EQ(found.right_count(), 0u) << found.text();
      EXPECT_TRUE(tells(found.notes, "do not belong together")) << found.text();
    }
  }
}

TEST_F(DiskDamage, FilesOfTwoRanksThatWereSwappedAreToldAndNotUsed) {
  const RigOptions options = store_options(temp_.path("pair"), 2);
  fill(options);
  const FolderImage pair = image_of(instance("pair"));
  ASSERT_EQ(pair.size(), 4u);
  const std::vector<std::vector<std::string>> swaps = {
      {"data", "metadata"}, {"data"}, {"metadata"}};
  for (const std::vector<std::string>& names : swaps) {
    FolderImage swapped = pair;
    for (const std::string& name : names)
      std::swap(swapped["rank0/" + name], swapped["rank1/" + name]);
    std::filesystem::remove_all(instance("pair"));
    put_back(instance("pair"), swapped);
    const Found found = look(options);
    EXPECT_EQ(found.wrong, 0u);
    EXPECT_EQ(found.right_count(), 0u) << found.text();
    EXPECT_TRUE(tells(found.notes, "do not belong together")) << found.text();
  }
}

TEST_F(DiskDamage, RanksOfTwoStoresThatWereMixedAreToldAndNotUsed) {
  const RigOptions options = store_options(temp_.path("pair"), 2);
  fill(options);
  FolderImage mixed = image_of(instance("pair"));
  const RigOptions others = store_options(temp_.path("other"), 2);
  fill(others);  // the very same blocks, and yet
  const FolderImage other = image_of(instance("other"));
  for (const char* name : {"rank1/data", "rank1/metadata"}) mixed[name] = other.at(name);
  std::filesystem::remove_all(instance("pair"));
  put_back(instance("pair"), mixed);
  const Found found = look(options);
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_EQ(found.right_count(), 0u) << found.text();
  EXPECT_TRUE(tells(found.notes, "do not belong together")) << found.text();
}

// A header that is damaged must not bring back the one from before the clear.
TEST_F(DiskDamage, WhatWasClearedStaysAwayWhicheverHeaderIsDamaged) {
  {
    const auto rig = DiskRig::open(options_);
    ASSERT_TRUE(rig) << rig.error().to_string();
    (*rig)->cache().clear();
    ASSERT_TRUE((*rig)->settle());
    ASSERT_TRUE((*rig)->close());
  }
  const FolderImage cleared = image_of(instance("store"));
  const Found whole = look_at(cleared);
  ASSERT_EQ(whole.right_count(), 0u) << whole.text();
  ASSERT_TRUE(tells(whole.notes, "3 cleared")) << whole.notes;
  const uint64_t step = this->step(127);
  for (uint64_t byte = phase(step); byte < 2 * kDiskHeaderBytes; byte += step) {
    FolderImage damaged = cleared;
    damaged[kMetadata][byte] = static_cast<char>(damaged[kMetadata][byte] ^ 0x04);
    const Found found = look_at(damaged);
    ASSERT_EQ(found.right_count(), 0u) << "byte " << byte << ": " << found.text();
  }
}

// With the check of frames off, the same bit comes through: what the tests above would have seen.
TEST_F(DiskDamage, WithoutVerificationAFlippedBitComesThrough) {
  char& byte = image_[kData][kDiskHeaderBytes + 1000];
  byte = static_cast<char>(byte ^ 1);
  const Found verified = look_at(image_);
  EXPECT_EQ(verified.wrong, 0u);
  EXPECT_EQ(verified.corrupt, 1u);
  options_.verify = false;
  const Found unverified = look_at(image_);
  EXPECT_EQ(unverified.wrong, 1u) << unverified.text();
  EXPECT_EQ(unverified.corrupt, 0u);
}

TEST_F(DiskDamage, SwappedSlotsAreSeenByTheirRecordsAlsoWithoutVerification) {
  const uint64_t each = store_slot_bytes();
  char* data = image_[kData].data();
  std::swap_ranges(data + kDiskHeaderBytes, data + kDiskHeaderBytes + each,
                   data + kDiskHeaderBytes + each);
  options_.verify = false;
  const Found found = look_at(image_);
  EXPECT_EQ(found.wrong, 0u) << found.text();
  EXPECT_EQ(found.corrupt, 2u) << found.text();
}

}  // namespace
}  // namespace tiercel::testing
