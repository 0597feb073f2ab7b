// SPDX-License-Identifier: Apache-2.0
#include "support/faulty_disk_io.h"

#include <array>
#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "support/memory_disk.h"
#include "tier/disk/disk_io_files.h"

namespace tiercel {
namespace {

using testing::DiskFault;
using testing::DiskFaultAction;
using testing::FaultyDiskIo;
using testing::MemoryDisk;

// Requests on the metadata file of a disk in memory, one at a time.
class FaultyDisk : public ::testing::Test {
 protected:
  static DiskIoRequest request(DiskIoKind kind, std::span<std::byte> memory, uint64_t token = 0) {
    return {.token = token, .kind = kind, .file = DiskFile::kMetadata, .memory = memory};
  }
  void submit(const DiskIoRequest& one) { io_.submit(std::span(&one, 1)); }
  // Nothing if nothing has completed.
  std::vector<DiskIoCompletion> poll() {
    std::vector<DiskIoCompletion> done(16);
    done.resize(io_.poll(done));
    return done;
  }
  int64_t run(DiskIoKind kind, std::span<std::byte> memory) {
    submit(request(kind, memory, 42));
    const auto done = poll();
    if (done.size() != 1 || done.front().token != 42) {
      ADD_FAILURE() << done.size() << " completions";
      return INT64_MIN;
    }
    return done.front().result;
  }
  size_t stored() const { return disk_.contents(DiskFile::kMetadata).size(); }

  MemoryDisk disk_;
  FaultyDiskIo io_{disk_.open({.queue_depth = 4})};
  std::array<std::byte, 100> bytes_{};
};

TEST_F(FaultyDisk, WithoutFaultsEverythingPasses) {
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), 100);
  EXPECT_EQ(run(DiskIoKind::kRead, bytes_), 100);
  EXPECT_EQ(run(DiskIoKind::kSync, {}), 0);
  EXPECT_EQ(io_.struck(), 0u);
}

TEST_F(FaultyDisk, ErrorStrikesTheNthOfItsKindAndThoseAfter) {
  io_.add({.error = ENOSPC, .kind = DiskIoKind::kWrite, .first = 2, .count = 2});
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), 100);
  EXPECT_EQ(run(DiskIoKind::kRead, bytes_), 100);
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), -ENOSPC);
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), -ENOSPC);
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), 100);
  EXPECT_EQ(io_.struck(), 2u);
}

TEST_F(FaultyDisk, FaultOfTheOtherFileDoesNotStrike) {
  io_.add({.file = DiskFile::kData, .count = testing::kDiskFaultForEver});
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), 100);
}

TEST_F(FaultyDisk, ClearedFaultsAreOver) {
  io_.add({.count = testing::kDiskFaultForEver});
  EXPECT_EQ(run(DiskIoKind::kSync, {}), -EIO);
  io_.clear();
  EXPECT_EQ(run(DiskIoKind::kSync, {}), 0);
}

TEST_F(FaultyDisk, ShortWriteAndTornErrorMoveAPart) {
  io_.add({.action = DiskFaultAction::kShort, .bytes = 30});
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), 30);
  EXPECT_EQ(stored(), 30u);
  io_.add({.action = DiskFaultAction::kTornError});
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), -EIO);
  EXPECT_EQ(stored(), 50u);
}

TEST_F(FaultyDisk, LostWriteSaysThatItIsThere) {
  io_.add({.action = DiskFaultAction::kLost});
  EXPECT_EQ(run(DiskIoKind::kWrite, bytes_), 100);
  EXPECT_EQ(stored(), 0u);
}

TEST_F(FaultyDisk, FlippedBitIsOneBitOfWhatWasRead) {
  ASSERT_EQ(run(DiskIoKind::kWrite, bytes_), 100);
  io_.add({.action = DiskFaultAction::kFlipBit, .bit = 77});
  std::array<std::byte, 100> read{};
  EXPECT_EQ(run(DiskIoKind::kRead, read), 100);
  int differing = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    differing += std::popcount(std::to_integer<unsigned>(read[i] ^ bytes_[i]));
  }
  EXPECT_EQ(differing, 1);
}

TEST_F(FaultyDisk, HangingRequestTakesRoomUntilItIsReleased) {
  io_.add({.action = DiskFaultAction::kHang});
  submit(request(DiskIoKind::kWrite, bytes_, 7));
  EXPECT_EQ(io_.capacity(), 3u);
  EXPECT_EQ(io_.hanging(), 1u);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(run(DiskIoKind::kSync, {}), 0) << "others pass it";
  EXPECT_EQ(stored(), 0u);

  io_.release();
  const auto done = poll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done.front().token, 7u);
  EXPECT_EQ(done.front().result, 100);
  EXPECT_EQ(io_.capacity(), 4u);
}

TEST(FaultyDiskIo, WhatAFaultAnsweredIsAnnounced) {
  const testing::DiskIoFiles files;
  FaultyDiskIo io(
      make_disk_io(files.data.get(), files.metadata.get(), {.way = DiskIoWay::kThreads}).value());
  io.add({.error = EIO});
  EXPECT_EQ(testing::run_alone(io, testing::sync_request(DiskFile::kData)), -EIO);
  EXPECT_EQ(testing::run_alone(io, testing::sync_request(DiskFile::kData)), 0);
}

TEST(FaultyDiskIo, WhatHangsAtTheEndDoesNotTouchItsMemoryAnyMore) {
  MemoryDisk disk;
  {
    FaultyDiskIo io(disk.open({}));
    io.add({.action = DiskFaultAction::kHang});
    auto memory = std::make_unique<std::array<std::byte, 8>>();
    const DiskIoRequest request{
        .kind = DiskIoKind::kWrite, .file = DiskFile::kMetadata, .memory = *memory};
    io.submit(std::span(&request, 1));
  }
  EXPECT_TRUE(disk.contents(DiskFile::kMetadata).empty());
}

}  // namespace
}  // namespace tiercel
