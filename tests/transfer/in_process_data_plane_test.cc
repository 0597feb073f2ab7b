// SPDX-License-Identifier: Apache-2.0
#include "transfer/in_process_data_plane.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <gtest/gtest.h>

#include "support/wait_readable.h"
#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class InProcessDataPlaneTest : public ::testing::Test {
 protected:
  // One store for all ranks unless `with_store` is false.
  void start(uint32_t rank_count, uint32_t ring_ops, bool with_store = true, bool with_fd = true) {
    plane_.reset();
    ranks_.clear();
    stores_.clear();
    PayloadBytes payload_bytes = {std::vector<uint64_t>(rank_count),
                                  std::vector<uint64_t>(rank_count)};
    for (uint32_t r = 0; r < rank_count; ++r) {
      payload_bytes[0][r] = 300 + 71 * r;
      payload_bytes[1][r] = 65 + r;
    }
    geometry_ = SlotGeometry::for_blocks(payload_bytes, kSlots, 4).value();
    std::vector<std::unique_ptr<RankWorker>> workers;
    for (uint32_t r = 0; r < rank_count; ++r) {
      ranks_.push_back(std::make_unique<TestRank>(*geometry_, r, 4));
      stores_.emplace_back(with_fd);
      workers.push_back(ranks_[r]->make_worker(with_store ? stores_[r].make() : nullptr, clock_));
    }
    auto plane = make_in_process_data_plane(std::move(workers), clock_, {.ring_ops = ring_ops});
    ASSERT_TRUE(plane) << plane.error().to_string();
    plane_ = std::move(*plane);
  }

  // Sleeps on the descriptor until `count` completions have come.
  std::vector<Completion> wait_for(size_t count) {
    std::vector<Completion> all;
    while (all.size() < count) {
      if (!readable(plane_->completion_fd(), kHangMs)) {
        ADD_FAILURE() << "no wake-up; " << all.size() << " of " << count << " came";
        return all;
      }
      std::array<Completion, 64> out;
      const size_t taken = plane_->poll(out);
      all.insert(all.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    return all;
  }

  // The code of one op; it must be the same on all ranks.
  Code run(const BlockOp& op) {
    EXPECT_TRUE(plane_->submit({&op, 1}));
    const auto completions = wait_for(plane_->rank_count());
    for (const Completion& completion : completions) {
      EXPECT_EQ(completion.code, completions[0].code);
    }
    return completions.empty() ? Code::kInternal : completions[0].code;
  }

  static constexpr uint32_t kSlots = 100;  // of each group; more than operations in flight
  SystemClock clock_;
  std::optional<SlotGeometry> geometry_;
  std::vector<FakeStoreHandle> stores_;
  std::vector<std::unique_ptr<TestRank>> ranks_;
  std::unique_ptr<DataPlane> plane_;
};

TEST_F(InProcessDataPlaneTest, BlockGoesAllTheWayOnEveryRank) {
  start(3, 16);
  EXPECT_EQ(plane_->rank_count(), 3u);
  const GroupId group(1);
  const SlotId a = nth_slot(*geometry_, group, 0);
  const SlotId b = nth_slot(*geometry_, group, 1);
  EXPECT_EQ(run(make_op(OpKind::kSave, 1, a, 0, group)), Code::kOk);
  EXPECT_EQ(run(make_op(OpKind::kStorePut, 1, a, 0, group)), Code::kOk);
  EXPECT_EQ(run(make_op(OpKind::kStoreGet, 1, b, 0, group)), Code::kOk);
  EXPECT_EQ(run(make_op(OpKind::kLoad, 1, b, 2, group)), Code::kOk);
  EXPECT_EQ(run(make_op(OpKind::kLoad, 2, b, 2, group)), Code::kCorrupt);
  EXPECT_EQ(run(make_op(OpKind::kLoad, 2, SlotId(UINT32_MAX), 2, group)), Code::kInvalid);
  ASSERT_TRUE(plane_->close(kNoDeadline));
  for (uint32_t r = 0; r < 3; ++r) {
    const auto from = ranks_[r]->device_block(group, 0);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), ranks_[r]->device_block(group, 2).begin()));
    EXPECT_EQ(plane_->stats(r).path(OpKind::kLoad).ops, 3u);
    EXPECT_EQ(plane_->stats(r).path(OpKind::kLoad).corrupt, 1u);
    EXPECT_EQ(plane_->stats(r).path(OpKind::kLoad).bytes, geometry_->payload_bytes(group, r));
  }
}

TEST_F(InProcessDataPlaneTest, NoWakeUpIsEverLost) {
  // Each round trip puts both sides to sleep: the worker because nothing waits, this thread in
  // poll(2).
  constexpr uint32_t kRoundTrips = 200'000;
  start(1, 2, false);
  BlockOp op = make_op(OpKind::kStoreExists, 1);
  for (uint32_t i = 0; i < kRoundTrips; ++i) {
    op.item = i;
    ASSERT_TRUE(plane_->submit({&op, 1}));
    const auto completions = wait_for(1);
    ASSERT_EQ(completions.size(), 1u);
    ASSERT_EQ(completions[0].item, i);
  }
}

TEST_F(InProcessDataPlaneTest, DescriptorIsQuietWhenEverythingHasBeenPolled) {
  start(2, 16, false);
  const BlockOp op = make_op(OpKind::kStoreExists, 1);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(plane_->submit({&op, 1}));
    wait_for(2);
  }
  ASSERT_TRUE(plane_->close(kNoDeadline));
  std::array<Completion, 4> out;
  EXPECT_EQ(plane_->poll(out), 0u);
  EXPECT_FALSE(readable(plane_->completion_fd(), 0));
}

TEST_F(InProcessDataPlaneTest, DescriptorStaysReadableWhileAPollHasLeftSomething) {
  start(2, 16, false);
  const std::vector<BlockOp> ops(5, make_op(OpKind::kStoreExists, 1));
  ASSERT_TRUE(plane_->submit(ops));
  size_t polled = 0;
  while (polled < 10) {
    ASSERT_TRUE(readable(plane_->completion_fd(), kHangMs));
    std::array<Completion, 1> out;
    polled += plane_->poll(out);
  }
}

TEST_F(InProcessDataPlaneTest, FullRingsTakeNothingAndOpenUpAgainByPolling) {
  start(2, 4);
  for (FakeStoreHandle& store : stores_) store.state->hold(true);
  const std::vector<BlockOp> three(3, make_op(OpKind::kStoreExists, 1));
  EXPECT_EQ(plane_->submit_capacity(), 4u);
  ASSERT_TRUE(plane_->submit(three));
  EXPECT_EQ(plane_->submit_capacity(), 1u);
  EXPECT_FALSE(plane_->submit(three));
  const std::vector<BlockOp> five(5, make_op(OpKind::kStoreExists, 1));
  EXPECT_FALSE(plane_->submit(five));
  EXPECT_EQ(plane_->submit_capacity(), 1u);
  // Only one rank answers: the other still holds the room.
  stores_[0].state->hold(false);
  while (stores_[0].state->held() > 0) stores_[0].state->release(9);
  wait_for(3);
  EXPECT_EQ(plane_->submit_capacity(), 1u);
  stores_[1].state->hold(false);
  // The worker may be about to submit: let go of whatever has arrived until all has.
  size_t polled = 0;
  while (polled < 3) {
    stores_[1].state->release(9);
    std::array<Completion, 8> out;
    polled += plane_->poll(out);
    std::this_thread::yield();
  }
  EXPECT_EQ(plane_->submit_capacity(), 4u);
  EXPECT_TRUE(plane_->submit(three));
  wait_for(6);
  EXPECT_EQ(plane_->stats(0).path(OpKind::kStoreExists).ops, 6u);
}

TEST_F(InProcessDataPlaneTest, StoreWithoutDescriptorAndBusyStoresAreTriedAgain) {
  start(2, 16, true, false);
  for (FakeStoreHandle& store : stores_) {
    store.state->hold(true);
    store.state->be_busy(3);
  }
  const BlockOp op = make_op(OpKind::kStoreExists, 1);
  ASSERT_TRUE(plane_->submit({&op, 1}));
  for (FakeStoreHandle& store : stores_) {
    while (store.state->held() == 0) std::this_thread::yield();
    store.state->release(1);
  }
  EXPECT_EQ(wait_for(2).size(), 2u);
}

TEST_F(InProcessDataPlaneTest, EveryOpCompletesExactlyOncePerRankUnderRandomLoad) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed);
    start(2, 64);
    std::map<std::pair<uint32_t, uint32_t>, int> ended;
    uint32_t submitted = 0;
    // As the control plane does: a slot is in one operation's hands at a time, until all ranks let
    // go.
    std::vector<SlotId> free_slots;
    for (uint32_t n = 0; n < kSlots; ++n) free_slots.push_back(nth_slot(*geometry_, GroupId(0), n));
    std::map<uint32_t, SlotId> slot_of_item;
    const auto poll_some = [&] {
      std::vector<Completion> out(random.between(1, 80));
      const size_t count = plane_->poll(out);
      for (size_t i = 0; i < count; ++i) {
        ++ended[{out[i].item, out[i].rank}];
        if (ended.contains({out[i].item, 1 - out[i].rank})) {
          free_slots.push_back(slot_of_item.at(out[i].item));
        }
      }
    };
    for (int step = 0; step < 3000; ++step) {
      std::vector<BlockOp> ops(random.below(std::min<size_t>(20, free_slots.size() + 1)));
      for (size_t i = 0; i < ops.size(); ++i) {
        BlockOp& op = ops[i];
        op = make_op(static_cast<OpKind>(random.below(kOpKindCount + 1)), random.below(6),
                     free_slots[free_slots.size() - 1 - i], static_cast<uint32_t>(random.below(5)));
        op.item = submitted + static_cast<uint32_t>(i);
        if (random.chance(0.1)) op.deadline_ns = clock_.now().time_since_epoch().count();
      }
      if (plane_->submit(ops)) {
        submitted += static_cast<uint32_t>(ops.size());
        for (const BlockOp& op : ops) {
          slot_of_item[op.item] = op.slot;
          free_slots.pop_back();
        }
      }
      FakeStoreState& store = *stores_[random.below(2)].state;
      if (random.chance(0.02)) store.hold(random.chance(0.5));
      if (random.chance(0.02)) store.be_busy(static_cast<uint32_t>(random.below(4)));
      if (random.chance(0.2)) store.release(random.below(4), random.chance(0.5));
      if (random.chance(0.5)) poll_some();
    }
    ASSERT_TRUE(plane_->close(kNoDeadline));
    for (size_t before = SIZE_MAX; before != ended.size();) {
      before = ended.size();
      poll_some();
    }
    ASSERT_EQ(ended.size(), 2u * submitted);
    for (const auto& [op, count] : ended) ASSERT_EQ(count, 1);
  }
}

TEST_F(InProcessDataPlaneTest, CloseWithWorkInFlightCompletesAllOfIt) {
  start(2, 256);
  for (FakeStoreHandle& store : stores_) store.state->hold(true);
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 200; ++i) {
    ops.push_back(make_op(i % 2 == 0 ? OpKind::kSave : OpKind::kStoreExists, i,
                          nth_slot(*geometry_, GroupId(0), i / 2)));
    ops.back().item = i;
  }
  ASSERT_TRUE(plane_->submit(ops));
  ASSERT_TRUE(plane_->close(clock_.now() + std::chrono::seconds(60)));
  EXPECT_FALSE(plane_->submit(ops));
  EXPECT_EQ(plane_->submit_capacity(), 0u);
  // All threads have ended: what is not there now never comes.
  std::vector<Completion> out(1000);
  ASSERT_EQ(plane_->poll(out), 400u);
  std::map<std::pair<uint32_t, uint32_t>, int> ended;
  for (size_t i = 0; i < 400; ++i) ++ended[{out[i].item, out[i].rank}];
  EXPECT_EQ(ended.size(), 400u);
  EXPECT_TRUE(plane_->close(clock_.now()));
}

TEST_F(InProcessDataPlaneTest, CloseOfAHungStoreTimesOutAndSucceedsOnceItLetsGo) {
  start(2, 16);
  stores_[1].state->hold(true);
  const BlockOp op = make_op(OpKind::kStoreExists, 1);
  ASSERT_TRUE(plane_->submit({&op, 1}));
  while (stores_[1].state->held() == 0) std::this_thread::yield();
  stores_[1].state->hang_in_close(true);
  EXPECT_EQ(plane_->close(clock_.now()).code(), Code::kTimeout);
  EXPECT_FALSE(plane_->submit({&op, 1}));
  // The thread may still have been at it; by the second call it has given up too.
  EXPECT_EQ(plane_->close(kNoDeadline).code(), Code::kTimeout);
  stores_[1].state->hang_in_close(false);
  EXPECT_TRUE(plane_->close(kNoDeadline));
  std::array<Completion, 4> out;
  EXPECT_EQ(plane_->poll(out), 2u);
}

TEST_F(InProcessDataPlaneTest, DestructionWithoutCloseStopsTheThreads) {
  start(3, 16);
  stores_[1].state->hold(true);
  stores_[1].state->hang_in_close(true);
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(*geometry_, GroupId(0), 0));
  const BlockOp ask = make_op(OpKind::kStoreExists, 1);
  ASSERT_TRUE(plane_->submit({&op, 1}));
  ASSERT_TRUE(plane_->submit({&ask, 1}));
  plane_.reset();
  // The memory may go now, and the stores are gone with their workers.
  ranks_.clear();
  for (const FakeStoreHandle& store : stores_) EXPECT_EQ(store.state.use_count(), 1);
}

TEST_F(InProcessDataPlaneTest, ThreadsAreNamedAfterTheirRank) {
  start(2, 16, false);
  // A completion proves that the thread runs, and so has its name.
  EXPECT_EQ(run(make_op(OpKind::kStoreExists, 1)), Code::kUnavailable);
  std::vector<std::string> names;
  DIR* tasks = ::opendir("/proc/self/task");
  ASSERT_NE(tasks, nullptr);
  while (const dirent* entry = ::readdir(tasks)) {
    std::ifstream comm("/proc/self/task/" + std::string(entry->d_name) + "/comm");
    std::string name;
    if (std::getline(comm, name)) names.push_back(name);
  }
  ::closedir(tasks);
  for (const char* name : {"tiercel-rank-0", "tiercel-rank-1"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

TEST_F(InProcessDataPlaneTest, MakeRefusesWhatDoesNotFit) {
  start(2, 16);
  const auto make = [&](std::vector<uint32_t> ranks, uint32_t ring_ops) {
    std::vector<std::unique_ptr<RankWorker>> workers;
    for (uint32_t r : ranks) workers.push_back(ranks_[r]->make_worker(nullptr, clock_));
    return make_in_process_data_plane(std::move(workers), clock_, {.ring_ops = ring_ops}).code();
  };
  EXPECT_EQ(make({}, 16), Code::kInvalid);
  EXPECT_EQ(make({1, 0}, 16), Code::kInvalid);
  EXPECT_EQ(make({0, 0}, 16), Code::kInvalid);
  EXPECT_EQ(make({0}, 0), Code::kInvalid);
  EXPECT_EQ(make({0}, 1), Code::kInvalid);
  EXPECT_EQ(make({0}, 24), Code::kInvalid);
  EXPECT_EQ(make({0}, 1u << 21), Code::kInvalid);
  EXPECT_EQ(make({0, 1}, 2), Code::kOk);
  std::vector<std::unique_ptr<RankWorker>> with_null(1);
  EXPECT_EQ(make_in_process_data_plane(std::move(with_null), clock_).code(), Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
