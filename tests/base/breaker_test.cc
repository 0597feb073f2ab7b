// SPDX-License-Identifier: Apache-2.0
#include "base/breaker.h"

#include <deque>

#include <gtest/gtest.h>

#include "base/manual_clock.h"
#include "base/random.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class BreakerTest : public ::testing::Test {
 protected:
  static BreakerOptions options() {
    BreakerOptions options;
    options.failures = 3;
    options.backoff = seconds(1);
    options.backoff_max = seconds(5);
    return options;
  }

  static void fail(Breaker& breaker, Code code = Code::kTimeout) {
    const auto ticket = breaker.admit();
    ASSERT_TRUE(ticket);
    breaker.failed(*ticket, code);
  }
  static void succeed(Breaker& breaker) {
    const auto ticket = breaker.admit();
    ASSERT_TRUE(ticket);
    breaker.succeeded(*ticket);
  }
  static void open(Breaker& breaker) {
    for (int i = 0; i < 3; ++i) fail(breaker);
    ASSERT_EQ(breaker.state(), BreakerState::kOpen);
  }

  ManualClock clock_;
};

TEST_F(BreakerTest, OpensAfterFailuresInARow) {
  Breaker breaker(options(), clock_);
  fail(breaker);
  fail(breaker);
  succeed(breaker);
  fail(breaker);
  fail(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
  EXPECT_EQ(breaker.describe(), "closed");
  fail(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kOpen);
  EXPECT_FALSE(breaker.admit());
  clock_.advance(milliseconds(210));
  EXPECT_EQ(breaker.describe(), "open for 210 ms: 3 timeouts in a row");
  EXPECT_EQ(breaker.counters().opened, 1u);
  EXPECT_EQ(breaker.counters().refused, 1u);
  EXPECT_EQ(breaker.counters().admitted, 6u);
  EXPECT_EQ(breaker.counters().failed, 5u);
  EXPECT_EQ(breaker.counters().succeeded, 1u);
}

TEST_F(BreakerTest, TellsWhenItMayBeProbed) {
  Breaker breaker(options(), clock_);
  EXPECT_EQ(breaker.probe_at(), kNoDeadline);
  open(breaker);
  EXPECT_EQ(breaker.probe_at(), clock_.now() + seconds(1));
  clock_.advance(seconds(1));
  EXPECT_EQ(breaker.probe_at(), kNoDeadline) << "it may now";
  fail(breaker);
  EXPECT_EQ(breaker.probe_at(), clock_.now() + seconds(2));
}

TEST_F(BreakerTest, NamesTheLastOfSeveralKindsOfFailures) {
  Breaker breaker(options(), clock_);
  fail(breaker);
  fail(breaker, Code::kBusy);
  fail(breaker, Code::kUnavailable);
  EXPECT_EQ(breaker.reason(), "3 failures in a row, the last 'unavailable'");
}

TEST_F(BreakerTest, OpensAtAShareOfAFullWindow) {
  BreakerOptions options = this->options();
  options.window = 10;
  options.failure_share = 0.5;
  Breaker breaker(options, clock_);
  // Two in three fail, never three in a row; the window is full with the tenth.
  for (int i = 0; i < 9; ++i) i % 3 == 0 ? succeed(breaker) : fail(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
  succeed(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed) << "a success opens nothing";
  fail(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kOpen);
  EXPECT_EQ(breaker.reason(), "7 of the last 10 operations failed, the last 'timeout'");
}

TEST_F(BreakerTest, FailuresThatHaveLeftTheWindowDoNotCount) {
  BreakerOptions options = this->options();
  options.window = 4;
  options.failure_share = 0.5;
  Breaker breaker(options, clock_);
  for (int i = 0; i < 100; ++i) i % 4 == 0 ? fail(breaker) : succeed(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
}

TEST_F(BreakerTest, TheBackOffDoublesUpToItsMaximumAndStartsAnewOnceClosed) {
  Breaker breaker(options(), clock_);
  open(breaker);
  for (const auto backoff : {seconds(1), seconds(2), seconds(4), seconds(5), seconds(5)}) {
    clock_.advance(backoff - milliseconds(1));
    EXPECT_FALSE(breaker.admit());
    clock_.advance(milliseconds(1));
    EXPECT_EQ(breaker.state(), BreakerState::kHalfOpen);
    fail(breaker, Code::kUnavailable);
    EXPECT_EQ(breaker.state(), BreakerState::kOpen);
  }
  EXPECT_EQ(breaker.reason(), "the probe after 5 s ended in 'unavailable'");
  clock_.advance(seconds(5));
  succeed(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
  EXPECT_EQ(breaker.reason(), "");
  open(breaker);
  clock_.advance(seconds(1));
  EXPECT_TRUE(breaker.admit());
}

TEST_F(BreakerTest, LetsNoMoreThanItsProbesThroughAndClosesWhenAllSucceed) {
  BreakerOptions options = this->options();
  options.probes = 2;
  Breaker breaker(options, clock_);
  open(breaker);
  clock_.advance(seconds(1));
  const auto first = breaker.admit();
  const auto second = breaker.admit();
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(breaker.admit());
  breaker.succeeded(*first);
  EXPECT_FALSE(breaker.admit()) << "the second is still out, and no third is needed";
  EXPECT_EQ(breaker.describe(), "half-open: 1 of 2 probes came back; 3 timeouts in a row");
  breaker.succeeded(*second);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
  EXPECT_EQ(breaker.counters().probes, 2u);
}

TEST_F(BreakerTest, AnAbandonedProbeMakesRoomForAnother) {
  Breaker breaker(options(), clock_);
  open(breaker);
  clock_.advance(seconds(1));
  const auto first = breaker.admit();
  ASSERT_TRUE(first);
  EXPECT_FALSE(breaker.admit());
  breaker.abandoned(*first);
  succeed(breaker);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
}

TEST_F(BreakerTest, AProbeOfWhichNobodyTellsCountsAsFailed) {
  Breaker breaker(options(), clock_);
  open(breaker);
  clock_.advance(seconds(100));
  ASSERT_TRUE(breaker.admit());
  clock_.advance(seconds(5) - milliseconds(1));
  EXPECT_FALSE(breaker.admit());
  EXPECT_EQ(breaker.counters().opened, 1u);
  clock_.advance(milliseconds(1));
  EXPECT_FALSE(breaker.admit());
  EXPECT_EQ(breaker.reason(), "a probe did not come back within 5 s");
  clock_.advance(seconds(2));
  EXPECT_TRUE(breaker.admit());
}

TEST_F(BreakerTest, OutcomesFromBeforeAChangeMoveNothing) {
  Breaker breaker(options(), clock_);
  const auto early = breaker.admit();
  const auto late = breaker.admit();
  ASSERT_TRUE(early && late);
  open(breaker);
  breaker.succeeded(*early);
  EXPECT_EQ(breaker.state(), BreakerState::kOpen);
  clock_.advance(seconds(1));
  const auto probe = breaker.admit();
  ASSERT_TRUE(probe);
  breaker.failed(*late, Code::kTimeout);
  breaker.abandoned(*late);
  EXPECT_FALSE(breaker.admit());
  breaker.succeeded(*probe);
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
  breaker.trip(*late, Code::kTimeout, "too late");
  EXPECT_EQ(breaker.state(), BreakerState::kClosed);
}

TEST_F(BreakerTest, TripOpensAtOnce) {
  Breaker breaker(options(), clock_);
  const auto ticket = breaker.admit();
  ASSERT_TRUE(ticket);
  EXPECT_EQ(breaker.cause(), Code::kOk);
  breaker.trip(*ticket, Code::kTimeout, "no answer for 50 ms");
  EXPECT_EQ(breaker.describe(), "open for 0 s: no answer for 50 ms");
  EXPECT_EQ(breaker.cause(), Code::kTimeout);

  clock_.advance(seconds(1));
  breaker.failed(*breaker.admit(), Code::kUnavailable);
  EXPECT_EQ(breaker.cause(), Code::kUnavailable) << "why it opened last";
  clock_.advance(seconds(2));
  breaker.succeeded(*breaker.admit());
  EXPECT_EQ(breaker.cause(), Code::kOk);
}

// Whatever happens: never more probes out than allowed, everything is counted once, and a service
// that is well again is asked again within the longest back-off.
TEST_F(BreakerTest, ItsPromisesHoldOverRandomOutcomes) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    BreakerOptions options = this->options();
    options.window = static_cast<uint32_t>(random.below(20));
    options.failure_share = 0.6;
    options.probes = static_cast<uint32_t>(random.between(1, 3));
    Breaker breaker(options, clock_);
    std::deque<Breaker::Ticket> out;
    uint64_t asked = 0;
    for (int step = 0; step < 2000; ++step) {
      clock_.advance(milliseconds(random.below(400)));
      const bool half_open = breaker.state() == BreakerState::kHalfOpen;
      const uint64_t probes_before = breaker.counters().probes;
      if (random.chance(0.5)) {
        ++asked;
        const bool was_closed = breaker.state() == BreakerState::kClosed;
        const auto ticket = breaker.admit();
        EXPECT_TRUE(ticket || !was_closed);
        if (ticket) out.push_back(*ticket);
        EXPECT_EQ(breaker.counters().probes - probes_before, half_open && ticket ? 1u : 0u);
      } else if (!out.empty()) {
        const Breaker::Ticket ticket = out.front();
        out.pop_front();
        switch (random.below(8)) {
          case 0:
            breaker.abandoned(ticket);
            break;
          case 1:
          case 2:
          case 3:
            breaker.failed(ticket, Code::kUnavailable);
            break;
          default:
            breaker.succeeded(ticket);
        }
      }
    }
    EXPECT_EQ(breaker.counters().admitted + breaker.counters().refused, asked);
    EXPECT_GT(breaker.counters().opened, 0u);
    // Tickets still out may hold up the probes for one longest back-off, no longer.
    for (int i = 0; i < 3 && breaker.state() != BreakerState::kClosed; ++i) {
      clock_.advance(options.backoff_max);
      for (uint32_t probe = 0; probe < options.probes; ++probe) {
        if (const auto ticket = breaker.admit()) breaker.succeeded(*ticket);
      }
    }
    EXPECT_EQ(breaker.state(), BreakerState::kClosed) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tiercel
