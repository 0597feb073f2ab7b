// SPDX-License-Identifier: Apache-2.0
//
// What every DiskIo promises, asked of each way to do it.
#include "tier/disk/disk_io.h"

#include <numeric>
#include <set>
#include <thread>

#include <unistd.h>

#include "support/faulty_disk_io.h"
#include "support/memory_disk.h"
#include "tier/disk/disk_io_files.h"

namespace tiercel {
namespace {

using testing::AlignedMemory;
using testing::kPage;
using testing::read_request;
using testing::run_alone;
using testing::sync_request;
using testing::wait_for;
using testing::write_request;

constexpr uint32_t kDepth = 32;

struct Case {
  const char* name;
  DiskIoWay way = DiskIoWay::kUring;
  bool register_memory = false;
  bool direct = false;
  bool in_memory = false;
  bool wrapped = false;  // in a FaultyDiskIo without faults
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class DiskIoConformance : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().in_memory) {
      io_ = disk_.open({.queue_depth = kDepth, .order_seed = 1});
      wrap();
      return;
    }
    if (!files_.data) GTEST_SKIP() << "the file system of temporary files has no direct I/O";
    open(files_.data.get(), files_.metadata.get());
  }

  void open(int data_fd, int metadata_fd) {
    Result<std::unique_ptr<DiskIo>> io =
        make_disk_io(data_fd, metadata_fd,
                     {.way = GetParam().way,
                      .queue_depth = kDepth,
                      .memory = memory_.all(),
                      .register_memory = GetParam().register_memory});
    if (io.code() == Code::kUnavailable && GetParam().way == DiskIoWay::kUring) {
      GTEST_SKIP() << io.error().message();
    }
    ASSERT_TRUE(io) << io.error().message();
    io_ = *std::move(io);
    if (GetParam().register_memory && io_->describe().find("registered") == std::string::npos) {
      GTEST_SKIP() << io_->describe();
    }
    wrap();
  }

  void wrap() {
    if (GetParam().wrapped) io_ = std::make_unique<testing::FaultyDiskIo>(std::move(io_));
  }

  // `count` requests that write page i to place i of the data file; tokens from 100.
  std::vector<DiskIoRequest> page_writes(size_t count) const {
    std::vector<DiskIoRequest> batch;
    for (size_t i = 0; i < count; ++i) {
      batch.push_back(write_request(DiskFile::kData, i * kPage, memory_.pages(i, 1), 100 + i));
    }
    return batch;
  }

  testing::DiskIoFiles files_{GetParam().direct};
  testing::MemoryDisk disk_;
  AlignedMemory memory_{2 * size_t{kDepth}};
  std::unique_ptr<DiskIo> io_;
};

TEST_P(DiskIoConformance, WhatIsWrittenIsRead) {
  memory_.fill(1);
  const auto out = memory_.pages(0, 8);
  const auto in = memory_.pages(8, 8);
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kData, 4 * kPage, out)),
            static_cast<int64_t>(8 * kPage));
  ASSERT_EQ(run_alone(*io_, read_request(DiskFile::kData, 4 * kPage, in)),
            static_cast<int64_t>(8 * kPage));
  EXPECT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
}

TEST_P(DiskIoConformance, OtherMemoryThanTheRegisteredWorksToo) {
  const AlignedMemory other(2);
  other.fill(3);
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, other.pages(0, 1))), int64_t{kPage});
  ASSERT_EQ(run_alone(*io_, read_request(DiskFile::kData, 0, other.pages(1, 1))), int64_t{kPage});
  EXPECT_TRUE(
      std::equal(other.all().begin(), other.all().begin() + kPage, other.pages(1, 1).begin()));
}

TEST_P(DiskIoConformance, FullDepthAtOnceEachExactlyOnce) {
  for (uint64_t round = 0; round < 20; ++round) {
    memory_.fill(round);
    io_->submit(page_writes(kDepth));
    EXPECT_EQ(io_->capacity(), 0u);
    std::set<uint64_t> tokens;
    for (const DiskIoCompletion& done : wait_for(*io_, kDepth)) {
      EXPECT_EQ(done.result, int64_t{kPage});
      EXPECT_TRUE(done.token >= 100 && done.token < 100 + kDepth) << done.token;
      EXPECT_TRUE(tokens.insert(done.token).second) << done.token << " completed twice";
    }
    EXPECT_EQ(tokens.size(), kDepth);
    EXPECT_EQ(io_->capacity(), kDepth);
    const auto in = memory_.pages(kDepth, kDepth);
    ASSERT_EQ(run_alone(*io_, read_request(DiskFile::kData, 0, in)),
              static_cast<int64_t>(in.size()));
    EXPECT_TRUE(std::equal(in.begin(), in.end(), memory_.all().begin()));
  }
}

TEST_P(DiskIoConformance, TokensAreTheCallersAndMayBeAnything) {
  std::vector<DiskIoRequest> batch;
  for (const uint64_t token : {uint64_t{0}, UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63}) {
    batch.push_back(sync_request(DiskFile::kMetadata, token));
  }
  io_->submit(batch);
  std::multiset<uint64_t> tokens;
  for (const DiskIoCompletion& done : wait_for(*io_, batch.size())) tokens.insert(done.token);
  EXPECT_EQ(tokens, (std::multiset<uint64_t>{0, UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63}));
}

TEST_P(DiskIoConformance, WhatWasNotPolledTakesRoomAndIsAnnouncedAgain) {
  io_->submit(page_writes(8));
  size_t polled = 0;
  std::array<DiskIoCompletion, 1> one;
  while (polled < 8) {
    EXPECT_EQ(io_->capacity(), kDepth - (8 - polled));
    if (io_->completion_fd() >= 0) {
      ASSERT_TRUE(testing::readable(io_->completion_fd(), testing::kHangMs)) << polled;
    }
    polled += io_->poll(one);
  }
  EXPECT_EQ(io_->capacity(), kDepth);
  EXPECT_EQ(io_->poll(one), 0u);
  // A last signal may come after its completion was seen; then it is quiet.
  if (io_->completion_fd() >= 0) {
    while (testing::readable(io_->completion_fd(), 0)) EXPECT_EQ(io_->poll(one), 0u);
  }
}

TEST_P(DiskIoConformance, NothingSubmittedIsNothing) {
  io_->submit({});
  std::array<DiskIoCompletion, 1> one;
  EXPECT_EQ(io_->poll(one), 0u);
  EXPECT_EQ(io_->capacity(), kDepth);
}

TEST_P(DiskIoConformance, BothFilesAreSynced) {
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, memory_.pages(0, 1))),
            int64_t{kPage});
  EXPECT_EQ(run_alone(*io_, sync_request(DiskFile::kData)), 0);
  EXPECT_EQ(run_alone(*io_, sync_request(DiskFile::kMetadata)), 0);
  EXPECT_EQ(disk_.unsynced_writes(DiskFile::kData), 0u);
}

TEST_P(DiskIoConformance, ReadsAreShortAtTheEndOfTheFile) {
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, memory_.pages(0, 3))),
            static_cast<int64_t>(3 * kPage));
  EXPECT_EQ(run_alone(*io_, read_request(DiskFile::kData, kPage, memory_.pages(4, 4))),
            static_cast<int64_t>(2 * kPage));
  EXPECT_EQ(run_alone(*io_, read_request(DiskFile::kData, 3 * kPage, memory_.pages(4, 1))), 0);
  EXPECT_EQ(run_alone(*io_, read_request(DiskFile::kData, 1000 * kPage, memory_.pages(4, 1))), 0);
}

TEST_P(DiskIoConformance, MetadataIsReadAndWrittenAtAnyByte) {
  memory_.fill(5);
  const auto out = memory_.all().subspan(77, 160);
  const auto in = memory_.all().subspan(5001, 160);
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kMetadata, 8192 + 3 * 160, out)), 160);
  ASSERT_EQ(run_alone(*io_, read_request(DiskFile::kMetadata, 8192 + 3 * 160, in)), 160);
  EXPECT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
  ASSERT_EQ(run_alone(*io_, read_request(DiskFile::kMetadata, 8192, in)), 160);
  EXPECT_EQ(std::count(in.begin(), in.end(), std::byte{0}), 160) << "the gap before it is zeros";
}

TEST_P(DiskIoConformance, DestructorWaitsForWhatIsInFlight) {
  memory_.fill(9);
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, memory_.pages(0, kDepth))),
            static_cast<int64_t>(kDepth * kPage));
  std::vector<DiskIoRequest> batch;
  for (size_t i = 0; i < kDepth; ++i) {
    batch.push_back(read_request(DiskFile::kData, i * kPage, memory_.pages(kDepth + i, 1)));
  }
  io_->submit(batch);
  io_.reset();
  const auto in = memory_.pages(kDepth, kDepth);
  EXPECT_TRUE(std::equal(in.begin(), in.end(), memory_.all().begin()));
}

TEST_P(DiskIoConformance, MayBeUsedByAnotherThreadThanItsMaker) {
  std::thread user([&] {
    memory_.fill(2);
    io_->submit(page_writes(kDepth));
    EXPECT_EQ(wait_for(*io_, kDepth).size(), kDepth);
  });
  user.join();
  ASSERT_EQ(run_alone(*io_, read_request(DiskFile::kData, 0, memory_.pages(kDepth, kDepth))),
            static_cast<int64_t>(kDepth * kPage));
  const auto in = memory_.pages(kDepth, kDepth);
  EXPECT_TRUE(std::equal(in.begin(), in.end(), memory_.all().begin()));
}

TEST_P(DiskIoConformance, RequestsOfAThreadThatEndsCompleteOnceEach) {
  for (int round = 0; round < 10; ++round) {
    std::thread user([&] {
      std::vector<DiskIoRequest> batch = page_writes(kDepth - 1);
      batch.push_back(sync_request(DiskFile::kData, 100 + kDepth - 1));
      io_->submit(batch);
    });
    user.join();
    std::set<uint64_t> tokens;
    for (const DiskIoCompletion& done : wait_for(*io_, kDepth)) {
      const bool is_sync = done.token == 100 + kDepth - 1;
      // A ring gives up what the thread has not come to.
      EXPECT_TRUE(done.result == (is_sync ? 0 : int64_t{kPage}) || done.result == -ECANCELED)
          << done.result;
      tokens.insert(done.token);
    }
    EXPECT_EQ(tokens.size(), kDepth);
  }
}

TEST_P(DiskIoConformance, ManyRandomRequestsAgreeWithAPlainCopy) {
  constexpr size_t kPlaces = 64;
  std::vector<std::byte> expected(kPlaces * kPage);
  ASSERT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, memory_.pages(0, kPlaces))),
            static_cast<int64_t>(expected.size()));
  Random random(77);
  std::set<uint64_t> in_flight;  // places; one request each, so that their order does not matter
  std::vector<DiskIoCompletion> some(5);
  std::vector<DiskIoRequest> by_place(kPlaces);
  for (size_t submitted = 0; submitted < 2000 || !in_flight.empty();) {
    std::vector<DiskIoRequest> batch;
    while (submitted < 2000 && batch.size() < io_->capacity() && random.chance(0.8)) {
      const uint64_t place = random.below(kPlaces);
      if (!in_flight.insert(place).second) continue;
      const auto page = memory_.pages(place, 1);
      if (random.chance(0.5)) {
        AlignedMemory::fill(page, random.next());
        std::copy(page.begin(), page.end(), expected.begin() + std::ptrdiff_t(place * kPage));
        batch.push_back(write_request(DiskFile::kData, place * kPage, page, place));
      } else {
        std::fill(page.begin(), page.end(), std::byte{0xee});
        batch.push_back(read_request(DiskFile::kData, place * kPage, page, place));
      }
      by_place[place] = batch.back();
      ++submitted;
    }
    io_->submit(batch);
    const size_t count = io_->poll(some);
    for (const DiskIoCompletion& done : std::span(some).first(count)) {
      ASSERT_EQ(in_flight.erase(done.token), 1u);
      ASSERT_EQ(done.result, int64_t{kPage});
      const auto page = by_place[done.token].memory;
      ASSERT_TRUE(std::equal(page.begin(), page.end(),
                             expected.begin() + std::ptrdiff_t(done.token * kPage)));
    }
  }
}

TEST_P(DiskIoConformance, BadDescriptorsFailTheirRequestsOnly) {
  if (GetParam().in_memory) GTEST_SKIP() << "has no descriptors";
  // A high number, which nothing that is opened next gets.
  FileDescriptor closed(::fcntl(files_.data.get(), F_DUPFD_CLOEXEC, 700));
  const int number = closed.get();
  closed.reset();
  for (const int bad : {-1, number}) {
    io_.reset();
    open(bad, files_.metadata.get());
    EXPECT_EQ(run_alone(*io_, read_request(DiskFile::kData, 0, memory_.pages(0, 1))), -EBADF);
    EXPECT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, memory_.pages(0, 1))), -EBADF);
    EXPECT_EQ(run_alone(*io_, sync_request(DiskFile::kData)), -EBADF);
    EXPECT_EQ(run_alone(*io_, write_request(DiskFile::kMetadata, 0, memory_.pages(0, 1))),
              int64_t{kPage});
  }
}

TEST_P(DiskIoConformance, ErrorsAreTheSystemsNumbers) {
  if (GetParam().in_memory) GTEST_SKIP() << "has no system below it";
  const FileDescriptor read_only(
      ::open(files_.folder.path("metadata").c_str(), O_RDONLY | O_CLOEXEC));
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  io_.reset();
  open(full.get(), read_only.get());
  EXPECT_EQ(run_alone(*io_, write_request(DiskFile::kMetadata, 0, memory_.pages(0, 1))), -EBADF);
  EXPECT_EQ(run_alone(*io_, write_request(DiskFile::kData, 0, memory_.pages(0, 1))), -ENOSPC);
}

TEST_P(DiskIoConformance, SaysHowItWorks) {
  const std::string said = io_->describe();
  std::string expected = GetParam().wrapped ? "faulty, above " : "";
  if (GetParam().in_memory) {
    EXPECT_EQ(said, expected + "memory");
    return;
  }
  expected += GetParam().way == DiskIoWay::kUring ? "io_uring" : "threads";
  expected += GetParam().direct ? ", direct" : ", buffered";
  if (GetParam().way == DiskIoWay::kUring) {
    expected += GetParam().register_memory ? ", registered buffers" : ", plain buffers";
  }
  EXPECT_EQ(said, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DiskIoConformance,
    ::testing::Values(
        Case{.name = "uring_registered", .register_memory = true},
        Case{.name = "uring_registered_direct", .register_memory = true, .direct = true},
        Case{.name = "uring_plain"}, Case{.name = "uring_plain_direct", .direct = true},
        Case{.name = "threads", .way = DiskIoWay::kThreads},
        Case{.name = "threads_direct", .way = DiskIoWay::kThreads, .direct = true},
        Case{.name = "memory", .in_memory = true},
        Case{.name = "faulty_above_uring", .wrapped = true},
        Case{.name = "faulty_above_threads", .way = DiskIoWay::kThreads, .wrapped = true},
        Case{.name = "faulty_above_memory", .in_memory = true, .wrapped = true}),
    [](const ::testing::TestParamInfo<Case>& one) { return one.param.name; });

}  // namespace
}  // namespace tiercel
