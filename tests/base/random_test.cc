// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <array>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(Random, SameSeedGivesTheSameChoicesOnEveryPlatform) {
  // The 10000th value of the engine with its default seed is fixed by the C++ standard.
  Random standard(5489);
  for (int i = 0; i < 9999; ++i) standard.next();
  EXPECT_EQ(standard.next(), 9981545732273789042u);
  Random first(7);
  Random second(7);
  Random other(8);
  int equal_to_other = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = first.below(1000);
    EXPECT_EQ(value, second.below(1000));
    equal_to_other += value == other.below(1000) ? 1 : 0;
  }
  EXPECT_LT(equal_to_other, 10);
}

TEST(Random, BelowReachesEveryValueAboutEquallyOften) {
  Random random(1);
  std::array<int, 10> counts{};
  for (int i = 0; i < 100'000; ++i) ++counts.at(random.below(10));
  for (int count : counts) EXPECT_NEAR(count, 10'000, 500);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0u);
}

TEST(Random, BetweenIncludesBothEnds) {
  Random random(2);
  std::array<int, 3> counts{};
  for (int i = 0; i < 1000; ++i) ++counts.at(random.between(5, 7) - 5);
  for (int count : counts) EXPECT_GT(count, 200);
  EXPECT_EQ(random.between(9, 9), 9u);
  bool differs = false;
  const uint64_t first = random.between(0, UINT64_MAX);
  for (int i = 0; i < 10; ++i) differs |= random.between(0, UINT64_MAX) != first;
  EXPECT_TRUE(differs);
}

TEST(Random, ChanceFollowsItsProbability) {
  Random random(3);
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double real = random.real();
    ASSERT_GE(real, 0.0);
    ASSERT_LT(real, 1.0);
    hits += random.chance(0.25) ? 1 : 0;
    ASSERT_FALSE(random.chance(0));
    ASSERT_TRUE(random.chance(1));
  }
  EXPECT_NEAR(hits, 25'000, 1000);
}

TEST(RandomDeathTest, EmptyRangesAssert) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Random random(4);
  EXPECT_DEATH(random.below(0), "below the bound");
  EXPECT_DEATH(random.between(2, 1), "not empty");
}

}  // namespace
}  // namespace tiercel
