// SPDX-License-Identifier: Apache-2.0
#include "cli/infinite_cache.h"

#include <vector>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

std::vector<BlockKey> keys(std::initializer_list<uint8_t> bytes) {
  std::vector<BlockKey> result;
  for (uint8_t byte : bytes) result.emplace_back().bytes.fill(std::byte{byte});
  return result;
}

TEST(InfiniteCache, OnlyTheLeadingRunCounts) {
  InfiniteCache cache;
  EXPECT_EQ(cache.visit(keys({1, 2, 3})), 0u);
  EXPECT_EQ(cache.visit(keys({1, 2, 4, 3})), 2u);
  EXPECT_EQ(cache.visit(keys({5, 1, 2})), 0u);
  EXPECT_EQ(cache.visit(keys({5, 1, 2, 3})), 4u);
}

TEST(InfiniteCache, KeysThatComeInRunsAreCountedInRuns) {
  InfiniteCache cache;
  EXPECT_EQ(cache.visit(keys({1, 2, 3, 4}), 2), 0u);
  EXPECT_EQ(cache.visit(keys({1, 2, 5, 6}), 2), 2u);
  EXPECT_EQ(cache.visit(keys({1, 2, 3, 4}), 2), 4u);
}

}  // namespace
}  // namespace tiercel
