// SPDX-License-Identifier: Apache-2.0
#include "transfer/simulated_data_plane.h"

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "store/registry.h"
#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

SimulatedFaults every_fault() {
  SimulatedFaults faults;
  faults.slow = faults.late_completion = faults.fail = faults.fail_after_run = faults.corrupt_slot =
      0.1;
  faults.stall = 0.02;
  return faults;
}

// What came: when, which op, which rank, how it ended.
using Record = std::tuple<int64_t, uint32_t, uint16_t, Code>;

class Simulation {
 public:
  Simulation(uint64_t seed, const SimulatedFaults& faults,
             const std::string& store_url = "memory:p", uint32_t ops_in_flight_max = 64)
      : random_(seed ^ 0xabcd) {
    register_all_stores(registry_);
    std::vector<std::unique_ptr<RankWorker>> workers;
    for (uint32_t r = 0; r < 3; ++r) {
      ranks_.push_back(std::make_unique<TestRank>(geometry_, r, 4));
      auto store = registry_.open(store_url, {clock_});
      EXPECT_TRUE(store) << store.error().to_string();
      workers.push_back(ranks_[r]->make_worker(std::move(*store), clock_));
    }
    plane_ = SimulatedDataPlane::create(std::move(workers), clock_, seed, faults, ops_in_flight_max)
                 .value();
  }

  BlockOp random_op() {
    const GroupId group(static_cast<uint8_t>(random_.below(2)));
    // Slot and block belong together, so that most loads find what they look for.
    const uint32_t number = static_cast<uint32_t>(random_.below(6));
    BlockOp op =
        make_op(static_cast<OpKind>(random_.below(kOpKindCount)), number,
                nth_slot(geometry_, group, number), static_cast<uint32_t>(random_.below(4)), group);
    if (random_.chance(0.5)) {
      op.deadline_ns = (clock_.now() + milliseconds(random_.below(20))).time_since_epoch().count();
    }
    return op;
  }

  void poll() {
    std::vector<Completion> out(random_.between(1, 9));
    const size_t count = plane_->poll(out);
    for (size_t i = 0; i < count; ++i) {
      records_.emplace_back(clock_.now().time_since_epoch().count(), out[i].item, out[i].rank,
                            out[i].code);
    }
  }

  // To the next time at which something is due, or a little further.
  bool step() {
    const TimePoint due = plane_->next_due();
    if (due == kNoDeadline) return false;
    EXPECT_GE(due, clock_.now());
    clock_.set(due + Duration(static_cast<int64_t>(random_.below(2)) * 300'000));
    plane_->run_due();
    return true;
  }

  void run(uint32_t ops) {
    while (submitted_ < ops) {
      std::vector<BlockOp> batch(random_.between(1, 6));
      for (BlockOp& op : batch) {
        op = random_op();
        op.item = submitted_ + static_cast<uint32_t>(&op - batch.data());
      }
      if (plane_->submit(batch)) submitted_ += static_cast<uint32_t>(batch.size());
      step();
      poll();
    }
  }

  void drain() {
    // Bounded, so that a completion that never comes fails the test.
    for (int i = 0; i < 200'000 && records_.size() < 3u * submitted_; ++i) {
      step();
      poll();
    }
  }

  void expect_each_op_once() {
    std::map<std::pair<uint32_t, uint16_t>, int> ended;
    for (const auto& [time, item, rank, code] : records_) ++ended[{item, rank}];
    EXPECT_EQ(ended.size(), 3u * submitted_);
    for (const auto& [op, count] : ended) ASSERT_EQ(count, 1);
  }

  ManualClock clock_;
  Random random_;
  SlotGeometry geometry_ = uneven_geometry();
  StoreRegistry registry_;
  std::vector<std::unique_ptr<TestRank>> ranks_;
  std::unique_ptr<SimulatedDataPlane> plane_;
  std::vector<Record> records_;
  uint32_t submitted_ = 0;
};

std::vector<Record> records_of(uint64_t seed, const std::string& store_url) {
  Simulation simulation(seed, every_fault(), store_url);
  // The choices of the driver are the same for every seed: the plane's are what is compared.
  simulation.random_ = Random(1);
  simulation.run(300);
  simulation.drain();
  return simulation.records_;
}

TEST(SimulatedDataPlane, SameSeedSameCompletionsAnotherSeedOthers) {
  for (const char* url : {"memory:p", "faulty+memory:p?fault_seed=3&fault_error=0.2"}) {
    EXPECT_EQ(records_of(5, url), records_of(5, url)) << url;
    EXPECT_NE(records_of(5, url), records_of(6, url)) << url;
  }
}

TEST(SimulatedDataPlane, EveryOpCompletesExactlyOncePerRankWhateverHappens) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(
        seed, every_fault(),
        "faulty+memory:p?fault_seed=" + std::to_string(seed) +
            "&fault_delay=0.3&fault_delay_max=30ms&fault_error=0.1&fault_corrupt=0.1");
    simulation.run(400);
    simulation.drain();
    simulation.expect_each_op_once();
    EXPECT_EQ(simulation.plane_->submit_capacity(), 64u);
  }
}

TEST(SimulatedDataPlane, CloseEndsEverythingAtOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, every_fault(),
                          "faulty+memory:p?fault_drop=0.3&fault_seed=" + std::to_string(seed));
    simulation.run(60);
    ASSERT_TRUE(simulation.plane_->close(simulation.clock_.now() + seconds(1)));
    EXPECT_EQ(simulation.plane_->next_due(), kNoDeadline);
    for (int i = 0; i < 200; ++i) simulation.poll();
    simulation.expect_each_op_once();
    const BlockOp op = make_op(OpKind::kSave, 1);
    EXPECT_FALSE(simulation.plane_->submit({&op, 1}));
  }
}

TEST(SimulatedDataPlane, WithoutFaultsEverythingIsWellAndOnTime) {
  SimulatedFaults faults;
  faults.delay_min = milliseconds(2);
  faults.delay_max = milliseconds(4);
  Simulation simulation(1, faults);
  BlockOp op = make_op(OpKind::kSave, 1, nth_slot(simulation.geometry_, GroupId(0), 0));
  ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
  simulation.submitted_ = 1;
  simulation.plane_->run_due();
  simulation.poll();
  EXPECT_TRUE(simulation.records_.empty());
  EXPECT_GE(simulation.plane_->next_due(), simulation.clock_.now() + milliseconds(2));
  simulation.drain();
  ASSERT_EQ(simulation.records_.size(), 3u);
  for (const auto& [time, item, rank, code] : simulation.records_) {
    EXPECT_EQ(code, Code::kOk);
    EXPECT_GE(time, 2'000'000);
    EXPECT_LE(time, 5'000'000);
  }
  EXPECT_EQ(simulation.plane_->next_due(), kNoDeadline);
  EXPECT_EQ(simulation.plane_->stats(2).path(OpKind::kSave).ops, 1u);
}

TEST(SimulatedDataPlane, EachFaultHappensWhenItIsAskedForAndOnlyThen) {
  struct Case {
    const char* name;
    std::function<void(SimulatedFaults&)> set;
    std::function<uint64_t(const SimulatedCounts&)> count;
  };
  const std::vector<Case> cases = {
      {"slow", [](auto& f) { f.slow = 0.5; }, [](auto& c) { return c.slow; }},
      {"late", [](auto& f) { f.late_completion = 0.5; },
       [](auto& c) { return c.late_completions; }},
      {"fail", [](auto& f) { f.fail = 0.5; }, [](auto& c) { return c.failed; }},
      {"fail after run", [](auto& f) { f.fail_after_run = 0.5; },
       [](auto& c) { return c.failed_after_run; }},
      {"corrupt", [](auto& f) { f.corrupt_slot = 0.5; }, [](auto& c) { return c.corrupted_slots; }},
      {"stall", [](auto& f) { f.stall = 0.5; }, [](auto& c) { return c.stalls; }},
  };
  for (const Case& tested : cases) {
    SimulatedFaults faults;
    tested.set(faults);
    Simulation simulation(9, faults);
    simulation.run(100);
    simulation.drain();
    simulation.expect_each_op_once();
    const SimulatedCounts counts = simulation.plane_->counts();
    for (const Case& other : cases) {
      if (&other == &tested) {
        EXPECT_GT(other.count(counts), 50u) << tested.name;
      } else {
        EXPECT_EQ(other.count(counts), 0u) << other.name << " while testing " << tested.name;
      }
    }
    EXPECT_EQ(counts.executed + counts.failed, 3u * simulation.submitted_) << tested.name;
    EXPECT_GT(counts.reordered, 0u) << tested.name;
  }
}

TEST(SimulatedDataPlane, FailedOpsHaveNotRunAndThoseFailedAfterRunHave) {
  for (const bool after : {false, true}) {
    SimulatedFaults faults;
    (after ? faults.fail_after_run : faults.fail) = 1;
    Simulation simulation(3, faults);
    const SlotId slot = nth_slot(simulation.geometry_, GroupId(0), 0);
    const BlockOp op = make_op(OpKind::kSave, 1, slot);
    ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
    simulation.submitted_ = 1;
    simulation.drain();
    ASSERT_EQ(simulation.records_.size(), 3u);
    for (const auto& record : simulation.records_) {
      EXPECT_EQ(std::get<Code>(record), Code::kUnavailable);
    }
    for (const auto& rank : simulation.ranks_) EXPECT_EQ(!rank->only_changed(), after);
  }
}

TEST(SimulatedDataPlane, LateCompletionMeansThatTheOpItselfWasInTime) {
  SimulatedFaults faults;
  faults.late_completion = 1;
  Simulation simulation(3, faults);
  const SlotId slot = nth_slot(simulation.geometry_, GroupId(0), 0);
  BlockOp op = make_op(OpKind::kSave, 1, slot);
  op.deadline_ns = 10'000'000;
  ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
  simulation.submitted_ = 1;
  simulation.drain();
  int64_t last = 0;
  for (const auto& [time, item, rank, code] : simulation.records_) {
    EXPECT_EQ(code, Code::kOk);
    last = std::max(last, time);
  }
  EXPECT_GT(last, op.deadline_ns);
}

TEST(SimulatedDataPlane, SlowOpsMissTheirDeadlines) {
  SimulatedFaults faults;
  faults.slow = 1;
  Simulation simulation(3, faults);
  BlockOp op = make_op(OpKind::kSave, 1, nth_slot(simulation.geometry_, GroupId(0), 0));
  op.deadline_ns = 5'000'000;
  ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
  simulation.submitted_ = 1;
  simulation.drain();
  ASSERT_EQ(simulation.records_.size(), 3u);
  for (const auto& record : simulation.records_) {
    EXPECT_EQ(std::get<Code>(record), Code::kTimeout);
  }
}

TEST(SimulatedDataPlane, DamagedSlotsNeverReachTheDeviceAsGood) {
  SimulatedFaults faults;
  faults.corrupt_slot = 0.4;
  Simulation simulation(11, faults);
  // Saves and loads only, each of one number: what a load may bring is known.
  uint64_t corrupt = 0;
  std::vector<std::vector<std::byte>> truth;
  for (const auto& rank : simulation.ranks_) {
    const auto block = rank->device_block(GroupId(0), 0);
    truth.emplace_back(block.begin(), block.end());
  }
  for (uint32_t round = 0; round < 300; ++round) {
    const SlotId slot = nth_slot(simulation.geometry_, GroupId(0), round % 4);
    for (const OpKind kind : {OpKind::kSave, OpKind::kLoad}) {
      const BlockOp op = make_op(kind, 1, slot, kind == OpKind::kSave ? 0 : 1);
      ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
      ++simulation.submitted_;
      simulation.drain();
    }
    for (size_t i = simulation.records_.size() - 3; i < simulation.records_.size(); ++i) {
      const auto& [time, item, rank, code] = simulation.records_[i];
      corrupt += code == Code::kCorrupt ? 1 : 0;
      if (code != Code::kOk) continue;
      const auto loaded = simulation.ranks_[rank]->device_block(GroupId(0), 1);
      ASSERT_TRUE(std::equal(loaded.begin(), loaded.end(), truth[rank].begin()));
    }
  }
  EXPECT_GT(corrupt, 20u);
  EXPECT_LT(corrupt, 900u);
}

TEST(SimulatedDataPlane, StalledRankDoesNothingAndTheOthersGoOn) {
  SimulatedFaults faults;
  faults.stall = 1;
  faults.stall_max = seconds(10);
  faults.delay_max = Duration::zero();
  Simulation simulation(4, faults);
  BlockOp op = make_op(OpKind::kSave, 1, nth_slot(simulation.geometry_, GroupId(0), 0));
  ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
  simulation.plane_->run_due();
  // All three stop, for different times; a second op waits for whichever is longer.
  simulation.plane_->set_faults({.delay_max = Duration::zero()});
  op.item = 1;
  ASSERT_TRUE(simulation.plane_->submit({&op, 1}));
  simulation.plane_->run_due();
  simulation.poll();
  EXPECT_TRUE(simulation.records_.empty());
  simulation.submitted_ = 2;
  simulation.drain();
  ASSERT_EQ(simulation.records_.size(), 6u);
  std::map<uint16_t, int64_t> freed;
  for (const auto& [time, item, rank, code] : simulation.records_) {
    if (item == 0) freed[rank] = time;
    if (item == 1) {
      EXPECT_GE(time, freed[rank]);
    }
  }
  EXPECT_NE(freed[0], freed[1]);
  EXPECT_NE(freed[1], freed[2]);
}

TEST(SimulatedDataPlane, TakesAllOrNothingWithinItsBound) {
  Simulation simulation(1, {}, "memory:p", 4);
  const std::vector<BlockOp> three(3, make_op(OpKind::kStoreExists, 1));
  ASSERT_TRUE(simulation.plane_->submit(three));
  EXPECT_EQ(simulation.plane_->submit_capacity(), 1u);
  EXPECT_FALSE(simulation.plane_->submit(three));
  simulation.submitted_ = 3;
  simulation.drain();
  EXPECT_EQ(simulation.records_.size(), 9u);
  EXPECT_EQ(simulation.plane_->submit_capacity(), 4u);
}

TEST(SimulatedDataPlane, EqualJobsAndItemsAreStillToldApart) {
  Simulation simulation(8, every_fault());
  const std::vector<BlockOp> same(20, make_op(OpKind::kStoreExists, 1));
  ASSERT_TRUE(simulation.plane_->submit(same));
  simulation.submitted_ = 20;
  simulation.drain();
  EXPECT_EQ(simulation.records_.size(), 60u);
}

TEST(SimulatedDataPlane, CreateRefusesWhatDoesNotFit) {
  const SlotGeometry geometry = uneven_geometry();
  ManualClock clock;
  TestRank rank(geometry, 0, 1);
  TestRank other(geometry, 1, 1);
  const auto create = [&](TestRank* of, const SimulatedFaults& faults, uint32_t bound) {
    std::vector<std::unique_ptr<RankWorker>> workers;
    if (of != nullptr) workers.push_back(of->make_worker(nullptr, clock));
    return SimulatedDataPlane::create(std::move(workers), clock, 1, faults, bound).code();
  };
  EXPECT_EQ(create(&rank, {}, 1), Code::kOk);
  EXPECT_EQ(create(&rank, {}, 0), Code::kInvalid);
  EXPECT_EQ(create(nullptr, {}, 1), Code::kInvalid);
  EXPECT_EQ(create(&other, {}, 1), Code::kInvalid);
  EXPECT_EQ(create(&rank, {.fail = 1.5}, 1), Code::kInvalid);
  EXPECT_EQ(create(&rank, {.stall = -0.1}, 1), Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
