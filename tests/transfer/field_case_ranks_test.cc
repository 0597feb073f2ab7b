// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as the data plane with its threads can show
// them: ranks that wait for each other (F23), calls that wait for the data plane (F28).

#include <array>
#include <latch>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "support/wait_readable.h"
#include "transfer/fake_store.h"
#include "transfer/in_process_data_plane.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

constexpr GroupId kGroup{0};

// Sleeps on the descriptor until `count` completions have come.
std::vector<Completion> wait_for(DataPlane& plane, size_t count) {
  std::vector<Completion> all;
  while (all.size() < count) {
    if (!readable(plane.completion_fd(), kHangMs)) {
      ADD_FAILURE() << "no wake-up; " << all.size() << " of " << count << " came";
      return all;
    }
    std::array<Completion, 64> out;
    const size_t taken = plane.poll(out);
    all.insert(all.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  return all;
}

// F23: with four ranks the service froze; each decided from its own state whether to take part in a
// collective. Here there is none: every rank is told the same, and none waits for another.
TEST(FieldCaseOfRanks, F23FailuresOnOneRankHoldUpNoOtherAndAllRanksAreAskedTheSame) {
  constexpr uint32_t kRanks = 4;
  constexpr uint32_t kSick = 2;
  constexpr uint32_t kSteps = 1000;
  const SlotGeometry geometry =
      SlotGeometry::for_blocks({std::vector<uint64_t>(kRanks, 100)}, 8, 4).value();
  const SystemClock clock;
  std::vector<std::unique_ptr<TestRank>> ranks;
  std::vector<FakeStoreHandle> stores(kRanks);
  std::vector<std::unique_ptr<RankWorker>> workers;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<TestRank>(geometry, rank, 1));
    RankWorkerOptions options = ranks[rank]->options();
    options.store_batch_max = 1;  // what a store is asked can be compared call by call
    workers.push_back(ranks[rank]->make_worker(stores[rank].make(), clock, options));
  }
  auto plane = make_in_process_data_plane(std::move(workers), clock, {.ring_ops = 64}).value();
  Random random(23);
  for (uint32_t step = 0; step < kSteps; ++step) {
    // The sick rank answers only when all others have ended, or fails what it has done.
    const uint64_t sickness = random.below(3);
    FakeStoreState& sick = *stores[kSick].state;
    sick.hold(sickness == 1);
    sick.rewrite_codes(nullptr);
    if (sickness == 2) {
      sick.rewrite_codes([](std::vector<Code>& codes) {
        for (Code& code : codes) code = Code::kUnavailable;
      });
    }
    const auto kind = random.chance(0.5) ? OpKind::kStoreExists : OpKind::kStoreRemove;
    std::vector<BlockOp> ops;
    for (uint64_t count = random.between(1, 8); count > 0; --count) {
      ops.push_back(make_op(kind, random.below(20)));
      ops.back().job = JobId(step + 1);
      ops.back().item = static_cast<uint32_t>(ops.size() - 1);
    }
    ASSERT_TRUE(plane->submit(ops));
    const size_t others = (kRanks - 1) * ops.size();
    std::vector<Completion> ended = wait_for(*plane, sickness == 1 ? others : others + ops.size());
    if (sickness == 1) {
      for (const Completion& completion : ended) ASSERT_NE(completion.rank, kSick);
      sick.hold(false);
      while (ended.size() < others + ops.size()) {
        sick.release(64);
        const std::vector<Completion> late = wait_for(*plane, 1);
        ASSERT_FALSE(late.empty());
        ended.insert(ended.end(), late.begin(), late.end());
      }
    }
    std::map<std::pair<uint32_t, uint16_t>, int> times;
    for (const Completion& completion : ended) {
      ASSERT_EQ(completion.job, JobId(step + 1));
      ++times[{completion.item, completion.rank}];
      if (completion.rank != kSick) {
        ASSERT_NE(completion.code, Code::kUnavailable);
      }
    }
    ASSERT_EQ(times.size(), kRanks * ops.size()) << "each operation ends once on each rank";
  }
  // Each rank was asked the same questions in the same order; each call is of one operation.
  const std::vector<FakeCall> asked = stores[0].state->calls();
  EXPECT_GT(asked.size(), kSteps);
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    const std::vector<FakeCall> asked_too = stores[rank].state->calls();
    ASSERT_EQ(asked_too.size(), asked.size()) << "rank " << rank;
    for (size_t i = 0; i < asked.size(); ++i) ASSERT_EQ(asked_too[i].kind, asked[i].kind) << i;
  }
}

// Stops in every copy until the test opens the way.
class GateCopier final : public DeviceCopier {
 public:
  GateCopier(DeviceCopier& inner, std::latch& entered, std::latch& open)
      : inner_(inner), entered_(entered), open_(open) {}
  uint32_t block_count(GroupId group) const override { return inner_.block_count(group); }
  uint64_t payload_bytes(GroupId group) const override { return inner_.payload_bytes(group); }
  uint32_t layer_count(GroupId group) const override { return inner_.layer_count(group); }
  Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override {
    stop();
    return inner_.gather(group, copies, observer);
  }
  Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override {
    stop();
    return inner_.scatter(group, copies, observer);
  }

 private:
  void stop() {
    if (!entered_.try_wait()) entered_.count_down();
    open_.wait();
  }
  DeviceCopier& inner_;
  std::latch& entered_;
  std::latch& open_;
};

// F28: a store call that should have been asynchronous blocked the main loop for ten seconds. Here
// the rank stands in the middle of a copy that cannot end before all the calls have returned.
TEST(FieldCaseOfRanks, F28NoCallOfTheControlThreadWaitsForTheDataPlane) {
  const SlotGeometry geometry = SlotGeometry::for_blocks({{100}}, 8, 4).value();
  const SystemClock clock;
  TestRank rank(geometry, 0, 2);
  std::latch entered(1);
  std::latch open(1);
  GateCopier copier(rank.copier(), entered, open);
  std::vector<std::unique_ptr<RankWorker>> workers;
  workers.push_back(
      RankWorker::create(rank.options(), geometry, rank.host(), &copier, nullptr, clock).value());
  auto plane = make_in_process_data_plane(std::move(workers), clock, {.ring_ops = 16}).value();

  BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry, kGroup, 0));
  ASSERT_TRUE(plane->submit({&op, 1}));
  entered.wait();
  // The rank is busy from here until the way is opened below: a call that waited for it would never
  // return.
  std::array<Completion, 64> out;
  uint32_t submitted = 1;
  for (uint32_t i = 0; i < 100; ++i) {
    op = make_op(i % 2 == 0 ? OpKind::kSave : OpKind::kLoad, 1, nth_slot(geometry, kGroup, 0));
    op.item = submitted;
    if (plane->submit({&op, 1})) ++submitted;
    EXPECT_EQ(plane->poll(out), 0u);
    EXPECT_EQ(plane->submit_capacity(), 16u - submitted);
    EXPECT_EQ(plane->stats(0).path(OpKind::kSave).ops, 0u);
  }
  EXPECT_EQ(submitted, 16u) << "a full ring refuses, it does not wait";
  open.count_down();
  std::set<uint32_t> items;
  for (const Completion& completion : wait_for(*plane, submitted)) items.insert(completion.item);
  EXPECT_EQ(items.size(), submitted);
  EXPECT_TRUE(plane->close(kNoDeadline));
}

}  // namespace
}  // namespace tiercel
