// SPDX-License-Identifier: Apache-2.0
//
// What a folder finds in its records at the start.

#include "tier/disk/disk_scan.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tier/disk/disk_folder_fixture.h"

namespace tiercel {
namespace {

namespace fs = std::filesystem;

using testing::says;

class DiskScanTest : public testing::DiskFolderTest {
 protected:
  // Starts the header of a rank's metadata anew at `first_sequence`, as a clear does.
  static void clear(const DiskFolder& folder, uint32_t rank, uint64_t first_sequence) {
    const Result<DiskRankFiles> files = folder.files(rank);
    ASSERT_TRUE(files);
    DiskHeader header = files->header;
    ++header.generation;
    header.first_sequence = first_sequence;
    std::array<std::byte, kDiskHeaderBytes> bytes;
    encode_disk_header(header, bytes);
    ASSERT_EQ(::pwrite(files->metadata.get(), bytes.data(), bytes.size(),
                       static_cast<off_t>(disk_header_offset(header.generation))),
              static_cast<ssize_t>(bytes.size()));
  }

  void with_ranks(size_t rank_count) {
    options.payload_bytes = {std::vector<uint64_t>(rank_count, 4096)};
  }
};

TEST_F(DiskScanTest, BlocksComeInOrderOfWriting) {
  const auto folder = open();
  ASSERT_TRUE(folder);
  write_block(*folder, 9, "first", 10);
  write_block(*folder, 0, "second", 20);
  write_block(*folder, 4, "third", 30);
  DiskRecord root = record(*folder, 0, 5, "root", 15);
  root.parent.reset();
  write_record(*folder, 0, root);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"first", "root", "second", "third"}));
  EXPECT_EQ(found.blocks[0].slot, SlotId(9));
  EXPECT_EQ(found.blocks[0].sequence, 10u);
  EXPECT_FALSE(found.blocks[1].has_parent);
  EXPECT_EQ(folder->files(0)->next_sequence, 31u);
}

TEST_F(DiskScanTest, ABlockCountsOnlyIfAllRanksHaveTheSame) {
  with_ranks(3);
  const auto folder = open();
  ASSERT_TRUE(folder);
  write_block(*folder, 0, "everywhere", 1);
  write_block(*folder, 1, "differs on rank 2", 2);
  write_record(*folder, 2, record(*folder, 2, 1, "other", 2));
  write_block(*folder, 2, "other parent on rank 1", 3);
  DiskRecord orphan = record(*folder, 1, 2, "other parent on rank 1", 3);
  orphan.parent.reset();
  write_record(*folder, 1, orphan);
  write_record(*folder, 0, record(*folder, 0, 3, "only rank 0", 4));
  write_record(*folder, 1, record(*folder, 1, 4, "only rank 1", 5));
  write_record(*folder, 0, record(*folder, 0, 5, "not rank 1", 6));
  write_record(*folder, 2, record(*folder, 2, 5, "not rank 1", 6));
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"everywhere"}));
  EXPECT_EQ(found.disagreeing, 5u);
  EXPECT_EQ(found.torn + found.cleared + found.misplaced + found.duplicates, 0u);
}

TEST_F(DiskScanTest, EachRankGoesOnAboveItsOwnHighestSequence) {
  with_ranks(3);
  auto folder = open();
  ASSERT_TRUE(folder);
  write_record(*folder, 0, record(*folder, 0, 0, "a", 7));
  write_record(*folder, 1, record(*folder, 1, 3, "b", 99));
  clear(*folder, 2, 1000);
  contents(*folder);
  EXPECT_EQ(folder->files(0)->next_sequence, 8u);
  EXPECT_EQ(folder->files(1)->next_sequence, 100u)
      << "a record that does not count was written too";
  folder.reset();
  EXPECT_EQ(open()->files(2)->next_sequence, 1000u) << "below it records are cleared";
}

TEST_F(DiskScanTest, RecordsFromBeforeAClearDoNotCount) {
  with_ranks(2);
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, 0, "old", 1);
    write_block(*folder, 1, "last old", 9);
    write_block(*folder, 2, "new", 10);
    clear(*folder, 1, 10);
  }
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    const DiskContents found = contents(*folder);
    EXPECT_EQ(keys_of(found), keys({"new"})) << "a clear that reached one rank counts";
    EXPECT_EQ(found.cleared, 2u);
    clear(*folder, 0, 11);
  }
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(contents(*folder).cleared, 3u);
  EXPECT_EQ(folder->files(0)->next_sequence, 11u);
}

TEST_F(DiskScanTest, OfTwoCopiesTheNewerCounts) {
  with_ranks(2);
  const auto folder = open();
  ASSERT_TRUE(folder);
  write_block(*folder, 6, "a", 5);
  write_block(*folder, 2, "a", 9);
  write_block(*folder, 4, "a", 7);
  write_block(*folder, 3, "b", 8);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"b", "a"}));
  EXPECT_EQ(found.blocks[1].slot, SlotId(2));
  EXPECT_EQ(found.duplicates, 2u);
}

TEST_F(DiskScanTest, TheSameKeyInTwoGroupsIsTwoBlocks) {
  options.payload_bytes = {{4096}, {4096}};
  options.bytes = 8 << 20;
  const auto folder = open();
  ASSERT_TRUE(folder);
  const uint32_t next_extent = folder->geometry().slots_per_extent_max();
  write_block(*folder, 0, "a", 1, 0);
  write_block(*folder, next_extent, "a", 2, 1);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"a", "a"}));
  EXPECT_EQ(found.duplicates, 0u);
}

TEST_F(DiskScanTest, AnExtentServesTheGroupThatWasWrittenLast) {
  options.payload_bytes = {{4096, 4096}, {9000, 100}};
  options.bytes = 32 << 20;
  const auto folder = open();
  ASSERT_TRUE(folder);
  ASSERT_GE(folder->geometry().slots_in_extent(0, GroupId(1)), 3u);
  const uint32_t next_extent = folder->geometry().slots_per_extent_max();
  write_block(*folder, 0, "old", 5, 0);
  write_block(*folder, 1, "new", 6, 1);
  write_block(*folder, 2, "also new", 4, 1);
  write_block(*folder, next_extent, "elsewhere", 1, 0);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"elsewhere", "also new", "new"}));
  EXPECT_EQ(found.misplaced, 1u);
}

TEST_F(DiskScanTest, AnExtentThatChangedItsGroupOnOneRankOnlyHasLostTheOldOne) {
  options.payload_bytes = {{4096, 4096}, {4096, 4096}};
  options.bytes = 32 << 20;
  const auto folder = open();
  ASSERT_TRUE(folder);
  write_block(*folder, 0, "old", 1, 0);
  write_block(*folder, 1, "also old", 2, 0);
  // A crash came before rank 0 had written its part.
  write_record(*folder, 1, record(*folder, 1, 2, "new", 3, 1));
  const DiskContents found = contents(*folder);
  EXPECT_TRUE(found.blocks.empty());
  EXPECT_EQ(found.misplaced, 2u);
  EXPECT_EQ(found.disagreeing, 1u);
}

TEST_F(DiskScanTest, SlotsThatDoNotExistForTheirGroupAreMisplaced) {
  options.payload_bytes = {{4096}, {100000}};
  options.bytes = 32 << 20;
  const auto folder = open();
  ASSERT_TRUE(folder);
  const uint32_t behind = folder->geometry().slots_in_extent(0, GroupId(1));
  ASSERT_LT(behind, folder->geometry().slots_per_extent_max());
  write_block(*folder, behind, "behind the end", 1, 1);
  write_block(*folder, behind - 1, "before the end", 2, 1);
  write_block(*folder, folder->geometry().slots_per_extent_max(), "no such group", 3, 2);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"before the end"}));
  EXPECT_EQ(found.misplaced, 2u);
}

TEST_F(DiskScanTest, TornAndForeignRecordsAreCountedAndNotUsed) {
  with_ranks(2);
  const auto folder = open();
  ASSERT_TRUE(folder);
  std::array<std::byte, kDiskRecordBytes> bytes;
  for (uint32_t slot = 0; slot < 6; ++slot) {
    write_block(*folder, slot, "block " + std::to_string(slot), slot + 1);
  }
  encode_disk_record(record(*folder, 1, 0, "block 0", 1), folder->id(), bytes);
  bytes[100] ^= std::byte{4};
  write_bytes(*folder, 1, SlotId(0), bytes);                       // a flipped bit
  write_bytes(*folder, 0, SlotId(1), std::span(bytes).first(80));  // half of another record
  encode_disk_record(record(*folder, 0, 5, "block 5", 6), folder->id(), bytes);
  write_bytes(*folder, 0, SlotId(2), bytes);  // of another slot
  encode_disk_record(record(*folder, 0, 3, "block 3", 4), testing::sample_folder_id(), bytes);
  write_bytes(*folder, 0, SlotId(3), bytes);                      // of another folder
  write_record(*folder, 1, record(*folder, 0, 4, "block 4", 5));  // of another rank
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"block 5"}));
  EXPECT_EQ(found.torn, 5u);
  EXPECT_EQ(found.disagreeing, 0u);
}

TEST_F(DiskScanTest, OtherNamespacesAreCountedAndGoOnlyIfAskedTo) {
  const auto folder = open();
  ASSERT_TRUE(folder);
  write_block(*folder, 0, "ours", 1);
  DiskRecord other = record(*folder, 0, 1, "theirs", 2);
  other.name_space = testing::digest_of<Namespace>("another model");
  write_record(*folder, 0, other);
  DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"ours", "theirs"}));
  EXPECT_EQ(found.other_namespace, 1u);
  found = contents(*folder, true);
  EXPECT_EQ(keys_of(found), keys({"ours"}));
  EXPECT_EQ(found.other_namespace, 1u);
}

TEST_F(DiskScanTest, OfFilesOfTwoFoldersThatWereMixedNoBlockCounts) {
  with_ranks(2);
  for (const char* name : {"rank1/metadata", "rank0/metadata", "rank1/data", "rank0/data"}) {
    fs::remove_all(options.path);
    for (const char* instance : {"other", "main"}) {
      options.instance = instance;
      const auto folder = open();
      ASSERT_TRUE(folder);
      write_block(*folder, 0, "a", 1);
      write_block(*folder, 1, "b", 2);
    }
    fs::copy_file(options.path + "/other/" + name, file(name),
                  fs::copy_options::overwrite_existing);
    {
      const auto folder = open();
      ASSERT_TRUE(folder) << name;
      EXPECT_TRUE(says(joined(folder->notes()), "do not belong together")) << name;
      const DiskContents found = contents(*folder);
      EXPECT_TRUE(found.blocks.empty()) << name;
      EXPECT_EQ(found.torn, 2u) << name;
      write_block(*folder, 1, "new", 3);
    }
    const auto folder = open();
    ASSERT_TRUE(folder) << name;
    EXPECT_TRUE(folder->notes().empty()) << name << joined(folder->notes());
    EXPECT_EQ(keys_of(contents(*folder)), keys({"new"})) << name;
  }
}

TEST_F(DiskScanTest, OfFilesOfTwoRanksThatWereMixedUpNoBlockCounts) {
  with_ranks(2);
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, 0, "a", 1);
  }
  fs::copy_file(file("rank0/metadata"), file("rank1/metadata"),
                fs::copy_options::overwrite_existing);
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(says(joined(folder->notes()), "do not belong together"));
  EXPECT_TRUE(contents(*folder).blocks.empty());
}

TEST_F(DiskScanTest, ARankWhoseFilesAreGoneIsMadeAnewAndNoBlockCounts) {
  with_ranks(2);
  for (const char* name : {"rank1", "rank1/metadata", "rank1/data", "rank0", "rank0/data"}) {
    {
      const auto folder = open();
      ASSERT_TRUE(folder);
      write_block(*folder, 0, "a", 1);
    }
    fs::remove_all(file(name));
    {
      const auto folder = open();
      ASSERT_TRUE(folder) << name;
      EXPECT_TRUE(contents(*folder).blocks.empty()) << name;
      EXPECT_TRUE(says(joined(folder->notes()),
                       name[4] == '1' ? "rank 1 had no files" : "the files of rank 0 are gone"))
          << name;
      EXPECT_EQ(fs::file_size(file("rank1/data")), disk_data_bytes(folder->geometry(), 1)) << name;
      write_block(*folder, 0, "b", 2);
      EXPECT_EQ(keys_of(contents(*folder)), keys({"b"})) << name;
    }
    EXPECT_TRUE(open()->notes().empty()) << name;
  }
}

// What a model, which follows the definition slot by slot, makes of arbitrary records.
TEST_F(DiskScanTest, FindsWhatAModelFinds) {
  constexpr uint32_t kRanks = 3;
  constexpr uint64_t kFirstSequence = 30;
  Random random(41);
  with_ranks(kRanks);
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    clear(*folder, 1, kFirstSequence);
  }
  const auto folder = open();
  ASSERT_TRUE(folder);
  const uint32_t slots = folder->geometry().slot_count_max();
  for (int round = 0; round < 50; ++round) {
    DiskContents wanted;
    std::map<std::string, uint64_t> newest;  // key: sequence on rank 0
    uint64_t copies = 0;
    std::vector<uint32_t> order(slots);  // sequences must differ
    std::iota(order.begin(), order.end(), 1);
    for (size_t i = slots; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const std::string key = "key " + std::to_string(random.below(slots));
      const uint64_t sequence = order[slot];
      bool any_torn = false, any_cleared = false, any_block = false, all_same = true;
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const uint64_t fault = random.below(16);
        const std::string here = fault == 0 ? "another" : key;
        if (fault == 1) {
          write_bytes(*folder, rank, SlotId(slot), std::array<std::byte, kDiskRecordBytes>{});
          all_same = false;
          continue;
        }
        write_record(*folder, rank, record(*folder, rank, slot, here, sequence));
        if (fault == 2) {
          write_bytes(*folder, rank, SlotId(slot), std::array<std::byte, 1>{});
          any_torn = true;
        } else if (rank == 1 && sequence < kFirstSequence) {
          any_cleared = true;
        } else {
          any_block = true;
        }
        if (fault == 0) all_same = false;
      }
      if (any_torn) {
        ++wanted.torn;
      } else if (any_cleared) {
        ++wanted.cleared;
      } else if (any_block && !all_same) {
        ++wanted.disagreeing;
      } else if (any_block) {
        ++copies;
        newest[key] = std::max(newest[key], sequence);
      }
    }
    const DiskContents found = contents(*folder);
    EXPECT_EQ(found.torn, wanted.torn);
    EXPECT_EQ(found.cleared, wanted.cleared);
    EXPECT_EQ(found.disagreeing, wanted.disagreeing);
    EXPECT_EQ(found.duplicates, copies - newest.size());
    std::vector<std::pair<uint64_t, std::string>> blocks;
    for (const auto& [key, sequence] : newest) blocks.emplace_back(sequence, key);
    std::sort(blocks.begin(), blocks.end());
    std::vector<std::string> wanted_keys;
    for (const auto& block : blocks) wanted_keys.push_back(block.second);
    EXPECT_EQ(keys_of(found), keys(wanted_keys));
    EXPECT_FALSE(found.blocks.empty());
  }
}

}  // namespace
}  // namespace tiercel
