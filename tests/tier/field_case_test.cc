// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as the geometry of a tier can show them:
// overcommitted memory (F53), pools that are too small (F50). F17 and F59 are beside the other
// tests of SlotAllocator.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "tier/slot_allocator.h"
#include "tier/tier_memory.h"

namespace tiercel {
namespace {

// A false root of the file system, so that available memory and a container's limit can be set.
class FieldCaseF53 : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_.path(path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void set_available(uint64_t kib) {
    write("proc/meminfo", "MemAvailable: " + std::to_string(kib) + " kB\n");
  }
  void set_container(uint64_t bytes) {
    write("proc/self/cgroup", "0::/pod\n");
    write("sys/fs/cgroup/pod/memory.max", std::to_string(bytes) + "\n");
    write("sys/fs/cgroup/pod/memory.current", "0\n");
  }
  Status verdict(const SlotGeometry& geometry) const {
    return check_memory_of_ranks(geometry, available_memory_under(root_.path("")));
  }

  const testing::TempFolder root_;
};

// F53: eight ranks on one host each checked the free memory, all passed, and together they
// exhausted it.
TEST_F(FieldCaseF53, TheSumOverAllRanksAndPoolsDecides) {
  for (const uint32_t ranks : {1u, 2u, 8u}) {
    // Two pools a rank; what counts is a multiple of the page, so that borders can be met exactly.
    const SlotGeometry geometry =
        SlotGeometry::for_blocks(
            {std::vector<uint64_t>(ranks, 50'000), std::vector<uint64_t>(ranks, 3'000)}, 100, 4)
            .value();
    const uint64_t rank_kib = geometry.tier_bytes(0) / 1024;
    set_available(rank_kib * ranks);
    EXPECT_TRUE(verdict(geometry)) << ranks;
    set_available(rank_kib * ranks - 1);
    const Status refused = verdict(geometry);
    ASSERT_EQ(refused.code(), Code::kNoSpace) << ranks;
    EXPECT_NE(refused.error().message().find("of " + std::to_string(ranks) + " ranks together"),
              std::string::npos)
        << refused.error().message();
    EXPECT_NE(refused.error().message().find("(available memory)"), std::string::npos);
    if (ranks == 1) continue;
    set_available(rank_kib);  // enough for each rank alone
    EXPECT_EQ(verdict(geometry).code(), Code::kNoSpace);
  }
}

// F53: in a container the host's number was used instead of the container's.
TEST_F(FieldCaseF53, TheSmallerOfHostAndContainerCounts) {
  const SlotGeometry geometry = SlotGeometry::for_blocks({{5000, 5000}}, 100, 4).value();
  const uint64_t bytes = geometry.tier_bytes(0) * 2;
  set_available(bytes);  // that many KiB: far more than is needed
  set_container(bytes);
  EXPECT_TRUE(verdict(geometry));
  set_container(bytes - 1);
  const Status refused = verdict(geometry);
  ASSERT_EQ(refused.code(), Code::kNoSpace);
  EXPECT_NE(refused.error().message().find("(cgroup limit /pod)"), std::string::npos)
      << refused.error().message();
  set_container(uint64_t{1} << 40);
  EXPECT_TRUE(verdict(geometry));
}

TEST_F(FieldCaseF53, TheVerdictDoesNotDependOnTheOrderOfRanksAndPools) {
  std::vector<uint64_t> of_ranks = {1, 4000, 9000, 70'000};
  std::vector<uint64_t> of_ranks_too = {500, 12'000, 1, 3000};
  const auto geometry = [&](bool swapped) {
    return SlotGeometry::for_blocks(swapped ? PayloadBytes{of_ranks_too, of_ranks}
                                            : PayloadBytes{of_ranks, of_ranks_too},
                                    50, 4)
        .value();
  };
  uint64_t total = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) total += geometry(false).tier_bytes(rank);
  const MemoryLimit enough{total, "cgroup limit /pod"};
  const MemoryLimit one_byte_less{total - 1, "cgroup limit /pod"};
  std::vector<size_t> order = {0, 1, 2, 3};
  const auto first = of_ranks;
  const auto second = of_ranks_too;
  do {
    for (size_t i = 0; i < order.size(); ++i) {
      of_ranks[i] = first[order[i]];
      of_ranks_too[i] = second[order[i]];
    }
    for (const bool swapped : {false, true}) {
      EXPECT_TRUE(check_memory_of_ranks(geometry(swapped), enough));
      EXPECT_EQ(check_memory_of_ranks(geometry(swapped), one_byte_less).code(), Code::kNoSpace);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(FieldCaseF53, ASumBeyondAllNumbersIsRefusedAndNotTakenForASmallOne) {
  SlotGeometryOptions options;
  options.payload_bytes = {std::vector<uint64_t>(8, (uint64_t{1} << 62) - kSlotAlignmentBytes)};
  options.extent_count = 1;
  options.slots_per_extent = {1};
  const SlotGeometry geometry = SlotGeometry::create(options).value();
  set_available(1);
  EXPECT_EQ(verdict(geometry).code(), Code::kNoSpace);
}

// F50: a pool with fewer blocks than what is in flight needs. A tier has exactly the slots that
// were asked for: none is too few, and says so.
TEST(FieldCase, F50ATierHasExactlyTheSlotsThatWereAskedFor) {
  constexpr uint32_t kNeed = 7;
  const auto refused = SlotGeometry::for_blocks({{5000}}, 0, 4);
  ASSERT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.error().message().find("capacity_blocks is 0; allowed: at least 1"),
            std::string::npos)
      << refused.error().message();
  for (const uint32_t slots : {1u, kNeed - 1, kNeed, kNeed + 1}) {
    SlotAllocator allocator(SlotGeometry::for_blocks({{5000}}, slots, 4).value());
    uint32_t had = 0;
    while (had < kNeed && allocator.allocate(GroupId(0))) ++had;
    EXPECT_EQ(had, std::min(slots, kNeed));
  }
}

}  // namespace
}  // namespace tiercel
