// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_rank_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/temp_folder.h"
#include "tier/disk/disk_samples.h"

namespace tiercel {
namespace {

class DiskRankFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    DiskFolderOptions options;
    options.path = temp_.path("disk");
    options.bytes = 1u << 20;
    options.payload_bytes = {{4096, 9000}};
    auto folder = DiskFolder::open(options);
    ASSERT_TRUE(folder) << folder.error().to_string();
    folder_ = *std::move(folder);
    ASSERT_TRUE(folder_->read_contents(Namespace{}, false));
  }

  DiskRankFiles files(uint32_t rank) {
    auto files = folder_->files(rank);
    EXPECT_TRUE(files);
    return *std::move(files);
  }

  // As a put of that sequence leaves it.
  void write_record(uint32_t rank, SlotId slot, uint64_t sequence) {
    DiskRecord record;
    record.slot = slot;
    record.sequence = sequence;
    record.token_count = 16;
    record.payload_checksum = static_cast<uint32_t>(sequence) * 3;
    std::array<std::byte, kDiskRecordBytes> bytes{};
    encode_disk_record(record, folder_->id(), bytes);
    const DiskRankFiles file = files(rank);
    ASSERT_EQ(::pwrite(file.metadata.get(), bytes.data(), bytes.size(),
                       static_cast<off_t>(disk_record_offset(slot))),
              static_cast<ssize_t>(bytes.size()));
  }

  const testing::TempFolder temp_;
  std::unique_ptr<DiskFolder> folder_;
};

TEST_F(DiskRankFilesTest, KnowWhatTheFolderKnows) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    DiskRankFiles known = files(rank);
    const auto read = read_disk_rank_files(std::move(known.data), std::move(known.metadata), rank);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->header, known.header);
    EXPECT_EQ(read->next_sequence, 1u);
    EXPECT_EQ(read->direct, known.direct);
    const auto geometry = disk_geometry_of(read->header);
    ASSERT_TRUE(geometry) << geometry.error().to_string();
    for (uint32_t slot = 0; slot < folder_->geometry().slot_count_max() + 2; ++slot) {
      EXPECT_EQ(geometry->offset(SlotId(slot), GroupId(0), rank),
                folder_->geometry().offset(SlotId(slot), GroupId(0), rank));
    }
  }
}

TEST_F(DiskRankFilesTest, ARankThatIsStartedAgainGoesOnBehindTheLastRecord) {
  write_record(1, SlotId(7), 41);
  write_record(1, SlotId(2), 39);
  DiskRankFiles known = files(1);
  const auto read = read_disk_rank_files(std::move(known.data), std::move(known.metadata), 1);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->next_sequence, 42u);
  ASSERT_EQ(read->payload_checksums.size(), folder_->geometry().slot_count_max());
  EXPECT_EQ(read->payload_checksums[7], 123u);
  EXPECT_EQ(read->payload_checksums[0], 0u);
}

TEST_F(DiskRankFilesTest, FilesOfAnotherRankAreRefused) {
  DiskRankFiles known = files(0);
  const auto read = read_disk_rank_files(std::move(known.data), std::move(known.metadata), 1);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.code(), Code::kInvalid);
  EXPECT_NE(read.error().message().find("rank 0"), std::string::npos) << read.error().message();
}

TEST_F(DiskRankFilesTest, WhatIsNoFileIsRefused) {
  const auto open_null = [] { return FileDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC)); };
  EXPECT_EQ(read_disk_rank_files(open_null(), std::move(files(0).metadata), 0).code(),
            Code::kInvalid);
  EXPECT_EQ(read_disk_rank_files(std::move(files(0).data), open_null(), 0).code(), Code::kInvalid);
  // Data and metadata in each other's place.
  DiskRankFiles known = files(0);
  EXPECT_FALSE(read_disk_rank_files(std::move(known.metadata), std::move(known.data), 0));
}

}  // namespace
}  // namespace tiercel
