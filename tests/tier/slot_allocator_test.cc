// SPDX-License-Identifier: Apache-2.0
#include "tier/slot_allocator.h"

#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

constexpr GroupId kGroup0{0};
constexpr GroupId kGroup1{1};

SlotGeometry two_groups() {
  SlotGeometryOptions options;
  options.payload_bytes = {{1000}, {9000}};
  options.extent_count = 3;
  options.slots_per_extent = {6, 2};
  options.last_extent_slots = 3;
  return SlotGeometry::create(options).value();
}

TEST(SlotAllocator, HasExactlyItsCapacity) {
  for (const uint32_t capacity : {1u, 2u, 63u, 100u, 1009u}) {
    SlotAllocator slots(SlotGeometry::for_blocks({{1000}}, capacity, 16).value());
    std::set<SlotId> seen;
    for (uint32_t i = 0; i < capacity; ++i) {
      ASSERT_TRUE(slots.can_allocate(kGroup0));
      const auto slot = slots.allocate(kGroup0);
      ASSERT_TRUE(slot);
      ASSERT_TRUE(seen.insert(*slot).second);
      ASSERT_TRUE(slots.geometry().offset(*slot, kGroup0, 0));
    }
    EXPECT_FALSE(slots.can_allocate(kGroup0));
    EXPECT_EQ(slots.allocate(kGroup0), std::nullopt);
    EXPECT_EQ(slots.counts().used, capacity);
    EXPECT_EQ(slots.check(), "");
  }
}

TEST(SlotAllocator, F17F59ADoubleFreeIsRefusedAndCountedAndMovesNoCount) {
  SlotAllocator slots(two_groups());
  const SlotId a = slots.allocate(kGroup0).value();
  const SlotId b = slots.allocate(kGroup0).value();
  EXPECT_TRUE(slots.free(a));
  EXPECT_FALSE(slots.free(a));
  EXPECT_FALSE(slots.release_quarantine(b)) << "is not in quarantine";
  EXPECT_TRUE(slots.quarantine(b));
  EXPECT_FALSE(slots.quarantine(b));
  EXPECT_FALSE(slots.free(b)) << "a transfer may still touch it";
  EXPECT_TRUE(slots.release_quarantine(b));
  EXPECT_FALSE(slots.release_quarantine(b));
  EXPECT_FALSE(slots.free(SlotId(17)));
  EXPECT_FALSE(slots.free(SlotId(UINT32_MAX)));
  EXPECT_EQ(slots.counts().refused_frees, 7u);
  EXPECT_EQ(slots.counts().used, 0u);
  EXPECT_EQ(slots.counts().extents_free, 3u);
  EXPECT_EQ(slots.check(), "");
}

TEST(SlotAllocator, AnEmptyExtentServesAnotherGroup) {
  SlotAllocator slots(two_groups());
  std::vector<SlotId> taken;
  while (const auto slot = slots.allocate(kGroup0)) taken.push_back(*slot);
  EXPECT_EQ(taken.size(), 6u + 6u + 3u);
  EXPECT_FALSE(slots.can_allocate(kGroup1));
  // Not before the last slot of an extent is free.
  for (uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(slots.free(taken[i]));
  EXPECT_FALSE(slots.can_allocate(kGroup1));
  EXPECT_TRUE(slots.quarantine(taken[5]));
  EXPECT_FALSE(slots.can_allocate(kGroup1)) << "a slot in quarantine keeps its extent";
  EXPECT_TRUE(slots.release_quarantine(taken[5]));
  ASSERT_TRUE(slots.can_allocate(kGroup1));
  const SlotId slot = slots.allocate(kGroup1).value();
  EXPECT_EQ(slots.group_of(slot), kGroup1);
  EXPECT_EQ(slots.geometry().extent_of(slot), 0u);
  EXPECT_TRUE(slots.allocate(kGroup1));
  EXPECT_EQ(slots.allocate(kGroup1), std::nullopt) << "two slots of this class fit an extent";
  EXPECT_EQ(slots.used(kGroup1), 2u);
  EXPECT_EQ(slots.check(), "");
}

TEST(SlotAllocator, FullerExtentsAreFilledFirstSoThatEmptierOnesCanBeGivenBack) {
  SlotAllocator slots(SlotGeometry::for_blocks({{1000}}, 160, 10).value());  // 10 extents of 16
  std::vector<SlotId> taken;
  for (uint32_t i = 0; i < 160; ++i) taken.push_back(slots.allocate(kGroup0).value());
  // Extent 3 keeps 2 of its slots, all others 14.
  for (const SlotId slot : taken) {
    const uint32_t keep = slots.geometry().extent_of(slot) == 3 ? 2 : 14;
    if (slots.geometry().index_in_extent(slot) >= keep) {
      EXPECT_TRUE(slots.free(slot));
    }
  }
  for (uint32_t i = 0; i < 18; ++i) {
    EXPECT_NE(slots.geometry().extent_of(slots.allocate(kGroup0).value()), 3u);
  }
  EXPECT_EQ(slots.geometry().extent_of(slots.allocate(kGroup0).value()), 3u);
}

TEST(SlotAllocator, AdoptTakesAGivenFreeSlotAndRefusesWhatContradicts) {
  SlotAllocator slots(two_groups());
  EXPECT_TRUE(slots.adopt(SlotId(8), kGroup0));
  EXPECT_FALSE(slots.adopt(SlotId(8), kGroup0)) << "is used";
  EXPECT_FALSE(slots.adopt(SlotId(7), kGroup1)) << "the extent serves group 0";
  EXPECT_TRUE(slots.adopt(SlotId(1), kGroup1));
  EXPECT_FALSE(slots.adopt(SlotId(2), kGroup1)) << "the class has two slots in an extent";
  EXPECT_FALSE(slots.adopt(SlotId(15), kGroup0)) << "the last extent has three slots";
  EXPECT_FALSE(slots.adopt(SlotId(UINT32_MAX), kGroup0));
  EXPECT_FALSE(slots.adopt(SlotId(12), GroupId(2)));
  EXPECT_EQ(slots.counts().extents_assigned, 2u);
  EXPECT_EQ(slots.group_of(SlotId(12)), std::nullopt);
  EXPECT_EQ(slots.group_of(SlotId(8)), kGroup0);
  EXPECT_TRUE(slots.is_used(SlotId(8)));
  EXPECT_EQ(slots.check(), "");
}

TEST(SlotAllocator, AnUnknownGroupGetsNothing) {
  SlotAllocator slots(two_groups());
  EXPECT_FALSE(slots.can_allocate(GroupId(2)));
  EXPECT_EQ(slots.allocate(GroupId(255)), std::nullopt);
  EXPECT_EQ(slots.used(GroupId(255)), 0u);
}

// free + used + quarantined = total after every step, each slot in one state, whatever is asked.
TEST(SlotAllocator, F59AgreesWithSetsOverRandomOperations) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    SlotGeometryOptions options;
    options.payload_bytes = {{1000}, {9000}, {100}};
    options.extent_count = 7;
    options.slots_per_extent = {static_cast<uint32_t>(random.between(1, 20)),
                                static_cast<uint32_t>(random.between(1, 20)),
                                static_cast<uint32_t>(random.between(1, 20))};
    options.last_extent_slots = 1;
    const SlotGeometry geometry = SlotGeometry::create(options).value();
    SlotAllocator slots(geometry);
    std::map<uint32_t, GroupId> used;
    std::map<uint32_t, GroupId> quarantined;
    uint64_t refused = 0;
    uint64_t full = 0;
    for (uint32_t step = 0; step < 4000; ++step) {
      const GroupId group(static_cast<uint8_t>(random.below(3)));
      const SlotId any(static_cast<uint32_t>(random.below(geometry.slot_count_max() + 3)));
      // Which group an extent serves follows from what is taken in it.
      const auto serves = [&](uint32_t extent) -> std::optional<GroupId> {
        for (const auto* taken : {&used, &quarantined}) {
          for (const auto& [slot, its_group] : *taken) {
            if (geometry.extent_of(SlotId(slot)) == extent) return its_group;
          }
        }
        return std::nullopt;
      };
      switch (random.below(step / 500 % 2 == 0 ? 5 : 8)) {
        case 0:
        case 1:
        case 2: {
          uint64_t room = 0;
          for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
            if (serves(extent).value_or(group) == group) {
              room += geometry.slots_in_extent(extent, group);
            }
          }
          for (const auto* taken : {&used, &quarantined}) {
            for (const auto& [slot, its_group] : *taken) room -= its_group == group ? 1 : 0;
          }
          ASSERT_EQ(slots.can_allocate(group), room != 0);
          const auto slot = slots.allocate(group);
          ASSERT_EQ(slot.has_value(), room != 0);
          if (!slot) {
            ++full;
            break;
          }
          ASSERT_TRUE(geometry.exists(*slot, group));
          ASSERT_FALSE(used.contains(slot->value()) || quarantined.contains(slot->value()));
          ASSERT_EQ(serves(geometry.extent_of(*slot)).value_or(group), group);
          used[slot->value()] = group;
          break;
        }
        case 3: {
          const bool may = geometry.exists(any, group) && !used.contains(any.value()) &&
                           !quarantined.contains(any.value()) &&
                           serves(geometry.extent_of(any)).value_or(group) == group;
          ASSERT_EQ(slots.adopt(any, group), may);
          if (may) used[any.value()] = group;
          break;
        }
        case 4: {
          const bool may = used.contains(any.value());
          ASSERT_EQ(slots.quarantine(any), may);
          if (may) {
            quarantined[any.value()] = used[any.value()];
            used.erase(any.value());
          }
          refused += may ? 0 : 1;
          break;
        }
        case 5: {
          const bool may = quarantined.erase(any.value()) != 0;
          ASSERT_EQ(slots.release_quarantine(any), may);
          refused += may ? 0 : 1;
          break;
        }
        default: {
          const bool may = used.erase(any.value()) != 0;
          ASSERT_EQ(slots.free(any), may);
          refused += may ? 0 : 1;
        }
      }
      ASSERT_EQ(slots.check(), "") << "seed " << seed << " step " << step;
      const auto counts = slots.counts();
      ASSERT_EQ(counts.used, used.size());
      ASSERT_EQ(counts.quarantined, quarantined.size());
      ASSERT_EQ(counts.refused_frees, refused);
      uint64_t total = 0;
      uint32_t assigned = 0;
      for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
        const auto group_served = serves(extent);
        if (!group_served) continue;
        ++assigned;
        total += geometry.slots_in_extent(extent, *group_served);
      }
      ASSERT_EQ(counts.used + counts.quarantined + counts.free_in_extents, total);
      ASSERT_EQ(counts.extents_assigned, assigned);
      ASSERT_EQ(counts.extents_assigned + counts.extents_free, geometry.extent_count());
      ASSERT_EQ(slots.is_used(any), used.contains(any.value()));
      ASSERT_EQ(slots.is_quarantined(any), quarantined.contains(any.value()));
    }
    EXPECT_GT(full, 0u);
    EXPECT_GT(refused, 0u);
  }
}

}  // namespace
}  // namespace tiercel
