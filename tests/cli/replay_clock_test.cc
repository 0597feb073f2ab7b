// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_clock.h"

#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace tiercel {
namespace {

TimePoint at(int64_t seconds) { return TimePoint(std::chrono::seconds(seconds)); }

TEST(ReplayClock, StandsWhereItWasSet) {
  ReplayClock clock(nullptr);
  EXPECT_EQ(clock.now(), at(0));
  clock.set(at(7));
  EXPECT_EQ(clock.now(), at(7));
}

TEST(ReplayClock, NeverGoesBackwards) {
  ReplayClock clock(nullptr);
  clock.set(at(7));
  clock.set(at(6));
  EXPECT_EQ(clock.now(), at(7));
}

TEST(ReplayClock, RunsOnWithTheClockUnderIt) {
  ManualClock real;
  real.set(at(1000));
  ReplayClock clock(&real);
  EXPECT_EQ(clock.now(), at(0));
  clock.set(at(7));
  real.advance(std::chrono::seconds(2));
  EXPECT_EQ(clock.now(), at(9));
  clock.set(at(8));
  EXPECT_EQ(clock.now(), at(9));
  clock.set(at(20));
  real.advance(std::chrono::seconds(1));
  EXPECT_EQ(clock.now(), at(21));
}

}  // namespace
}  // namespace tiercel
