// SPDX-License-Identifier: Apache-2.0
//
// RankWorker against stores that are busy, slow, partial, out of order, or gone.
#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"
#include "transfer/rank_worker.h"

namespace tiercel {
namespace {

using namespace testing;

class RankWorkerStoreTest : public ::testing::Test {
 protected:
  RankWorkerStoreTest() : rank_(geometry_, 0, 2) {}

  std::unique_ptr<RankWorker> make(uint32_t store_batch_max = 128) {
    RankWorkerOptions options = rank_.options();
    options.store_batch_max = store_batch_max;
    return rank_.make_worker(store_.make(), clock_, options);
  }
  static std::vector<BlockOp> asks(OpKind kind, uint32_t count, int64_t deadline_ns = INT64_MAX) {
    std::vector<BlockOp> ops;
    for (uint32_t i = 0; i < count; ++i) {
      ops.push_back(make_op(kind, i));
      ops.back().item = i;
      ops.back().deadline_ns = deadline_ns;
    }
    return ops;
  }
  static std::vector<uint32_t> items(const std::vector<Completion>& completions) {
    std::vector<uint32_t> items;
    for (const Completion& completion : completions) items.push_back(completion.item);
    return items;
  }

  SlotGeometry geometry_ = uneven_geometry();
  ManualClock clock_;
  FakeStoreHandle store_;
  TestRank rank_;
};

TEST_F(RankWorkerStoreTest, OpsOfOneKindAndDeadlineShareACallUpToTheLimit) {
  auto worker = make(4);
  std::vector<BlockOp> ops = asks(OpKind::kStoreExists, 10, 1'000'000);
  for (uint32_t i = 6; i < 10; ++i) ops[i].deadline_ns = 2'000'000;
  worker->submit(ops);
  EXPECT_EQ(items(run_worker(*worker)).size(), 10u);
  const auto calls = store_.state->calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].items, 4u);
  EXPECT_EQ(calls[1].items, 2u);
  EXPECT_EQ(calls[2].items, 4u);
  EXPECT_EQ(calls[1].deadline, TimePoint(Duration(1'000'000)));
  EXPECT_EQ(calls[2].deadline, TimePoint(Duration(2'000'000)));
}

// A call completes as a whole: a large one would keep what came first until the last has come.
TEST_F(RankWorkerStoreTest, ACallMovesNoMoreThan64MiBAndAsksForAnyNumber) {
  constexpr uint64_t kPayload = uint64_t{22} << 20;
  const SlotGeometry geometry = SlotGeometry::for_blocks({{kPayload}}, 1, 1).value();
  std::vector<std::byte> memory(geometry.tier_bytes(0));
  auto worker = RankWorker::create({}, geometry, memory, nullptr, store_.make(), clock_).value();
  const auto submit = [&](OpKind kind, uint32_t count) {
    std::vector<BlockOp> ops = asks(kind, count);
    for (BlockOp& op : ops) op.slot = SlotId(0);
    worker->submit(ops);
    EXPECT_EQ(run_worker(*worker).size(), count);
  };
  submit(OpKind::kStoreGet, 3);
  submit(OpKind::kStoreExists, 300);
  const auto calls = store_.state->calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].items, 2u);
  EXPECT_EQ(calls[1].items, 1u);
  EXPECT_EQ(calls[2].items, 300u);
}

TEST_F(RankWorkerStoreTest, BusyStoreIsAskedAgainAndNothingIsLost) {
  auto worker = make(2);
  store_.state->be_busy(3);
  worker->submit(asks(OpKind::kStoreExists, 5));
  // Only the store could help: no spinning, but a time at which to try again.
  EXPECT_FALSE(worker->progress(8));
  EXPECT_EQ(worker->next_due(), clock_.now() + std::chrono::milliseconds(1));
  EXPECT_FALSE(worker->progress(8));
  EXPECT_FALSE(worker->progress(8));
  EXPECT_TRUE(store_.state->calls().empty());
  EXPECT_EQ(items(run_worker(*worker)), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(worker->next_due(), kNoDeadline);
}

TEST_F(RankWorkerStoreTest, OpThatWaitsForABusyStorePastItsDeadlineTimesOut) {
  auto worker = make();
  store_.state->hold(true);
  worker->submit(asks(OpKind::kStoreExists, 1));
  EXPECT_TRUE(run_worker(*worker).empty());
  store_.state->be_busy(1000);
  std::vector<BlockOp> late = asks(OpKind::kStoreExists, 2);
  late[0].item = 10;
  late[1].item = 11;
  late[1].deadline_ns = 5'000'000;
  worker->submit(late);
  EXPECT_TRUE(run_worker(*worker).empty());
  // The store will call by its descriptor; the deadline of the one behind must be kept all the
  // same.
  EXPECT_EQ(worker->next_due(), TimePoint(Duration(5'000'000)));
  clock_.advance(std::chrono::milliseconds(5));
  const std::vector<Completion> timed_out = run_worker(*worker);
  ASSERT_EQ(items(timed_out), std::vector<uint32_t>{11});
  EXPECT_EQ(timed_out[0].code, Code::kTimeout);
  EXPECT_EQ(worker->ops_in_flight(), 2u);
  store_.state->be_busy(0);
  store_.state->hold(false);
  store_.state->release(1);
  EXPECT_EQ(items(run_worker(*worker)).size(), 2u);
}

// F08: a stuck read blocked a worker for ever.
TEST_F(RankWorkerStoreTest, F08StoreThatNeverAnswersKeepsItsOpsInFlightAndNothingElse) {
  auto worker = make();
  store_.state->hold(true);
  const SlotId slot = nth_slot(geometry_, GroupId(0), 3);
  worker->submit({{make_op(OpKind::kStoreGet, 1, slot)}});
  EXPECT_TRUE(run_worker(*worker).empty());
  clock_.advance(std::chrono::hours(1));
  EXPECT_FALSE(worker->progress(8));
  EXPECT_EQ(worker->ops_in_flight(), 1u);
  EXPECT_EQ(worker->next_due(), kNoDeadline);  // its descriptor tells
  // Everything else goes on.
  worker->submit({{make_op(OpKind::kSave, 2, nth_slot(geometry_, GroupId(0), 0))}});
  EXPECT_EQ(run_worker(*worker).size(), 1u);
}

TEST_F(RankWorkerStoreTest, LateAnswerStillCompletesWithWhatCame) {
  auto worker = make();
  const SlotId saved = nth_slot(geometry_, GroupId(0), 0);
  const SlotId fetched = nth_slot(geometry_, GroupId(0), 1);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 1, saved)), Code::kOk);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, 1, saved)), Code::kOk);
  store_.state->hold(true);
  BlockOp get = make_op(OpKind::kStoreGet, 1, fetched);
  get.deadline_ns = 1'000'000;
  worker->submit({&get, 1});
  EXPECT_TRUE(run_worker(*worker).empty());
  clock_.advance(std::chrono::seconds(9));
  EXPECT_TRUE(run_worker(*worker).empty());  // begun in time: ends only when the store has let go
  store_.state->release(1);
  const auto completions = run_worker(*worker);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].code, Code::kOk);
  EXPECT_EQ(worker->stats().path(OpKind::kStoreGet).busy_ns, 9'000'000'000u);
}

TEST_F(RankWorkerStoreTest, AnswersInAnyOrderReachTheRightOps) {
  auto worker = make(1);
  store_.state->set_object(
      std::string(ObjectKey(test_namespace(), GroupId(0), Slice{0, 3}, test_key(1)).text()), {});
  store_.state->hold(true);
  worker->submit(asks(OpKind::kStoreExists, 4));
  EXPECT_TRUE(run_worker(*worker).empty());
  ASSERT_EQ(store_.state->held(), 4u);
  store_.state->release(3, true);
  auto completions = run_worker(*worker);
  EXPECT_EQ(items(completions), (std::vector<uint32_t>{3, 2, 1}));
  store_.state->release(1);
  for (const Completion& completion : run_worker(*worker)) completions.push_back(completion);
  ASSERT_EQ(completions.size(), 4u);
  for (const Completion& completion : completions) {
    EXPECT_EQ(completion.code, completion.item == 1 ? Code::kOk : Code::kNotFound);
  }
}

TEST_F(RankWorkerStoreTest, PartOfABatchMayFail) {
  auto worker = make();
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 4; ++i) {
    const SlotId slot = nth_slot(geometry_, GroupId(0), i);
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, i, slot)), Code::kOk);
    ops.push_back(make_op(OpKind::kStorePut, i, slot));
    ops.back().item = i;
  }
  store_.state->rewrite_codes([](std::vector<Code>& codes) {
    ASSERT_EQ(codes.size(), 4u);
    codes[1] = Code::kNoSpace;
    codes[2] = Code::kInternal;  // not a store's word
    codes.resize(3);             // and one left out
  });
  worker->submit(ops);
  std::vector<Code> codes;
  for (const Completion& completion : run_worker(*worker)) codes.push_back(completion.code);
  EXPECT_EQ(codes,
            (std::vector<Code>{Code::kOk, Code::kNoSpace, Code::kUnavailable, Code::kUnavailable}));
  EXPECT_EQ(worker->stats().path(OpKind::kStorePut).failed, 3u);
  EXPECT_EQ(worker->stats().path(OpKind::kStorePut).bytes, geometry_.payload_bytes(GroupId(0), 0));
}

TEST_F(RankWorkerStoreTest, AnswersToNoQuestionOrTwiceChangeNothing) {
  auto worker = make();
  store_.state->hold(true);
  worker->submit(asks(OpKind::kStoreExists, 2));
  EXPECT_TRUE(run_worker(*worker).empty());
  const StoreRequestId id = store_.state->calls()[0].id;
  store_.state->complete_stray(StoreRequestId(4711), {Code::kOk, Code::kOk});
  EXPECT_TRUE(run_worker(*worker).empty());
  store_.state->release(1);
  store_.state->complete_stray(id, {Code::kOk, Code::kOk});
  EXPECT_EQ(run_worker(*worker).size(), 2u);
  EXPECT_EQ(worker->ops_in_flight(), 0u);
}

TEST_F(RankWorkerStoreTest, RefusedCallEndsItsOpsWithTheReason) {
  auto worker = make();
  store_.state->refuse_with(Code::kUnavailable);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreExists, 1)), Code::kUnavailable);
  store_.state->refuse_with(Code::kInvalid);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreExists, 1)), Code::kInvalid);
}

TEST_F(RankWorkerStoreTest, HealthOfTheStoreIsToldWithTheStatistics) {
  auto worker = make();
  EXPECT_EQ(worker->stats().store.condition, StoreCondition::kUp);
  store_.state->set_health({StoreCondition::kOpen, Code::kTimeout, 3, 40});
  run_worker(*worker);
  const StoreHealth health = worker->stats().store;
  EXPECT_EQ(to_string(health), "open (timeout)");
  EXPECT_EQ(health.opened, 3u);
  EXPECT_EQ(health.refused, 40u);
  EXPECT_EQ(rank_.make_worker(nullptr, clock_)->stats().store.condition, StoreCondition::kNone);
}

TEST_F(RankWorkerStoreTest, StoreWithoutDescriptorIsAskedByTime) {
  FakeStoreHandle store(false);
  auto worker = rank_.make_worker(store.make(), clock_);
  EXPECT_EQ(worker->store_fd(), -1);
  store.state->hold(true);
  worker->submit(asks(OpKind::kStoreExists, 1));
  EXPECT_TRUE(run_worker(*worker).empty());
  EXPECT_EQ(worker->next_due(), clock_.now() + std::chrono::milliseconds(1));
  store.state->release(1);
  EXPECT_EQ(run_worker(*worker).size(), 1u);
  EXPECT_EQ(worker->next_due(), kNoDeadline);
}

TEST_F(RankWorkerStoreTest, CloseEndsEverythingOnce) {
  auto worker = make(2);
  store_.state->hold(true);
  worker->submit(asks(OpKind::kStoreExists, 2));
  EXPECT_TRUE(run_worker(*worker).empty());
  std::vector<BlockOp> more = asks(OpKind::kStoreExists, 4);
  for (BlockOp& op : more) op.item += 2;
  more.push_back(make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0)));
  more.back().item = 6;
  worker->submit(more);
  rank_.take_picture();
  ASSERT_TRUE(worker->close(clock_.now()));
  std::map<uint32_t, Code> codes;
  for (const Completion& completion : run_worker(*worker)) {
    EXPECT_TRUE(codes.emplace(completion.item, completion.code).second);
  }
  ASSERT_EQ(codes.size(), 7u);
  for (const auto& [item, code] : codes) {
    EXPECT_EQ(code, item < 2 ? Code::kUnavailable : Code::kCancelled) << item;
  }
  EXPECT_TRUE(rank_.only_changed());
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreExists, 1)), Code::kUnavailable);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0))),
            Code::kUnavailable);
  EXPECT_TRUE(worker->close(clock_.now()));
}

TEST_F(RankWorkerStoreTest, CloseOfAHungStoreIsATimeoutAndMayBeRepeated) {
  auto worker = make();
  store_.state->hold(true);
  worker->submit(asks(OpKind::kStoreExists, 2));
  EXPECT_TRUE(run_worker(*worker).empty());
  store_.state->hang_in_close(true);
  EXPECT_EQ(worker->close(clock_.now()).code(), Code::kTimeout);
  EXPECT_TRUE(run_worker(*worker).empty());  // the store has not let go
  EXPECT_EQ(worker->ops_in_flight(), 2u);
  store_.state->hang_in_close(false);
  EXPECT_TRUE(worker->close(clock_.now()));
  EXPECT_EQ(run_worker(*worker).size(), 2u);
}

TEST_F(RankWorkerStoreTest, EveryOpCompletesExactlyOnceUnderRandomLoad) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    FakeStoreHandle store(random.chance(0.5));
    RankWorkerOptions options = rank_.options();
    options.store_batch_max = static_cast<uint32_t>(random.between(1, 5));
    auto worker = rank_.make_worker(store.make(), clock_, options);
    store.state->hold(true);
    std::map<uint32_t, int> ended;
    uint32_t submitted = 0;
    const auto take = [&] {
      std::vector<Completion> out(random.between(1, 9));
      const size_t count = worker->take(out);
      for (size_t i = 0; i < count; ++i) ++ended[out[i].item];
    };
    for (int step = 0; step < 300; ++step) {
      std::vector<BlockOp> ops(random.below(6));
      for (BlockOp& op : ops) {
        op = make_op(static_cast<OpKind>(random.below(kOpKindCount)), random.below(6),
                     nth_slot(geometry_, GroupId(0), static_cast<uint32_t>(random.below(6))),
                     static_cast<uint32_t>(random.below(2)));
        op.item = submitted++;
        if (random.chance(0.4)) {
          op.deadline_ns = clock_.now().time_since_epoch().count() +
                           static_cast<int64_t>(random.below(3'000'000));
        }
      }
      worker->submit(ops);
      if (random.chance(0.2)) store.state->be_busy(static_cast<uint32_t>(random.below(4)));
      store.state->release(random.below(3), random.chance(0.5));
      worker->progress(static_cast<uint32_t>(random.below(4)));
      clock_.advance(Duration(static_cast<int64_t>(random.below(1'000'000))));
      take();
      ASSERT_EQ(worker->ops_in_flight() + ended.size(), submitted);
    }
    ASSERT_TRUE(worker->close(clock_.now()));
    while (worker->ops_in_flight() > 0) take();
    ASSERT_EQ(ended.size(), submitted) << "seed " << seed;
    for (const auto& [item, count] : ended) ASSERT_EQ(count, 1) << "seed " << seed;
    uint64_t counted = 0;
    for (const PathStats& path : worker->stats().paths) counted += path.ops;
    EXPECT_EQ(counted, submitted);
  }
}

// Whoever reads that a store was given up must read why.
TEST_F(RankWorkerStoreTest, WhatTheStoreSaysWhenAnOperationFailsIsKept) {
  auto worker = make();
  const auto run_with = [&](const std::string& words, Code code) {
    store_.state->set_words(words);
    store_.state->rewrite_codes([code](std::vector<Code>& codes) {
      for (Code& each : codes) each = code;
    });
    worker->submit(asks(OpKind::kStoreExists, 2));
    run_worker(*worker);
  };
  run_with("not asked", Code::kNotFound);
  EXPECT_TRUE(worker->store_reason().text().empty());
  run_with("no master", Code::kUnavailable);
  EXPECT_EQ(worker->store_reason().text().view(), "no master");
  const uint64_t changes = worker->store_reason().changes();
  run_with("asked too often", Code::kUnavailable);
  EXPECT_EQ(worker->store_reason().text().view(), "no master")
      << "a store is not asked at each failure";
  EXPECT_EQ(worker->store_reason().changes(), changes);
  clock_.advance(std::chrono::seconds(1));
  run_with("no master\nfor long", Code::kUnavailable);
  EXPECT_EQ(worker->store_reason().text().view(), "no master?for long");
  run_with("ok", Code::kOk);
  EXPECT_EQ(worker->store_reason().text().view(), "earlier: no master?for long");
  run_with("ok", Code::kOk);
  EXPECT_EQ(worker->store_reason().text().view(), "earlier: no master?for long");
  run_with("ok", Code::kTimeout);
  EXPECT_EQ(worker->store_reason().text().view(), "store_exists ended as timeout");
}

TEST_F(RankWorkerStoreTest, ARefusedSubmissionIsAReasonAsWell) {
  auto worker = make();
  store_.state->set_words("closed by somebody");
  store_.state->refuse_with(Code::kUnavailable);
  worker->submit(asks(OpKind::kStoreGet, 1));
  run_worker(*worker);
  EXPECT_EQ(worker->store_reason().text().view(), "closed by somebody");
}

}  // namespace
}  // namespace tiercel
