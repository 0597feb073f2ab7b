// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tiercel {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

struct Case {
  ArenaKind kind;
  bool huge_pages;
  bool prefault;
};

class ArenaTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<Arena> make(size_t bytes) {
    const Case& parameter = GetParam();
    return *Arena::create(bytes, {.kind = parameter.kind,
                                  .huge_pages = parameter.huge_pages,
                                  .prefault = parameter.prefault});
  }
};

// The line of /proc/self/smaps that begins with `name`, for the mapping that holds `address`.
std::string smaps_line(const void* address, const std::string& name) {
  std::ifstream file("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(file, line)) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = at >= begin && at < end;
    } else if (inside && line.starts_with(name)) {
      return line;
    }
  }
  return "";
}

// In KiB.
unsigned long resident(const void* address) {
  unsigned long kib = 0;
  std::sscanf(smaps_line(address, "Rss:").c_str(), "Rss: %lu", &kib);
  return kib;
}

TEST_P(ArenaTest, IsZeroFilledWritableAndOfTheAskedSize) {
  for (size_t bytes : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, 3 * kMebibyte + 5}) {
    const auto arena = make(bytes);
    const auto memory = arena->memory();
    ASSERT_EQ(memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
    EXPECT_TRUE(
        std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(memory.begin(), memory.end(), std::byte{0x5A});
    EXPECT_EQ(memory.back(), std::byte{0x5A});
    EXPECT_EQ(arena->kind(), GetParam().kind);
    EXPECT_EQ(arena->fd() >= 0, GetParam().kind == ArenaKind::kMemfd);
  }
}

TEST_P(ArenaTest, IsLeftOutOfCoreDumps) {
  const auto arena = make(kMebibyte);
  const std::string flags = smaps_line(arena->memory().data(), "VmFlags:");
  EXPECT_NE(flags.find(" dd"), std::string::npos) << flags;
}

TEST_P(ArenaTest, PrefaultMakesAllPagesResident) {
  const auto arena = make(4 * kMebibyte);
  const unsigned long kib = resident(arena->memory().data());
  if (GetParam().prefault) {
    EXPECT_EQ(kib, 4096u);
  } else {
    EXPECT_EQ(kib, 0u);
  }
}

TEST_P(ArenaTest, PagesAreOrdinaryUnlessHugeOnesWereAskedFor) {
  const auto arena = make(8 * kMebibyte);
  const std::string flags = smaps_line(arena->memory().data(), "VmFlags:");
  if (GetParam().huge_pages) {
    // Whatever the kernel's setting: what is reported was asked for, and starts where it can be
    // had.
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->memory().data()) % (2 * kMebibyte), 0u);
    if (arena->pages() == PageKind::kTransparentHuge) {
      EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
    }
  } else {
    EXPECT_EQ(arena->pages(), PageKind::kOrdinary);
    EXPECT_EQ(flags.find(" hg"), std::string::npos) << flags;
  }
}

TEST_P(ArenaTest, MoreThanAvailableIsRefusedWithSizeAndLimit) {
  const Case& parameter = GetParam();
  for (size_t bytes : {size_t{1} << 50, SIZE_MAX / 2, SIZE_MAX}) {
    const auto arena = Arena::create(bytes, {.kind = parameter.kind,
                                             .huge_pages = parameter.huge_pages,
                                             .prefault = parameter.prefault});
    ASSERT_FALSE(arena);
    EXPECT_EQ(arena.error().code(), Code::kNoSpace);
    const std::string& message = arena.error().message();
    EXPECT_NE(message.find(available_memory().source), std::string::npos) << message;
    if (bytes == size_t{1} << 50) {
      EXPECT_EQ(message.find("arena of 1024 TiB"), 0u) << message;
    }
  }
}

TEST_P(ArenaTest, ZeroBytesAreInvalid) {
  EXPECT_EQ(Arena::create(0, {.kind = GetParam().kind}).code(), Code::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ArenaTest,
    ::testing::Values(Case{ArenaKind::kAnonymous, false, false},
                      Case{ArenaKind::kAnonymous, true, false},
                      Case{ArenaKind::kAnonymous, false, true},
                      Case{ArenaKind::kAnonymous, true, true},
                      Case{ArenaKind::kMemfd, false, false}, Case{ArenaKind::kMemfd, true, false},
                      Case{ArenaKind::kMemfd, false, true}, Case{ArenaKind::kMemfd, true, true}),
    [](const ::testing::TestParamInfo<Case>& tested) {
      return std::string(tested.param.kind == ArenaKind::kMemfd ? "Memfd" : "Anonymous") +
             (tested.param.huge_pages ? "Huge" : "Ordinary") +
             (tested.param.prefault ? "Prefaulted" : "Lazy");
    });

TEST(MemfdArena, SecondMappingSeesTheSameBytes) {
  const auto arena = *Arena::create(3 * 4096, {.kind = ArenaKind::kMemfd});
  arena->memory()[5000] = std::byte{42};
  void* const second =
      ::mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(second, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(second);
  EXPECT_EQ(bytes[5000], std::byte{42});
  bytes[6000] = std::byte{43};
  EXPECT_EQ(arena->memory()[6000], std::byte{43});
  ::munmap(second, 3 * 4096);
}

TEST(MemfdArena, IsSealedOwnerOnlyNamedAndClosedOnExec) {
  const auto arena = *Arena::create(8192, {.kind = ArenaKind::kMemfd, .name = "host-tier"});
  EXPECT_NE(::ftruncate(arena->fd(), 4096), 0) << "shrinking would make our own accesses fault";
  EXPECT_NE(::ftruncate(arena->fd(), 1 << 20), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(arena->fd(), &status), 0);
  EXPECT_EQ(status.st_size, 8192);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_NE(::fcntl(arena->fd(), F_GETFD) & FD_CLOEXEC, 0);
  std::string link(100, '\0');
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(arena->fd())).c_str(),
                                    link.data(), link.size());
  ASSERT_GT(length, 0);
  EXPECT_EQ(link.find("/memfd:host-tier"), 0u);
}

TEST(MemfdArena, NameThatIsTooLongIsInvalid) {
  EXPECT_EQ(Arena::create(4096, {.kind = ArenaKind::kMemfd, .name = std::string(300, 'x')}).code(),
            Code::kInvalid);
}

TEST(Arena, IsUnmappedAndClosedAtTheEnd) {
  auto arena = *Arena::create(4096, {.kind = ArenaKind::kMemfd});
  void* const address = arena->memory().data();
  const int fd = arena->fd();
  EXPECT_NE(smaps_line(address, "Rss:"), "");
  arena.reset();
  EXPECT_EQ(smaps_line(address, "Rss:"), "");
  EXPECT_LT(::fcntl(fd, F_GETFD), 0);
}

}  // namespace
}  // namespace tiercel
