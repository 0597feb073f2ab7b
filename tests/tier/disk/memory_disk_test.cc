// SPDX-License-Identifier: Apache-2.0
//
// What tests of the disk tier build on must itself lose and keep the right things.
#include "support/memory_disk.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

using testing::MemoryDisk;

constexpr size_t kPage = kDiskAlignmentBytes;

struct alignas(kPage) Page {
  std::array<std::byte, kPage> bytes;
};

Page page_of(int value) {
  Page page;
  page.bytes.fill(static_cast<std::byte>(value));
  return page;
}

DiskIoRequest write_of(Page& page, uint64_t offset, uint64_t token = 0) {
  return {.token = token, .kind = DiskIoKind::kWrite, .offset = offset, .memory = page.bytes};
}
DiskIoRequest sync_of(DiskFile file, uint64_t token = 0) {
  return {.token = token, .kind = DiskIoKind::kSync, .file = file};
}

std::vector<DiskIoCompletion> poll_all(DiskIo& io, size_t wanted) {
  std::vector<DiskIoCompletion> done(wanted);
  size_t count = 0;
  while (count < wanted) count += io.poll(std::span(done).subspan(count));
  return done;
}

void run(DiskIo& io, const DiskIoRequest& request) {
  io.submit(std::span(&request, 1));
  const DiskIoCompletion done = poll_all(io, 1).front();
  ASSERT_EQ(done.result,
            request.kind == DiskIoKind::kSync ? 0 : static_cast<int64_t>(request.memory.size()));
}

int value_at(const MemoryDisk& disk, uint64_t offset, DiskFile file = DiskFile::kData) {
  const auto bytes = disk.contents(file);
  return offset < bytes.size() ? static_cast<int>(bytes[offset]) : -1;
}

TEST(MemoryDisk, WhatWasSyncedSurvivesAPowerCutAndWhatWasNotMayGoInSectors) {
  size_t gone = 0;
  size_t whole = 0;
  size_t torn = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    MemoryDisk disk;
    auto io = disk.open({});
    Page first = page_of(1);
    Page second = page_of(2);
    run(*io, write_of(first, 0));
    run(*io, sync_of(DiskFile::kData));
    run(*io, write_of(second, kPage));
    io.reset();
    Random random(seed);
    disk.power_cut(random);

    EXPECT_EQ(disk.unsynced_writes(DiskFile::kData), 0u);
    const auto bytes = disk.contents(DiskFile::kData);
    ASSERT_GE(bytes.size(), kPage);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + kPage,
                            [](std::byte value) { return value == std::byte{1}; }));
    size_t arrived = 0;
    for (uint64_t offset = kPage; offset < bytes.size(); offset += MemoryDisk::kSectorBytes) {
      const auto sector = bytes.subspan(offset, MemoryDisk::kSectorBytes);
      EXPECT_EQ(std::count(sector.begin(), sector.end(), sector.front()),
                static_cast<std::ptrdiff_t>(sector.size()));
      if (sector.front() == std::byte{2}) ++arrived;
    }
    ++(arrived == 0 ? gone : arrived == kPage / MemoryDisk::kSectorBytes ? whole : torn);
  }
  EXPECT_GT(gone, 0u);
  EXPECT_GT(whole, 0u);
  EXPECT_GT(torn, 0u);
}

TEST(MemoryDisk, OfTwoUnsyncedWritesEitherMaySurviveAlone) {
  std::set<std::pair<bool, bool>> seen;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    MemoryDisk disk;
    auto io = disk.open({});
    Page page = page_of(1);
    run(*io, write_of(page, 0));
    run(*io, write_of(page, kPage));
    io.reset();
    Random random(seed);
    disk.power_cut(random);
    seen.emplace(value_at(disk, 0) == 1, value_at(disk, kPage) == 1);
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(MemoryDisk, MetadataIsTornAtAnyByte) {
  std::set<size_t> lengths;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    MemoryDisk disk;
    auto io = disk.open({});
    std::array<std::byte, 160> record;
    record.fill(std::byte{7});
    run(*io, {.kind = DiskIoKind::kWrite, .file = DiskFile::kMetadata, .memory = record});
    io.reset();
    Random random(seed);
    disk.power_cut(random);
    lengths.insert(disk.contents(DiskFile::kMetadata).size());
  }
  EXPECT_GT(lengths.size(), 20u);
}

TEST(MemoryDisk, SyncCoversOnlyItsFileAndWhatHadCompletedBeforeIt) {
  MemoryDisk disk;
  auto io = disk.open({});
  Page page = page_of(1);
  run(*io, write_of(page, 0));
  run(*io, sync_of(DiskFile::kMetadata));
  EXPECT_EQ(disk.unsynced_writes(DiskFile::kData), 1u);

  const std::array batch{write_of(page, kPage), sync_of(DiskFile::kData)};
  io->submit(batch);
  poll_all(*io, batch.size());
  EXPECT_EQ(disk.unsynced_writes(DiskFile::kData), 1u) << "the write was under way with the sync";
}

TEST(MemoryDisk, CrashKeepsWhatCompletedAndTearsWhatWasInFlight) {
  std::set<int> seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    MemoryDisk disk;
    auto io = disk.open({});
    Page first = page_of(1);
    Page second = page_of(2);
    run(*io, write_of(first, 0));
    const DiskIoRequest in_flight = write_of(second, kPage, 5);
    io->submit(std::span(&in_flight, 1));
    Random random(seed);
    disk.crash(random);
    EXPECT_EQ(value_at(disk, 0), 1);
    seen.insert(value_at(disk, kPage));

    const DiskIoCompletion done = poll_all(*io, 1).front();
    EXPECT_EQ(done.token, 5u);
    EXPECT_EQ(done.result, -EIO);
    // The dead user changes nothing any more, and a new one may come.
    auto next = disk.open({});
    const DiskIoRequest late = write_of(second, 0);
    io->submit(std::span(&late, 1));
    EXPECT_EQ(poll_all(*io, 1).front().result, -EIO);
    EXPECT_EQ(value_at(disk, 0), 1);
  }
  EXPECT_TRUE(seen.contains(2));
  EXPECT_TRUE(seen.contains(-1));
}

TEST(MemoryDisk, OrderOfCompletionFollowsTheSeed) {
  const auto order = [](std::optional<uint64_t> seed) {
    MemoryDisk disk;
    auto io = disk.open({.queue_depth = 16, .order_seed = seed});
    Page page = page_of(1);
    std::vector<DiskIoRequest> batch;
    for (uint64_t i = 0; i < 16; ++i) batch.push_back(write_of(page, i * kPage, i));
    io->submit(batch);
    std::vector<uint64_t> tokens;
    for (const DiskIoCompletion& done : poll_all(*io, 16)) tokens.push_back(done.token);
    return tokens;
  };
  const auto in_order = order(std::nullopt);
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_EQ(order(3), order(3));
  EXPECT_NE(order(3), order(4));
}

TEST(MemoryDisk, DataFileRefusesWhatDirectIoRefuses) {
  MemoryDisk disk;
  auto io = disk.open({});
  Page page = page_of(1);
  const DiskIoRequest request = write_of(page, 512);
  io->submit(std::span(&request, 1));
  EXPECT_EQ(poll_all(*io, 1).front().result, -EINVAL);
}

}  // namespace
}  // namespace tiercel
