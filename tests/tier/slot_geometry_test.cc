// SPDX-License-Identifier: Apache-2.0
#include "tier/slot_geometry.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

SlotGeometryOptions small_options() {
  SlotGeometryOptions options;
  options.payload_bytes = {{1000, 9000}, {5000, 100}};
  options.extent_count = 3;
  options.slots_per_extent = {4, 2};
  return options;
}

std::string message_of(const Result<SlotGeometry>& result) {
  if (result) return "";
  EXPECT_EQ(result.code(), Code::kInvalid);
  return result.error().message();
}

TEST(SlotGeometry, StrideHasRoomForPayloadAndFrameAndIsAligned) {
  EXPECT_EQ(slot_stride_bytes(1), 4096u);
  EXPECT_EQ(slot_stride_bytes(4096 - kFrameBytes), 4096u);
  EXPECT_EQ(slot_stride_bytes(4096 - kFrameBytes + 1), 8192u);
  EXPECT_EQ(slot_stride_bytes(1 << 20), (1u << 20) + 4096u);
}

TEST(SlotGeometry, ASlotHasTheSameIdOnAllRanksAndAnOffsetOfItsOwnOnEach) {
  const SlotGeometry geometry = SlotGeometry::create(small_options()).value();
  EXPECT_EQ(geometry.slots_per_extent_max(), 4u);
  EXPECT_EQ(geometry.slot_count_max(), 12u);
  EXPECT_EQ(geometry.extent_bytes(0), 4u * 4096);  // 4 × 4096 against 2 × 8192
  EXPECT_EQ(geometry.extent_bytes(1), 4u * 12288);
  EXPECT_EQ(geometry.tier_bytes(1), 3u * 4 * 12288);
  EXPECT_EQ(geometry.extent_of(SlotId(5)), 1u);
  EXPECT_EQ(geometry.offset(SlotId(5), GroupId(0), 0), 5u * 4096);
  EXPECT_EQ(geometry.offset(SlotId(5), GroupId(0), 1), 5u * 12288);
  EXPECT_EQ(geometry.offset(SlotId(5), GroupId(1), 0), 4u * 4096 + 8192);
  EXPECT_EQ(geometry.offset(SlotId(6), GroupId(1), 0), std::nullopt) << "the class has two slots";
}

TEST(SlotGeometry, HostileIdsHaveNoPlace) {
  const SlotGeometry geometry = SlotGeometry::create(small_options()).value();
  EXPECT_EQ(geometry.offset(SlotId(12), GroupId(0), 0), std::nullopt);
  EXPECT_EQ(geometry.offset(SlotId(UINT32_MAX), GroupId(0), 0), std::nullopt);
  EXPECT_EQ(geometry.offset(SlotId(0), GroupId(2), 0), std::nullopt);
  EXPECT_EQ(geometry.offset(SlotId(0), GroupId(255), 0), std::nullopt);
  EXPECT_EQ(geometry.offset(SlotId(0), GroupId(0), 2), std::nullopt);
  EXPECT_EQ(geometry.offset(SlotId(0), GroupId(0), UINT32_MAX), std::nullopt);
  EXPECT_GE(geometry.extent_of(SlotId(UINT32_MAX)), geometry.extent_count());
  EXPECT_EQ(geometry.slots_in_extent(3, GroupId(0)), 0u);
}

// Whatever the extents serve, no two slots share a byte on any rank, and all lie in the tier.
TEST(SlotGeometry, NoTwoSlotsOverlapOnAnyRankHoweverTheExtentsAreGiven) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const uint64_t groups = random.between(1, 4);
    const uint64_t ranks = random.between(1, 3);
    SlotGeometryOptions options;
    options.payload_bytes.assign(groups, std::vector<uint64_t>(ranks));
    for (auto& payloads : options.payload_bytes) {
      for (uint64_t& bytes : payloads) bytes = random.between(1, 20'000);
    }
    options.extent_count = static_cast<uint32_t>(random.between(1, 6));
    uint32_t slots_max = 0;
    for (uint64_t group = 0; group < groups; ++group) {
      options.slots_per_extent.push_back(static_cast<uint32_t>(random.between(1, 9)));
      slots_max = std::max(slots_max, options.slots_per_extent.back());
    }
    options.last_extent_slots = static_cast<uint32_t>(random.between(0, slots_max));
    const SlotGeometry geometry = SlotGeometry::create(options).value();
    std::vector<GroupId> serves;
    for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
      serves.emplace_back(static_cast<uint8_t>(random.below(groups)));
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::map<uint64_t, uint64_t> taken;  // begin → end
      uint32_t slots = 0;
      for (uint32_t id = 0; id < geometry.slot_count_max() + 20; ++id) {
        const uint32_t extent = geometry.extent_of(SlotId(id));
        if (extent >= geometry.extent_count()) {
          ASSERT_EQ(geometry.offset(SlotId(id), GroupId(0), rank), std::nullopt);
          continue;
        }
        const GroupId group = serves[extent];
        const auto offset = geometry.offset(SlotId(id), group, rank);
        ASSERT_EQ(offset.has_value(), geometry.exists(SlotId(id), group));
        if (!offset) continue;
        ++slots;
        EXPECT_EQ(*offset % kSlotAlignmentBytes, 0u);
        EXPECT_GE(geometry.stride_bytes(group, rank),
                  geometry.payload_bytes(group, rank) + kFrameBytes);
        taken[*offset] = *offset + geometry.stride_bytes(group, rank);
      }
      ASSERT_EQ(taken.size(), slots) << "two slots begin at one place";
      uint32_t expected = 0;
      for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
        expected += geometry.slots_in_extent(extent, serves[extent]);
      }
      EXPECT_EQ(slots, expected);
      uint64_t end = 0;
      for (const auto& [begin, behind] : taken) {
        ASSERT_LE(end, begin) << "seed " << seed;
        end = behind;
      }
      EXPECT_LE(end, geometry.tier_bytes(rank));
    }
  }
}

TEST(SlotGeometry, ForBlocksOfOneGroupHasExactlyTheCapacityAndNoByteMore) {
  for (const uint32_t capacity : {1u, 2u, 7u, 100u, 1000u, 1009u, 12'345u}) {
    for (const uint32_t extents : {1u, 2u, 3u, 16u, 64u, 5000u}) {
      const SlotGeometry geometry = SlotGeometry::for_blocks({{5000}}, capacity, extents).value();
      uint64_t slots = 0;
      for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
        slots += geometry.slots_in_extent(extent, GroupId(0));
      }
      EXPECT_EQ(slots, capacity);
      EXPECT_EQ(geometry.slot_count_max(), capacity);
      EXPECT_EQ(geometry.tier_bytes(0), capacity * slot_stride_bytes(5000));
      EXPECT_LE(geometry.extent_count(), std::min(capacity, extents));
    }
  }
}

TEST(SlotGeometry, ForBlocksOfSeveralGroupsHasRoomForAllOfThemAtOnce) {
  const SlotGeometry geometry =
      SlotGeometry::for_blocks({{5000, 1}, {100, 9000}, {1, 1}}, 1000, 16).value();
  const uint32_t extents_per_group = geometry.extent_count() / 3;
  EXPECT_EQ(geometry.extent_count() % 3, 0u);
  for (uint8_t group = 0; group < 3; ++group) {
    EXPECT_GE(extents_per_group * geometry.slots_in_extent(0, GroupId(group)), 1000u);
  }
  EXPECT_EQ(geometry.extent_bytes(1), geometry.slots_per_extent_max() * slot_stride_bytes(9000));
}

TEST(SlotGeometry, RefusesWhatDoesNotFitAndSaysWhat) {
  const auto refused = [](auto change) {
    SlotGeometryOptions options = small_options();
    change(options);
    return message_of(SlotGeometry::create(options));
  };
  using Options = SlotGeometryOptions;
  EXPECT_EQ(refused([](Options&) {}), "");
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused([](Options& o) { o.payload_bytes.clear(); }), "group count is 0");
  has(refused([](Options& o) { o.payload_bytes.assign(9, {1, 1}); }), "group count is 9");
  has(refused([](Options& o) { o.payload_bytes[0].clear(); }), "rank count is 0");
  has(refused([](Options& o) { o.payload_bytes[0].assign(65, 1); }), "rank count is 65");
  has(refused([](Options& o) { o.payload_bytes[1].push_back(1); }), "rank count of group 1 is 3");
  has(refused([](Options& o) { o.payload_bytes[1][0] = 0; }),
      "payload_bytes of group 1, rank 0 is 0");
  has(refused([](Options& o) { o.payload_bytes[0][1] = UINT64_MAX; }), "group 0, rank 1 is 1844");
  has(refused([](Options& o) { o.payload_bytes[0][1] = UINT64_MAX / 2; }),
      "group 0, rank 1 is 922");
  has(refused([](Options& o) { o.extent_count = 0; }), "extent_count is 0");
  has(refused([](Options& o) { o.slots_per_extent.pop_back(); }), "slots_per_extent is 1");
  has(refused([](Options& o) { o.slots_per_extent[1] = 0; }), "slots_per_extent of group 1 is 0");
  has(refused([](Options& o) { o.last_extent_slots = 5; }), "last_extent_slots is 5");
  has(refused([](Options& o) { o.extent_count = UINT32_MAX; }), "number of slots is 17179869180");
  has(refused([](Options& o) { o.payload_bytes[0][1] = uint64_t{1} << 62; }), "tier of rank 1");
  has(refused([](Options& o) {
        o.payload_bytes[0][0] = uint64_t{1} << 40;
        o.extent_count = 1u << 28;
      }),
      "tier of rank 0");
  has(message_of(SlotGeometry::for_blocks({{1}}, 0, 1)), "capacity_blocks is 0");
  has(message_of(SlotGeometry::for_blocks({{1}}, 1, 0)), "extents_wanted is 0");
  has(message_of(SlotGeometry::for_blocks({{1}, {1}}, UINT32_MAX, UINT32_MAX)),
      "number of extents");
  has(message_of(SlotGeometry::for_blocks({{1}, {1}}, UINT32_MAX, 2)), "number of slots");
}

}  // namespace
}  // namespace tiercel
