// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_transfer.h"

#include <array>
#include <cerrno>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

class DiskTransferTest : public ::testing::Test {
 protected:
  DiskTransfer of(DiskIoKind kind, DiskFile file) {
    return DiskTransfer(
        {.token = 5, .kind = kind, .file = file, .offset = 4096, .memory = memory_});
  }
  std::array<std::byte, 4 * kDiskAlignmentBytes> memory_{};
};

TEST_F(DiskTransferTest, GoesOnWhereAPieceEnded) {
  DiskTransfer transfer = of(DiskIoKind::kWrite, DiskFile::kMetadata);
  EXPECT_FALSE(transfer.take(100));
  EXPECT_EQ(transfer.request().token, 5u);
  EXPECT_EQ(transfer.request().offset, 4196u);
  EXPECT_EQ(transfer.request().memory.data(), memory_.data() + 100);
  EXPECT_EQ(transfer.request().memory.size(), memory_.size() - 100);
  EXPECT_TRUE(transfer.take(static_cast<int64_t>(memory_.size()) - 100));
  EXPECT_EQ(transfer.code(), Code::kOk);
}

TEST_F(DiskTransferTest, GoesOnAtAWholePageOfTheDataFile) {
  DiskTransfer transfer = of(DiskIoKind::kRead, DiskFile::kData);
  EXPECT_FALSE(transfer.take(4096 + 512));
  EXPECT_EQ(transfer.request().offset, 8192u);
  EXPECT_EQ(transfer.request().memory.size(), 3u * 4096);
  EXPECT_FALSE(transfer.take(512));
  EXPECT_EQ(transfer.request().offset, 8192u);
  EXPECT_TRUE(transfer.take(3 * 4096));
  EXPECT_EQ(transfer.code(), Code::kOk);
}

TEST_F(DiskTransferTest, TriesAgainSoManyTimesAndNoMore) {
  struct Answer {
    DiskIoKind kind;
    int64_t result;
    Code at_last;
  };
  const Answer answers[] = {{DiskIoKind::kWrite, -EINTR, Code::kUnavailable},
                            {DiskIoKind::kRead, -EAGAIN, Code::kUnavailable},
                            {DiskIoKind::kSync, -EINTR, Code::kUnavailable},
                            {DiskIoKind::kWrite, 0, Code::kUnavailable},
                            {DiskIoKind::kWrite, 100, Code::kUnavailable},
                            {DiskIoKind::kRead, 100, Code::kCorrupt}};
  for (const Answer& answer : answers) {
    DiskTransfer transfer = of(answer.kind, DiskFile::kData);
    for (uint32_t i = 0; i < DiskTransfer::kIdleAnswersMax; ++i) {
      ASSERT_FALSE(transfer.take(answer.result));
    }
    EXPECT_TRUE(transfer.take(answer.result));
    EXPECT_EQ(transfer.code(), answer.at_last);
  }
}

TEST_F(DiskTransferTest, WhatMovesStartsTheCountAnew) {
  DiskTransfer transfer = of(DiskIoKind::kWrite, DiskFile::kMetadata);
  for (uint32_t i = 0; i < 10 * DiskTransfer::kIdleAnswersMax; ++i) {
    ASSERT_FALSE(transfer.take(i % 2 == 0 ? -EINTR : 1));
  }
}

TEST_F(DiskTransferTest, TellsWhatAnErrorMeans) {
  const std::pair<int64_t, Code> answers[] = {
      {-ENOSPC, Code::kNoSpace},  {-EDQUOT, Code::kNoSpace},    {-EFBIG, Code::kNoSpace},
      {-EIO, Code::kUnavailable}, {-EROFS, Code::kUnavailable}, {-EBADF, Code::kUnavailable}};
  for (const auto& [result, code] : answers) {
    DiskTransfer transfer = of(DiskIoKind::kWrite, DiskFile::kData);
    EXPECT_TRUE(transfer.take(result));
    EXPECT_EQ(transfer.code(), code);
  }
  DiskTransfer at_the_end = of(DiskIoKind::kRead, DiskFile::kData);
  EXPECT_FALSE(at_the_end.take(4096));
  EXPECT_TRUE(at_the_end.take(0));
  EXPECT_EQ(at_the_end.code(), Code::kCorrupt);
}

}  // namespace
}  // namespace tiercel
