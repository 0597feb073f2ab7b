// SPDX-License-Identifier: Apache-2.0

#include "tier/disk/disk_geometry.h"

#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tier/disk/disk_format.h"

namespace tiercel {
namespace {

PayloadBytes random_payloads(Random& random) {
  const size_t rank_count = random.between(1, 4);
  PayloadBytes payload_bytes(random.between(1, 4));
  for (auto& ranks : payload_bytes) {
    for (size_t rank = 0; rank < rank_count; ++rank) {
      ranks.push_back(random.between(1, uint64_t{1} << random.between(1, 22)));
    }
  }
  return payload_bytes;
}

// One more slot on all ranks, or one more extent.
uint64_t bytes_of_one_more(const SlotGeometry& geometry) {
  SlotGeometryOptions options = geometry.options();
  if (geometry.group_count() > 1 || options.last_extent_slots == geometry.slots_per_extent_max()) {
    ++options.extent_count;
    options.last_extent_slots = geometry.group_count() > 1 ? 0 : 1;
  } else {
    ++options.last_extent_slots;
  }
  return disk_files_bytes(*SlotGeometry::create(options));
}

TEST(DiskGeometry, FillsTheBoundAndNeverPassesIt) {
  Random random(31);
  int made = 0;
  for (int round = 0; round < 1000; ++round) {
    const PayloadBytes payload_bytes = random_payloads(random);
    const uint64_t bytes = random.below(uint64_t{1} << random.between(10, 36));
    const Result<SlotGeometry> geometry = new_disk_geometry(payload_bytes, bytes);
    if (!geometry) {
      EXPECT_EQ(geometry.code(), Code::kInvalid);
      continue;
    }
    ++made;
    EXPECT_LE(disk_files_bytes(*geometry), bytes);
    EXPECT_GT(bytes_of_one_more(*geometry), bytes) << "there was room for more";
    EXPECT_GE(geometry->extent_count(), geometry->group_count() > 1 ? geometry->group_count() : 1u);
    for (uint8_t group = 0; group < geometry->group_count(); ++group) {
      EXPECT_GE(geometry->slots_in_extent(0, GroupId(group)), 1u);
    }
  }
  EXPECT_GT(made, 500);
}

TEST(DiskGeometry, TheSameBytesGiveTheSameGeometryToAFolderThatIsThere) {
  Random random(32);
  for (int round = 0; round < 300; ++round) {
    const PayloadBytes payload_bytes = random_payloads(random);
    const uint64_t bytes = (uint64_t{1} << 27) + random.below(uint64_t{1} << 30);
    const Result<SlotGeometry> made = new_disk_geometry(payload_bytes, bytes);
    ASSERT_TRUE(made) << made.error().to_string();
    const std::vector<uint32_t> extents = made->options().slots_per_extent;
    const Result<SlotGeometry> again = fitted_disk_geometry(payload_bytes, extents, bytes);
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(again->extent_count(), made->extent_count());
    EXPECT_EQ(again->slot_count_max(), made->slot_count_max());
    const uint64_t other = (uint64_t{1} << 27) + random.below(uint64_t{1} << 32);
    const Result<SlotGeometry> fitted = fitted_disk_geometry(payload_bytes, extents, other);
    if (!fitted) continue;  // too small for extents of this size
    EXPECT_LE(disk_files_bytes(*fitted), other);
    EXPECT_GT(bytes_of_one_more(*fitted), other);
    EXPECT_EQ(fitted->options().slots_per_extent, extents);
  }
}

TEST(DiskGeometry, OneGroupGetsEverySlotThatFits) {
  // 3 header pages; a slot of two pages and a record each.
  const uint64_t slot = 8192 + 160;
  for (const uint64_t slots : {1, 2, 63, 64, 65, 1000, 100000}) {
    const auto geometry = new_disk_geometry({{4096}}, 3 * 4096 + slots * slot);
    ASSERT_TRUE(geometry) << geometry.error().to_string();
    EXPECT_EQ(geometry->slot_count_max(), slots);
    EXPECT_EQ(new_disk_geometry({{4096}}, 3 * 4096 + (slots + 1) * slot - 1)->slot_count_max(),
              slots);
  }
}

TEST(DiskGeometry, SeveralGroupsShareExtentsOfAboutTheSameSize) {
  const PayloadBytes payload_bytes = {{1 << 20, 1 << 20}, {1 << 18, 1 << 18}, {4000, 4000}};
  const uint64_t bytes = uint64_t{16} << 30;
  const auto geometry = new_disk_geometry(payload_bytes, bytes);
  ASSERT_TRUE(geometry) << geometry.error().to_string();
  EXPECT_GE(geometry->extent_count(), 150u);
  EXPECT_LE(geometry->extent_count(), 250u);
  for (uint8_t group = 0; group < 3; ++group) {
    const uint64_t used =
        geometry->slots_in_extent(0, GroupId(group)) * geometry->stride_bytes(GroupId(group), 0);
    EXPECT_GT(used, geometry->extent_bytes(0) * 9 / 10) << "group " << int{group};
  }
  EXPECT_GT(disk_files_bytes(*geometry), bytes - bytes / 64);
}

TEST(DiskGeometry, TheLeastThatIsAllowedIsNamedAndIsAllowed) {
  const auto one = new_disk_geometry({{100, 5000}}, 0);
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().to_string(),
            "invalid: disk_bytes is 0B; allowed: at least 37184B, which is one block on all ranks");
  EXPECT_TRUE(new_disk_geometry({{100, 5000}}, 37184));
  EXPECT_FALSE(new_disk_geometry({{100, 5000}}, 37183));
  const auto two = new_disk_geometry({{100}, {5000}}, 0);
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().to_string(),
            "invalid: disk_bytes is 0B; allowed: at least 29312B, which is one extent of 8.31 KiB "
            "for each group");
  EXPECT_TRUE(new_disk_geometry({{100}, {5000}}, 29312));
  EXPECT_FALSE(new_disk_geometry({{100}, {5000}}, 29311));
}

TEST(DiskGeometry, SizesBeyondAllBoundsAreRefusedNotWrappedAround) {
  const auto largest = new_disk_geometry({{1}}, UINT64_MAX);
  ASSERT_TRUE(largest) << largest.error().to_string();
  EXPECT_EQ(largest->slot_count_max(), UINT32_MAX);
  EXPECT_TRUE(new_disk_geometry({{1, 1}, {5000, 1}}, UINT64_MAX));
  EXPECT_EQ(new_disk_geometry({{uint64_t{1} << 40}}, UINT64_MAX).code(), Code::kInvalid);
  EXPECT_EQ(new_disk_geometry({{INT64_MAX / 2, INT64_MAX / 2}}, 1 << 20).code(), Code::kInvalid);
  EXPECT_EQ(new_disk_geometry({}, 1 << 20).code(), Code::kInvalid);
  EXPECT_EQ(fitted_disk_geometry({{1}}, {UINT32_MAX}, UINT64_MAX)->slot_count_max(), UINT32_MAX);
  EXPECT_EQ(fitted_disk_geometry({{1}, {1}}, {UINT32_MAX, 1}, UINT64_MAX).code(), Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
