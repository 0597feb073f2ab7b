// SPDX-License-Identifier: Apache-2.0
#include "cli/replay.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "cli/reference_lru.h"
#include "cli/replay_run.h"

namespace tiercel {
namespace {

ReplayOptions metadata_only(uint32_t host_blocks) {
  ReplayOptions options;
  options.metadata_only = true;
  options.host_blocks = host_blocks;
  return options;
}

uint64_t reference_hits(const Trace& trace, size_t capacity) {
  testing::ReferenceLru lru(capacity);
  uint64_t hits = 0;
  for (const TraceRequest& request : trace.requests) hits += lru.visit(trace.ids_of(request));
  return hits;
}

TEST(Replay, LruHitsExactlyWhatTheReferenceHits) {
  const struct {
    uint32_t host_blocks;
    double hit_ratio;
  } kCases[] = {{1000, 0.0445}, {3000, 0.0653}, {10000, 0.2116}, {30000, 0.3257}};
  for (const auto& [host_blocks, hit_ratio] : kCases) {
    const ReplayReport report = run(whole_trace(), metadata_only(host_blocks));
    EXPECT_TRUE(report.complete);
    EXPECT_EQ(report.requests, 12031u);
    EXPECT_EQ(report.blocks, 288500u);
    EXPECT_EQ(report.hit_blocks, reference_hits(whole_trace(), host_blocks)) << host_blocks;
    EXPECT_EQ(report.loaded_blocks, report.hit_blocks);
    EXPECT_NEAR(report.hit_ratio(), hit_ratio, 0.0001) << host_blocks;
    EXPECT_NEAR(report.ceiling_hit_ratio(), 0.366, 0.001);
  }
}

TEST(Replay, TheOptimumLiesBetweenTheHitsAndTheCeiling) {
  for (const uint32_t host_blocks : {1000u, 10000u}) {
    const ReplayReport report = run(whole_trace(), metadata_only(host_blocks));
    ASSERT_TRUE(report.optimum_hit_blocks);
    EXPECT_GT(*report.optimum_hit_blocks, report.hit_blocks);
    EXPECT_LE(*report.optimum_hit_blocks, report.ceiling_hit_blocks);
  }
  ReplayOptions options = metadata_only(1000);
  options.optimum = false;
  EXPECT_FALSE(run(head_of(whole_trace(), 10), options).optimum_hit_blocks);
}

TEST(Replay, AHostTierThatHoldsEverythingReachesTheCeiling) {
  const ReplayReport report = run(whole_trace(), metadata_only(200000));
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks);
  EXPECT_EQ(report.cache.evicted_blocks, 0u);
}

TEST(Replay, AStoreThatKeepsEverythingReachesTheCeiling) {
  ReplayOptions options = metadata_only(10000);
  options.store = "memory:";
  const ReplayReport report = run(whole_trace(), options);
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks);
  EXPECT_EQ(report.loaded_blocks, report.ceiling_hit_blocks);
  ASSERT_EQ(report.tiers.size(), 2u);
  EXPECT_EQ(report.tiers[0].hit_blocks + report.tiers[1].hit_blocks, report.hit_blocks);
  EXPECT_GT(report.tiers[1].hit_blocks, 0u);
}

TEST(Replay, FullBlocksOnlyLeavesThePartialLastOneOut) {
  ReplayOptions options = metadata_only(200000);
  options.full_blocks_only = true;
  const ReplayReport report = run(whole_trace(), options);
  EXPECT_NEAR(report.ceiling_hit_ratio(), 0.382, 0.001);
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks);
}

TEST(Replay, SmallerBlocksAreMoreBlocksOfTheSameTokens) {
  const Trace trace = head_of(whole_trace(), 300);
  const ReplayReport whole = run(trace, metadata_only(200000));
  for (const uint32_t block_tokens : {16u, 128u}) {
    ReplayOptions options = metadata_only(400000);
    options.block_tokens = block_tokens;
    const ReplayReport report = run(trace, options);
    EXPECT_EQ(report.blocks, whole.blocks * (512 / block_tokens));
    EXPECT_EQ(report.hit_blocks, whole.hit_blocks * (512 / block_tokens));
    EXPECT_EQ(report.ceiling_hit_blocks, report.hit_blocks);
    EXPECT_EQ(report.tokens_saved, whole.tokens_saved);
  }
}

TEST(Replay, EveryByteThatComesBackIsRight) {
  const Trace trace = head_of(whole_trace(), 1500);
  for (const uint32_t ranks : {1u, 2u}) {
    const ReplayReport report = run(trace, small_blocks(3000, ranks));
    EXPECT_TRUE(report.complete);
    EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
    EXPECT_EQ(report.hit_blocks, reference_hits(trace, 3000));
    EXPECT_EQ(report.loaded_blocks, report.hit_blocks);
    EXPECT_GT(report.loaded_blocks, 1000u);
    EXPECT_EQ(report.paths.path(OpKind::kLoad).bytes, report.loaded_blocks * 1000 * ranks);
    EXPECT_EQ(report.paths.path(OpKind::kSave).bytes,
              (report.blocks - report.loaded_blocks) * 1000 * ranks);
  }
}

TEST(Replay, RanksInProcessesHitAndMoveWhatThreadsDo) {
  const Trace trace = head_of(whole_trace(), 1000);
  ReplayOptions options = small_blocks(3000, 2);
  const ReplayReport threads = run(trace, options);
  options.rank_host = RankHost::kProcess;
  const ReplayReport processes = run(trace, options);
  EXPECT_TRUE(processes.complete);
  EXPECT_EQ(processes.mismatches, 0u);
  EXPECT_EQ(processes.hit_blocks, threads.hit_blocks);
  EXPECT_EQ(processes.loaded_blocks, threads.loaded_blocks);
  EXPECT_EQ(processes.paths.path(OpKind::kLoad).bytes, threads.paths.path(OpKind::kLoad).bytes);
}

// The replay's clock shows the time of the trace, and ranks in processes that of the machine.
TEST(Replay, DeadlinesMeanTheSameToRanksInProcesses) {
  ReplayOptions options = small_blocks(1000, 2);
  options.rank_host = RankHost::kProcess;
  options.deadline = std::chrono::seconds(30);
  const ReplayReport report = run(head_of(whole_trace(), 300), options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.cache.save_failed, 0u);
  EXPECT_EQ(report.cache.load_failed, 0u);
  EXPECT_GT(report.loaded_blocks, 0u);
}

// Ranks are killed in front of a match, in the middle of loads and in the middle of saves.
TEST(Replay, RanksThatAreKilledCostHitsAndNothingElse) {
  ReplayOptions options = small_blocks(3000, 2);
  options.rank_host = RankHost::kProcess;
  options.kill_rank_every = 50;
  const ReplayReport report = run(head_of(whole_trace(), 1500), options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u);
  EXPECT_GE(report.killed_ranks, 6u);
  EXPECT_GE(report.cache.memory_losses, report.killed_ranks - options.ranks)
      << "only the last ones may not have been seen";
  EXPECT_GT(report.loaded_blocks, 0u);
  ASSERT_EQ(report.ranks.size(), options.ranks);
  EXPECT_GE(report.comebacks(), report.killed_ranks - 2 * options.ranks);
  EXPECT_LE(report.comebacks(), report.killed_ranks);
}

// Processes whose parent is this one.
std::vector<pid_t> child_processes() {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    // "pid (name) state parent …"
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    std::istringstream rest(line.substr(line.rfind(')') + 1));
    std::string state;
    pid_t parent = 0;
    rest >> state >> parent;
    if (parent == ::getpid()) children.push_back(static_cast<pid_t>(std::stol(line)));
  }
  return children;
}

TEST(Replay, ARankThatIsStoppedIsWhatPatienceEndsWith) {
  const SystemClock clock;
  ReplayOptions options = small_blocks(3000);
  options.rank_host = RankHost::kProcess;
  options.patience = std::chrono::milliseconds(50);
  ReplayContext context{clock};
  context.progress = [](uint64_t done, uint64_t) {
    if (done != 1) return;
    const std::vector<pid_t> ranks = child_processes();
    ASSERT_EQ(ranks.size(), 1u);
    ASSERT_EQ(::kill(ranks[0], SIGSTOP), 0);
  };
  const auto report = replay(head_of(whole_trace(), 100), options, context);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_FALSE(report->complete);
  EXPECT_NE(report->failure.find(") is stopped with "), std::string::npos) << report->failure;
  EXPECT_EQ(report->failure.find("store"), std::string::npos) << report->failure;
  ASSERT_EQ(report->ranks.size(), 1u);
  EXPECT_EQ(report->ranks[0].state, RankState::kUp);
}

TEST(Replay, HostMemoryThatIsTouchedAtTheStartChangesNoFigure) {
  const Trace trace = head_of(whole_trace(), 200);
  for (const RankHost host : {RankHost::kThread, RankHost::kProcess}) {
    ReplayOptions options = small_blocks(1000, 2);
    options.rank_host = host;
    const ReplayReport lazy = run(trace, options);
    options.prefault = true;
    EXPECT_EQ(run(trace, options).hit_blocks, lazy.hit_blocks);
  }
}

TEST(Replay, EveryByteThatComesBackThroughTheStoreIsRight) {
  const Trace trace = head_of(whole_trace(), 1500);
  ReplayOptions options = small_blocks(1500, 2);
  options.store = "memory:";
  const ReplayReport report = run(trace, options);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks);
  EXPECT_EQ(report.loaded_blocks, report.ceiling_hit_blocks);
  EXPECT_GT(report.tiers[1].bytes_read, 0u);
}

TEST(Replay, WhatAStoreCorruptsIsAMissAndNeverServed) {
  const Trace trace = head_of(whole_trace(), 1500);
  ReplayOptions options = small_blocks(1500, 2);
  options.store = "faulty+memory:?fault_corrupt=0.05&fault_seed=3";
  const ReplayReport report = run(trace, options);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_GT(report.paths.path(OpKind::kStoreGet).corrupt, 0u);
  EXPECT_LT(report.hit_blocks, report.ceiling_hit_blocks);
}

TEST(Replay, TheComparisonFindsWhatVerificationWouldHaveFound) {
  const Trace trace = head_of(whole_trace(), 1500);
  ReplayOptions options = small_blocks(1500, 2);
  options.store = "faulty+memory:?fault_corrupt=0.05&fault_seed=3";
  options.verify = false;
  const ReplayReport report = run(trace, options);
  EXPECT_GT(report.mismatches, 0u);
  EXPECT_NE(report.first_mismatch.find("request of line "), std::string::npos);
}

TEST(Replay, AStoreThatFailsNowAndThenOnlyCostsHits) {
  const Trace trace = head_of(whole_trace(), 600);
  ReplayOptions options = small_blocks(800);
  options.store = "faulty+memory:?fault_error=0.1&fault_truncate=0.05&fault_seed=5";
  const ReplayReport report = run(trace, options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
}

TEST(Replay, AStoreThatNeverAnswersEndsTheRunWithTheRequest) {
  const SystemClock clock;
  ReplayOptions options = small_blocks(800);
  options.store = "faulty+memory:?fault_drop=1";
  options.patience = std::chrono::milliseconds(50);
  const auto report = replay(head_of(whole_trace(), 600), options, ReplayContext{clock});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_FALSE(report->complete);
  EXPECT_NE(report->failure.find("request of line 1: no end of "), std::string::npos)
      << report->failure;
}

TEST(Replay, AStoreThatNeverAnswersCostsItsDeadlineAndIsThenLeftAlone) {
  ReplayOptions options = small_blocks(800);
  options.store = "faulty+memory:?fault_drop=1&guard_backoff=1h&guard_backoff_max=1h";
  options.deadline = std::chrono::milliseconds(50);
  options.patience = std::chrono::seconds(5);
  const ReplayReport report = run(head_of(whole_trace(), 200), options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_EQ(report.cache.put_blocks, 0u);
}

// What is never answered stays in flight for ever: it must not be waited for at every request.
TEST(Replay, APutThatIsNeverAnsweredCostsItsDeadlineAndTheRunGoesOn) {
  ReplayOptions options = small_blocks(1000);
  options.store = "faulty+memory:?fault_drop=0.2&fault_seed=1&guard_failures=1000";
  options.deadline = std::chrono::milliseconds(50);
  options.patience = std::chrono::seconds(20);
  const ReplayReport report = run(head_of(whole_trace(), 40), options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_GT(report.cache.put_failed, 0u);
}

TEST(Replay, PatienceThatEndsBeforeTheDeadlineSaysWhichOfThemToChange) {
  const SystemClock clock;
  ReplayOptions options = small_blocks(800);
  options.store = "faulty+memory:?fault_drop=1";
  options.patience = std::chrono::milliseconds(50);
  options.deadline = std::chrono::hours(1);
  const auto report = replay(head_of(whole_trace(), 600), options, ReplayContext{clock});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_NE(report->failure.find("within 50 ms; patience must be longer than the deadline, 1 h"),
            std::string::npos)
      << report->failure;
}

// Says stop after so many questions for the time: in the middle of a wait that would not end.
class StoppingClock final : public Clock {
 public:
  TimePoint now() const override {
    if (++asked_ == 2000) stop_ = true;
    return clock_.now();
  }
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  const SystemClock clock_;
  mutable std::atomic<uint64_t> asked_{0};
  mutable std::atomic<bool> stop_{false};
};

TEST(Replay, AStopIsNoFailureEvenIfTheStoreNeverAnswers) {
  const StoppingClock clock;
  ReplayOptions options = small_blocks(800);
  // A put of the first request is not answered; then its rank does not end either.
  options.store = "faulty+memory:?fault_drop=0.3&fault_seed=6";
  ReplayContext context{clock};
  context.stop = &clock.stop();
  const auto report = replay(head_of(whole_trace(), 600), options, context);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->failure, "");
}

TEST(Replay, TheSameTraceGivesTheSameFigures) {
  const Trace trace = head_of(whole_trace(), 800);
  // One rank: several would fill the bounded store in an order that is nobody's business.
  ReplayOptions options = small_blocks(700);
  options.store = "memory:?bytes=4MB";
  const ReplayReport first = run(trace, options);
  const ReplayReport second = run(trace, options);
  EXPECT_EQ(first.hit_blocks, second.hit_blocks);
  EXPECT_EQ(first.loaded_blocks, second.loaded_blocks);
  EXPECT_EQ(first.tiers[1].hit_blocks, second.tiers[1].hit_blocks);
  EXPECT_EQ(first.cache.put_blocks, second.cache.put_blocks);
  EXPECT_EQ(first.cache.put_dropped + second.cache.put_dropped, 0u);
  EXPECT_EQ(first.mismatches + second.mismatches, 0u);
}

TEST(Replay, ARequestWithoutBlocksIsARequest) {
  Trace trace;
  trace.requests.resize(2);
  trace.requests[0].line = 1;
  trace.requests[1].line = 2;
  const ReplayReport report = run(trace, small_blocks(10));
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.requests, 2u);
  EXPECT_EQ(report.blocks, 0u);
}

TEST(Replay, RequestsLongerThanTheHostTierAreServedAsFarAsItReaches) {
  const Trace trace = head_of(whole_trace(), 200);
  const ReplayReport report = run(trace, small_blocks(Cache::host_blocks_min()));
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
}

TEST(Replay, AStopEndsTheRunBetweenTwoRequests) {
  std::atomic<bool> stop{false};
  const SystemClock clock;
  ReplayContext context{clock};
  context.stop = &stop;
  context.progress = [&stop](uint64_t done, uint64_t) { stop = done == 100; };
  const auto report = replay(whole_trace(), metadata_only(1000), context);
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->failure, "");
  EXPECT_EQ(report->requests, 100u);
}

TEST(Replay, WhatCannotWorkIsRefusedBeforeTheFirstRequest) {
  const SystemClock clock;
  const Trace trace = head_of(whole_trace(), 10);
  ReplayOptions unknown_store = metadata_only(100);
  unknown_store.store = "memry:";
  const auto refused = replay(trace, unknown_store, ReplayContext{clock});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("did you mean 'memory'"), std::string::npos)
      << refused.error().message();
  ReplayContext tight{clock};
  tight.memory = {1u << 20, "available memory"};
  EXPECT_EQ(replay(trace, small_blocks(10000), tight).code(), Code::kNoSpace);
}

TEST(Replay, ADeviceTierOfOursHitsBeforeTheHostTierDoes) {
  const Trace trace = head_of(whole_trace(), 1500);
  const ReplayReport without = run(trace, small_blocks(3000, 2));
  ReplayOptions options = small_blocks(3000, 2);
  options.device_blocks = 1000;
  const ReplayReport report = run(trace, options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_GE(report.hit_blocks, without.hit_blocks);
  ASSERT_EQ(report.tiers.size(), 2u);
  EXPECT_EQ(report.tiers[0].name, "device");
  EXPECT_GT(report.tiers[0].hit_blocks, 0u);
  EXPECT_EQ(report.tiers[0].hit_blocks + report.tiers[1].hit_blocks, report.hit_blocks);
  EXPECT_EQ(report.loaded_blocks, report.tiers[1].hit_blocks);
}

// The check at start must neither refuse what fits nor let through what does not.
TEST(Replay, TheMemoryOfTheIndexIsWhatTheCheckAtStartTakesItFor) {
  for (const std::string policy : {"lru", "s3fifo"}) {
    for (const uint32_t device_blocks : {0u, 500'000u}) {
      ReplayOptions options = metadata_only(1'000'000);
      options.policy = policy;
      options.device_blocks = device_blocks;
      const ReplayReport report = run(head_of(whole_trace(), 1), options);
      const double blocks = options.host_blocks + device_blocks;
      const double bytes = static_cast<double>(report.cache.index_bytes);
      const auto taken = static_cast<double>(index_bytes_per_block(options)) * blocks;
      EXPECT_LT(bytes, taken);
      EXPECT_GT(bytes, 0.75 * taken);
    }
  }
}

TEST(Replay, DeadlinesCanBeAskedFor) {
  const Trace trace = head_of(whole_trace(), 300);
  ReplayOptions options = small_blocks(1500);
  options.store = "memory:";
  options.deadline = std::chrono::seconds(100);
  const ReplayReport report = run(trace, options);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks);
}

}  // namespace
}  // namespace tiercel
