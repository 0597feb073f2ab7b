// SPDX-License-Identifier: Apache-2.0
//
// Ways to read and write where the system allows less than usual, and options out of range.
#include <array>
#include <cstddef>
#include <set>
#include <thread>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memfd.h"
#include "support/child_process.h"
#include "tier/disk/disk_io.h"
#include "tier/disk/disk_io_files.h"

namespace tiercel {
namespace {

using testing::AlignedMemory;
using testing::DiskIoFiles;
using testing::kPage;
using testing::run_alone;
using testing::run_in_child;
using testing::wait_for;
using testing::write_and_read_back;

constexpr int64_t kMebibyte = 1 << 20;

Result<std::unique_ptr<DiskIo>> open(const DiskIoFiles& files, const DiskIoOptions& options) {
  return make_disk_io(files.data.get(), files.metadata.get(), options);
}

// From here on `system_call` fails with `error` in this thread and those that it starts. False if
// this system has no seccomp.
bool refuse(long system_call, int error) {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(system_call), 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                           .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string reason_without_ring() {
  const DiskIoFiles files;
  const auto io = open(files, {.way = DiskIoWay::kUring});
  return io ? "" : io.error().message();
}

void expect_invalid(const DiskIoOptions& options, const std::string& message) {
  const DiskIoFiles files;
  const auto io = open(files, options);
  ASSERT_EQ(io.code(), Code::kInvalid);
  EXPECT_EQ(io.error().message(), message);
}

TEST(DiskIoOptions, OutOfRangeIsRefusedWithNameValueAndRange) {
  expect_invalid({.queue_depth = 0}, "queue_depth is 0; allowed: 1 to 4096");
  expect_invalid({.queue_depth = 4097}, "queue_depth is 4097; allowed: 1 to 4096");
  expect_invalid({.threads = 0}, "threads is 0; allowed: 1 to 64");
  expect_invalid({.threads = 65}, "threads is 65; allowed: 1 to 64");
  expect_invalid({.way = static_cast<DiskIoWay>(9)},
                 "way is 9; allowed: 0 (auto), 1 (io_uring), 2 (threads)");
}

TEST(DiskIoOptions, EndsOfTheRangesWork) {
  const AlignedMemory memory(2);
  const DiskIoFiles files;
  for (const DiskIoWay way : {DiskIoWay::kAuto, DiskIoWay::kThreads}) {
    for (const uint32_t depth : {1u, 3u, 4096u}) {
      for (const uint32_t threads : {1u, 64u}) {
        const auto io = open(files, {.way = way, .queue_depth = depth, .threads = threads});
        ASSERT_TRUE(io) << io.error().message();
        EXPECT_EQ((*io)->capacity(), depth);
        EXPECT_EQ(write_and_read_back(**io, memory.all()), "") << (*io)->describe();
      }
    }
  }
}

TEST(DiskIoOptions, WaysHaveNames) {
  EXPECT_EQ(to_string(DiskIoWay::kAuto), "auto");
  EXPECT_EQ(to_string(DiskIoWay::kUring), "io_uring");
  EXPECT_EQ(to_string(DiskIoWay::kThreads), "threads");
}

TEST(DiskIoSystem, AutomaticChoiceTakesTheRing) {
  if (const std::string reason = reason_without_ring(); !reason.empty()) GTEST_SKIP() << reason;
  const DiskIoFiles files;
  const auto io = open(files, {});
  ASSERT_TRUE(io) << io.error().message();
  EXPECT_EQ((*io)->describe(), "io_uring, buffered, plain buffers");
}

TEST(DiskIoSystem, WhereTheRingIsForbiddenThreadsTakeOverAndSayWhy) {
  const DiskIoFiles files;
  for (const auto& [error, text] :
       {std::pair(EPERM, "Operation not permitted"), std::pair(ENOSYS, "Function not implemented"),
        std::pair(EACCES, "Permission denied"), std::pair(ENOMEM, "Cannot allocate memory")}) {
    EXPECT_EQ(run_in_child([&, error = error, text = text]() -> std::string {
                if (!refuse(__NR_io_uring_setup, error)) return "no seccomp";
                const auto ring = open(files, {.way = DiskIoWay::kUring});
                if (ring.code() != Code::kUnavailable) return "not unavailable";
                if (ring.error().message().find(text) == std::string::npos) {
                  return ring.error().message();
                }
                const auto io = open(files, {});
                if (!io) return io.error().message();
                const std::string said = (*io)->describe();
                if (!said.starts_with(std::string("threads, buffered (io_uring: ") + text)) {
                  return said;
                }
                const AlignedMemory memory(8);
                return write_and_read_back(**io, memory.all());
              }),
              "")
        << text;
  }
}

TEST(DiskIoSystem, RingThatTakesNothingIsNone) {
  if (const std::string reason = reason_without_ring(); !reason.empty()) GTEST_SKIP() << reason;
  const DiskIoFiles files;
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (!refuse(__NR_io_uring_enter, EPERM)) return "no seccomp";
              const auto io = open(files, {});
              if (!io) return io.error().message();
              const std::string said = (*io)->describe();
              return said.starts_with("threads, buffered (io_uring: Operation not p") ? "" : said;
            }),
            "");
}

TEST(DiskIoSystem, RequestsThatTheKernelRefusesForGoodFailOnceEach) {
  if (const std::string reason = reason_without_ring(); !reason.empty()) GTEST_SKIP() << reason;
  const DiskIoFiles files;
  const AlignedMemory memory(8);
  auto io = open(files, {.way = DiskIoWay::kUring, .queue_depth = 8}).value();
  std::thread user([&] {
    ASSERT_TRUE(refuse(__NR_io_uring_enter, EINVAL));
    for (int round = 0; round < 3; ++round) {
      std::vector<DiskIoRequest> batch;
      for (uint64_t i = 0; i < 8; ++i) {
        batch.push_back(testing::write_request(DiskFile::kData, i * kPage, memory.pages(i, 1), i));
      }
      io->submit(batch);
      EXPECT_EQ(io->capacity(), 0u);
      std::set<uint64_t> tokens;
      for (const DiskIoCompletion& done : wait_for(*io, 8, 3)) {
        EXPECT_EQ(done.result, -EINVAL);
        tokens.insert(done.token);
      }
      EXPECT_EQ(tokens.size(), 8u);
      EXPECT_EQ(io->capacity(), 8u);
    }
  });
  user.join();
}

TEST(DiskIoSystem, RequestsThatTheKernelHasNoRoomForAreTriedAgain) {
  if (const std::string reason = reason_without_ring(); !reason.empty()) GTEST_SKIP() << reason;
  const DiskIoFiles files;
  const AlignedMemory memory(8);
  auto io = open(files, {.way = DiskIoWay::kUring, .queue_depth = 8}).value();
  std::thread short_of_memory([&] {
    ASSERT_TRUE(refuse(__NR_io_uring_enter, EAGAIN));
    for (uint64_t i = 0; i < 8; ++i) {
      const auto request =
          testing::write_request(DiskFile::kData, i * kPage, memory.pages(i, 1), i);
      io->submit(std::span(&request, 1));
    }
    std::array<DiskIoCompletion, 8> done;
    EXPECT_EQ(io->poll(done), 0u);
    EXPECT_TRUE(testing::readable(io->completion_fd(), 0)) << "to be polled again";
    EXPECT_EQ(io->capacity(), 0u);
  });
  short_of_memory.join();
  std::set<uint64_t> tokens;
  for (const DiskIoCompletion& done : wait_for(*io, 8)) {
    EXPECT_EQ(done.result, int64_t{kPage});
    tokens.insert(done.token);
  }
  EXPECT_EQ(tokens.size(), 8u);
}

TEST(DiskIoSystem, WhatTheKernelNeverTookDoesNotKeepTheDestructor) {
  if (const std::string reason = reason_without_ring(); !reason.empty()) GTEST_SKIP() << reason;
  const DiskIoFiles files;
  const AlignedMemory memory(1);
  auto io = open(files, {.way = DiskIoWay::kUring}).value();
  std::thread user([&] {
    ASSERT_TRUE(refuse(__NR_io_uring_enter, EAGAIN));
    const auto request = testing::write_request(DiskFile::kData, 0, memory.all());
    io->submit(std::span(&request, 1));
    io.reset();
  });
  user.join();
  std::array<char, 1> byte;
  EXPECT_EQ(::pread(files.data.get(), byte.data(), 1, 0), 0) << "nothing was written";
}

TEST(DiskIoSystem, OrdinaryUserWithLittleLockedMemoryGetsPlainBuffersAndIsToldSo) {
  if (const std::string reason = reason_without_ring(); !reason.empty()) GTEST_SKIP() << reason;
  const DiskIoFiles files;
  EXPECT_EQ(run_in_child([&]() -> std::string {
              const rlimit limit{.rlim_cur = 8 * kMebibyte, .rlim_max = 8 * kMebibyte};
              if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "no limit";
              // Of another user all capabilities are gone, too.
              constexpr id_t kNobody = 65534;
              if (::getuid() == 0 && (::setresgid(kNobody, kNobody, kNobody) != 0 ||
                                      ::setresuid(kNobody, kNobody, kNobody) != 0)) {
                return "still root";
              }
              const AlignedMemory memory(64 * kMebibyte / kPage);
              const auto io = open(files, {.way = DiskIoWay::kUring, .memory = memory.all()});
              if (!io) return io.error().message();
              if ((*io)->describe() !=
                  "io_uring, buffered, plain buffers (registering 67108864 bytes: Cannot allocate "
                  "memory, limit of locked memory (ulimit -l) is 8388608 bytes)") {
                return (*io)->describe();
              }
              return write_and_read_back(**io, memory.pages(0, 64));
            }),
            "");
}

TEST(DiskIoSystem, RequestAcrossTheBorderOfTwoRegisteredPiecesWorks) {
  constexpr size_t kPiece = size_t{1} << 30;
  constexpr size_t kWindow = 2 * kMebibyte;
  constexpr size_t kBytes = kPiece + kWindow;
  // The same two MiB over and over, so that it does not cost a GiB.
  const FileDescriptor window = make_memfd("window", kWindow).value();
  void* const place =
      ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  auto* const begin = static_cast<std::byte*>(place);
  for (size_t done = 0; done < kBytes; done += kWindow) {
    ASSERT_NE(::mmap(begin + done, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     window.get(), 0),
              MAP_FAILED);
  }
  {
    const DiskIoFiles files;
    auto io = open(files, {.memory = {begin, kBytes}}).value();
    if (io->describe() != "io_uring, buffered, registered buffers") {
      ::munmap(place, kBytes);
      GTEST_SKIP() << io->describe();
    }
    for (const size_t offset : {kPiece - kPage, kPiece, kPiece - 2 * kPage, kBytes - 2 * kPage}) {
      const std::span memory(begin + offset, 2 * kPage);
      AlignedMemory::fill(memory, offset);
      const std::vector<std::byte> expected(memory.begin(), memory.end());
      ASSERT_EQ(run_alone(*io, testing::write_request(DiskFile::kData, kPage, memory)),
                static_cast<int64_t>(2 * kPage));
      AlignedMemory::fill(memory, 0);
      ASSERT_EQ(run_alone(*io, testing::read_request(DiskFile::kData, kPage, memory)),
                static_cast<int64_t>(2 * kPage));
      EXPECT_TRUE(std::equal(memory.begin(), memory.end(), expected.begin())) << offset;
    }
  }
  ::munmap(place, kBytes);
}

}  // namespace
}  // namespace tiercel
