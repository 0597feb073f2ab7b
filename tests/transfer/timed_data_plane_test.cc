// SPDX-License-Identifier: Apache-2.0
#include "transfer/timed_data_plane.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/manual_clock.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;
using testing::make_op;

// A byte a nanosecond.
constexpr double kGigabyte = 1e9;
constexpr uint64_t kBlockBytes = 1'000'000;

class TimedDataPlaneTest : public ::testing::Test {
 protected:
  void open(const LinkStall& stall = {}) {
    TimedDataPlaneOptions options;
    options.block_bytes = {kBlockBytes};
    options.load = {100us, 10 * kGigabyte, 4};
    options.save = {100us, 10 * kGigabyte, 4};
    options.disk_get = {1ms, kGigabyte, 2};
    options.disk_put = {1ms, kGigabyte, 2};
    options.store_get = {2ms, kGigabyte, 16};
    options.store_put = {2ms, kGigabyte, 16};
    options.store_question = {2ms, 100 * kGigabyte, 16};
    options.with_store = true;
    options.ops_in_flight_max = 64;
    options.store_stall = stall;
    plane = TimedDataPlane::create(options, clock);
  }
  // A job of `count` operations; keys first, first + 1, …
  bool submit(OpKind kind, uint32_t count, Duration deadline = 1h, uint32_t first = 0) {
    std::vector<BlockOp> ops;
    const JobId job(++jobs_);
    for (uint32_t i = 0; i < count; ++i) {
      BlockOp op = make_op(kind, first + i);
      op.job = job;
      op.item = i;
      op.deadline_ns = (clock.now() + deadline).time_since_epoch().count();
      ops.push_back(op);
    }
    return plane->submit(ops);
  }
  std::vector<Completion> poll() {
    std::vector<Completion> all(1000);
    all.resize(plane->poll(all));
    return all;
  }
  // When each of what is in flight ends, and how.
  struct End {
    Duration at;
    Code code;
    friend bool operator==(const End&, const End&) = default;
  };
  std::vector<End> run() {
    std::vector<End> ends;
    while (plane->next_due() != kNoDeadline) {
      clock.set(plane->next_due());
      for (const Completion& completion : poll()) {
        ends.push_back({clock.now().time_since_epoch(), completion.code});
      }
    }
    return ends;
  }

  ManualClock clock;
  std::unique_ptr<TimedDataPlane> plane;
  uint32_t jobs_ = 0;
};

TEST_F(TimedDataPlaneTest, LatenciesOverlapAndBytesFollowEachOther) {
  open();
  ASSERT_TRUE(submit(OpKind::kLoad, 3));
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(run(), (std::vector<End>{{200us, Code::kOk}, {300us, Code::kOk}, {400us, Code::kOk}}));
}

TEST_F(TimedDataPlaneTest, ConcurrencyBoundsHowManyWaitForTheirLatency) {
  open();
  ASSERT_TRUE(submit(OpKind::kDiskGet, 4));
  // Two streams: the third begins when the first has ended.
  EXPECT_EQ(run(), (std::vector<End>{
                       {2ms, Code::kOk}, {3ms, Code::kOk}, {4ms, Code::kOk}, {5ms, Code::kOk}}));
}

TEST_F(TimedDataPlaneTest, WaysDoNotWaitForEachOther) {
  open();
  ASSERT_TRUE(submit(OpKind::kDiskPut, 8));
  ASSERT_TRUE(submit(OpKind::kDiskGet, 1));
  ASSERT_TRUE(submit(OpKind::kLoad, 1));
  const auto ends = run();
  EXPECT_EQ(ends[0].at, 200us);
  EXPECT_EQ(ends[1].at, 2ms);
}

TEST_F(TimedDataPlaneTest, WhatCannotBeginByItsDeadlineEndsThenAndTakesNoTime) {
  open();
  ASSERT_TRUE(submit(OpKind::kDiskGet, 2));
  ASSERT_TRUE(submit(OpKind::kDiskGet, 2, 500us));
  ASSERT_TRUE(submit(OpKind::kDiskGet, 1));
  EXPECT_EQ(run(), (std::vector<End>{{500us, Code::kTimeout},
                                     {500us, Code::kTimeout},
                                     {2ms, Code::kOk},
                                     {3ms, Code::kOk},
                                     {4ms, Code::kOk}}));
}

TEST_F(TimedDataPlaneTest, TheStoreHasWhatWasPutThere) {
  open();
  ASSERT_TRUE(submit(OpKind::kStoreExists, 1));
  EXPECT_EQ(run().at(0).code, Code::kNotFound);
  ASSERT_TRUE(submit(OpKind::kStorePut, 1));
  EXPECT_FALSE(plane->store_has(make_op(OpKind::kStorePut, 0).key, GroupId(0)));
  EXPECT_EQ(run().at(0).code, Code::kOk);
  EXPECT_TRUE(plane->store_has(make_op(OpKind::kStorePut, 0).key, GroupId(0)));
  ASSERT_TRUE(submit(OpKind::kStoreGet, 1));
  EXPECT_EQ(run().at(0).code, Code::kOk);
  EXPECT_EQ(plane->stats(0).path(OpKind::kStoreGet).bytes, kBlockBytes);
}

TEST_F(TimedDataPlaneTest, AStallHoldsUpWhatIsUnderWayAndWhatComes) {
  open({.from = TimePoint(1ms), .until = TimePoint(1s)});
  ASSERT_TRUE(submit(OpKind::kStorePut, 1));  // has waited for half of its latency by then
  EXPECT_EQ(run().at(0).at, 1s + 2ms);
}

TEST_F(TimedDataPlaneTest, AStalledStoreIsGivenUpAtTheFirstDeadlineAndFoundAgainByOneCall) {
  open({.from = TimePoint(0ms), .until = TimePoint(3s)});
  ASSERT_TRUE(submit(OpKind::kStoreExists, 2, 50ms));
  clock.advance(49ms);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->stats(0).store.condition, StoreCondition::kUp);
  clock.advance(2ms);
  EXPECT_TRUE(poll().empty()) << "it has not let go";
  EXPECT_EQ(plane->stats(0).store.condition, StoreCondition::kOpen);
  ASSERT_TRUE(submit(OpKind::kStoreGet, 2));
  const auto refused = poll();
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0].code, Code::kUnavailable);
  clock.set(TimePoint(4s));
  ASSERT_EQ(poll().size(), 2u) << "now it has";
  ASSERT_TRUE(submit(OpKind::kStorePut, 3));
  run();
  EXPECT_EQ(plane->stats(0).store.condition, StoreCondition::kUp);
}

TEST_F(TimedDataPlaneTest, WhatNeverEndsStaysInFlight) {
  open({.from = TimePoint(0ms)});
  const size_t room = plane->submit_capacity();
  ASSERT_TRUE(submit(OpKind::kStoreGet, 2, 50ms));
  run();
  EXPECT_EQ(plane->next_due(), kNoDeadline);
  EXPECT_EQ(plane->submit_capacity(), room - 2);
}

TEST_F(TimedDataPlaneTest, ACopyOfALinkSaysWhatWouldHappenAndChangesNothing) {
  open();
  ASSERT_TRUE(submit(OpKind::kDiskGet, 4));
  TimedLink copy = plane->link(OpKind::kDiskGet);
  EXPECT_EQ(copy.add(clock.now(), kBlockBytes), TimePoint(6ms));
  ASSERT_TRUE(submit(OpKind::kDiskGet, 1));
  EXPECT_EQ(run().back().at, 6ms);
}

TEST_F(TimedDataPlaneTest, TakesNoMoreThanItsBound) {
  open();
  const auto room = static_cast<uint32_t>(plane->submit_capacity());
  EXPECT_FALSE(submit(OpKind::kLoad, room + 1));
  EXPECT_TRUE(submit(OpKind::kLoad, room));
  EXPECT_EQ(plane->submit_capacity(), 0u);
}

}  // namespace
}  // namespace tiercel
