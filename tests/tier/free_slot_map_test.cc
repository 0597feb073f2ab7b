// SPDX-License-Identifier: Apache-2.0
#include "tier/free_slot_map.h"

#include <set>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

TEST(FreeSlotMap, StartsWithAllBitsSetAndNoneBehindTheEnd) {
  for (const uint32_t size : {1u, 63u, 64u, 65u, 4096u, 4097u, 300'000u}) {
    FreeSlotMap map(size);
    EXPECT_EQ(map.next_set(0), 0u);
    EXPECT_EQ(map.next_set(size - 1), size - 1);
    EXPECT_EQ(map.next_set(size), std::nullopt);
    EXPECT_EQ(map.next_set(UINT32_MAX), std::nullopt);
    map.clear(size - 1);
    EXPECT_EQ(map.next_set(size - 1), std::nullopt);
  }
}

TEST(FreeSlotMap, AgreesWithASetOverRandomOperations) {
  for (const uint32_t size : {1u, 64u, 130u, 5000u, 300'000u}) {
    Random random(size);
    FreeSlotMap map(size);
    std::set<uint32_t> model;
    // Sparse, so that the search has to climb.
    for (uint32_t position = 0; position < size; ++position) map.clear(position);
    for (uint32_t step = 0; step < 4000; ++step) {
      const auto position = static_cast<uint32_t>(random.below(size));
      if (random.chance(0.3)) {
        map.set(position);
        model.insert(position);
      } else {
        const auto at = model.lower_bound(position);
        const uint32_t target = at == model.end() ? position : *at;
        map.clear(target);
        model.erase(target);
      }
      const auto from = static_cast<uint32_t>(random.below(size));
      const auto expected = model.lower_bound(from);
      const auto found = map.next_set(from);
      ASSERT_EQ(found.has_value(), expected != model.end());
      if (found) {
        ASSERT_EQ(*found, *expected);
      }
      ASSERT_EQ(map.test(from), model.contains(from));
    }
  }
}

}  // namespace
}  // namespace tiercel
