// SPDX-License-Identifier: Apache-2.0
#include "cache/two_term_fit.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class TwoTermFitTest : public ::testing::Test {
 protected:
  // A measurement every 100 ms.
  void observe(double fixed, double growing, double actual) {
    now_ += 100ms;
    fit_.observe(fixed, growing, actual, now_);
  }

  TwoTermFit fit_{30s};
  TimePoint now_{};
};

TEST_F(TwoTermFitTest, WithoutMeasurementsThePriorHolds) {
  EXPECT_DOUBLE_EQ(fit_.seconds(0.002, 0.01), 0.012);
}

TEST_F(TwoTermFitTest, TheFirstMeasurementMovesBothTermsAlike) {
  observe(0.002, 0.008, 0.05);
  EXPECT_NEAR(fit_.seconds(0.002, 0.008), 0.05, 0.005);
  EXPECT_NEAR(fit_.factors().fixed, fit_.factors().growing, 1e-9);
}

TEST_F(TwoTermFitTest, DifferentSizesSeparateLatencyAndBandwidth) {
  // Twenty times the latency of the prior, and half of its time for each byte.
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const double growing = 0.0005 * static_cast<double>(1 + random.below(64));
    observe(0.001, growing, 20 * 0.001 + 0.5 * growing);
  }
  EXPECT_NEAR(fit_.factors().fixed, 20, 1);
  EXPECT_NEAR(fit_.factors().growing, 0.5, 0.1);
}

TEST_F(TwoTermFitTest, EqualSizesKeepTheDivisionOfThePriorWhateverTheNoise) {
  Random random(2);
  for (int i = 0; i < 500; ++i) observe(0.001, 0.004, 0.005 * (0.7 + 0.6 * random.real()));
  EXPECT_NEAR(fit_.factors().fixed / fit_.factors().growing, 1, 0.01);
  EXPECT_NEAR(fit_.seconds(0.001, 0.004), 0.005, 0.0005);
}

TEST_F(TwoTermFitTest, OneFarOutlierMovesLittle) {
  for (int i = 0; i < 50; ++i) observe(0.001, 0.004, 0.005);
  observe(0.001, 0.004, 50);
  EXPECT_LT(fit_.seconds(0.001, 0.004), 0.006);
}

TEST_F(TwoTermFitTest, AChangeOfTenTimesIsFollowedWithinFourMeasurementsEitherWay) {
  for (int i = 0; i < 5000; ++i) observe(0.001, 0.004, 0.005);
  for (int i = 0; i < 4; ++i) observe(0.001, 0.004, 0.05);
  EXPECT_NEAR(fit_.seconds(0.001, 0.004), 0.05, 0.005);
  for (int i = 0; i < 5000; ++i) observe(0.001, 0.004, 0.05);
  for (int i = 0; i < 4; ++i) observe(0.001, 0.004, 0.005);
  EXPECT_NEAR(fit_.seconds(0.001, 0.004), 0.005, 0.0015);
}

TEST_F(TwoTermFitTest, AfterALongPauseOneMeasurementIsEnough) {
  for (int i = 0; i < 100; ++i) observe(0.001, 0.004, 0.05);
  now_ += 10min;
  observe(0.001, 0.004, 0.005);
  EXPECT_NEAR(fit_.seconds(0.001, 0.004), 0.005, 0.001);
}

TEST_F(TwoTermFitTest, BothTermsStayPositiveWhateverIsMeasured) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const double fixed = random.chance(0.2) ? 0 : std::pow(10, -6 + 6 * random.real());
    const double growing = std::pow(10, -6 + 8 * random.real());
    observe(fixed, growing, random.chance(0.1) ? 0 : std::pow(10, -7 + 9 * random.real()));
    if (random.chance(0.01)) now_ += 5min;
    ASSERT_GT(fit_.factors().fixed, 0) << i;
    ASSERT_GT(fit_.factors().growing, 0) << i;
    ASSERT_TRUE(std::isfinite(fit_.seconds(1, 1))) << i;
  }
}

}  // namespace
}  // namespace tiercel
