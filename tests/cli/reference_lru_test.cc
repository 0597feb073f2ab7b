// SPDX-License-Identifier: Apache-2.0
#include "cli/reference_lru.h"

#include <vector>

#include <gtest/gtest.h>

namespace tiercel::testing {
namespace {

uint64_t visit(ReferenceLru& lru, std::vector<uint64_t> ids) { return lru.visit(ids); }

TEST(ReferenceLru, HitsTheLeadingRun) {
  ReferenceLru lru(100);
  EXPECT_EQ(visit(lru, {1, 2, 3}), 0u);
  EXPECT_EQ(visit(lru, {1, 2, 9, 3}), 2u);
  EXPECT_EQ(visit(lru, {2}), 0u);
}

TEST(ReferenceLru, OldestGoesFirstAndOfOneRequestTheDeepest) {
  ReferenceLru lru(4);
  visit(lru, {1, 2, 3});
  visit(lru, {7});
  visit(lru, {8});  // five blocks: {1, 2, 3} goes
  EXPECT_EQ(visit(lru, {1, 2, 3}), 2u);
}

}  // namespace
}  // namespace tiercel::testing
