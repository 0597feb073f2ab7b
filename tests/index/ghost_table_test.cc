// SPDX-License-Identifier: Apache-2.0
#include "index/policy/ghost_table.h"

#include <gtest/gtest.h>

#include "index/index_test_support.h"

namespace tiercel {
namespace {

TEST(GhostTable, RemembersTheLastEvictionsAndForgetsOlderOnes) {
  constexpr uint32_t kCapacity = 1000;
  GhostTable ghosts(kCapacity);
  for (uint64_t key = 0; key < 5 * kCapacity; ++key) ghosts.add(numbered_key(key), kGroup0);
  EXPECT_LE(ghosts.count(), kCapacity);
  uint32_t remembered = 0;
  for (uint64_t key = 0; key < 5 * kCapacity; ++key) {
    const bool is_ghost = ghosts.take(numbered_key(key), kGroup0);
    EXPECT_FALSE(is_ghost && key < 4 * kCapacity) << key;
    remembered += is_ghost ? 1 : 0;
  }
  EXPECT_GT(remembered, kCapacity * 9 / 10);
  EXPECT_EQ(ghosts.count(), 0u) << "taken ghosts are forgotten";
}

TEST(GhostTable, TheGroupIsPartOfTheIdentity) {
  GhostTable ghosts(10);
  ghosts.add(numbered_key(1), GroupId(0));
  EXPECT_FALSE(ghosts.take(numbered_key(1), GroupId(1)));
  EXPECT_TRUE(ghosts.take(numbered_key(1), GroupId(0)));
}

TEST(GhostTable, AddingABlockTwiceRemembersItOnce) {
  GhostTable ghosts(10);
  ghosts.add(numbered_key(1), kGroup0);
  ghosts.add(numbered_key(1), kGroup0);
  EXPECT_EQ(ghosts.count(), 1u);
}

TEST(GhostTable, OldestGhostOfAFullBucketGoesFirst) {
  // So small that all ghosts share two buckets.
  GhostTable ghosts(4);
  for (uint64_t key = 0; key < 100; ++key) {
    ghosts.add(numbered_key(key), kGroup0);
    EXPECT_LE(ghosts.count(), 4u);
  }
  EXPECT_TRUE(ghosts.take(numbered_key(99), kGroup0));
}

TEST(GhostTable, TakesNoMoreThanSixteenBytesForEachBlockOfCapacity) {
  EXPECT_LE(GhostTable(100'000).bytes(), 1'600'000u);
}

}  // namespace
}  // namespace tiercel
