// SPDX-License-Identifier: Apache-2.0
#include "tiercel/store.h"

#include <array>

#include <gtest/gtest.h>

#include "store/store_harness.h"
#include "store/store_items.h"

namespace tiercel {
namespace {

TEST(StoreItems, TotalBytesIsTheSumOfAllSpans) {
  std::array<std::byte, 100> memory{};
  StoreGetItem get{test_key(1), {}};
  EXPECT_EQ(get.total_bytes(), 0U);
  get.spans[0] = std::span(memory).first(10);
  get.spans[3] = std::span(memory).last(7);
  EXPECT_EQ(get.total_bytes(), 17U);
  StorePutItem put{test_key(1), {}, false};
  put.spans[1] = std::span(memory).first(1);
  put.spans[2] = std::span(memory).last(2);
  EXPECT_EQ(put.total_bytes(), 3U);
}

TEST(StoreItems, AnItemNeedsAKeyAndBytes) {
  std::array<std::byte, 4> memory{};
  EXPECT_TRUE(is_well_formed(test_key(1)));
  EXPECT_FALSE(is_well_formed(ObjectKey()));
  StoreGetItem get{test_key(1), {}};
  EXPECT_FALSE(is_well_formed(get));
  get.spans[2] = memory;
  EXPECT_TRUE(is_well_formed(get));
  get.spans[1] = std::span<std::byte>(static_cast<std::byte*>(nullptr), 3);
  EXPECT_FALSE(is_well_formed(get));
  StorePutItem put{ObjectKey(), {}, false};
  put.spans[0] = memory;
  EXPECT_FALSE(is_well_formed(put));
  put.key = test_key(1);
  EXPECT_TRUE(is_well_formed(put));
}

TEST(StoreItems, ADeadlineHasPassedFromItsInstantOn) {
  const TimePoint deadline{Duration(10)};
  EXPECT_FALSE(has_passed(deadline, TimePoint(Duration(9))));
  EXPECT_TRUE(has_passed(deadline, deadline));
  EXPECT_TRUE(has_passed(deadline, TimePoint(Duration(11))));
  EXPECT_FALSE(has_passed(kNoDeadline, kNoDeadline));
}

}  // namespace
}  // namespace tiercel
