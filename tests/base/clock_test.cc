// SPDX-License-Identifier: Apache-2.0
#include "tiercel/clock.h"

#include <ctime>

#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace tiercel {
namespace {

TEST(SystemClock, IsTheMonotonicClockOfTheSystem) {
  const auto read_system = [] {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return TimePoint(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  };
  const SystemClock clock;
  const TimePoint before = read_system();
  const TimePoint shown = clock.now();
  const TimePoint after = read_system();
  EXPECT_LE(before, shown);
  EXPECT_LE(shown, after);
  EXPECT_LT(shown, kNoDeadline);
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.now() - start, std::chrono::milliseconds(5));
  clock.set(start + std::chrono::seconds(1));
  EXPECT_EQ(clock.now() - start, std::chrono::seconds(1));
}

TEST(ManualClockDeathTest, GoingBackwardsAsserts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ManualClock clock;
  EXPECT_DEATH(clock.advance(std::chrono::nanoseconds(-1)), "never goes backwards");
}

}  // namespace
}  // namespace tiercel
