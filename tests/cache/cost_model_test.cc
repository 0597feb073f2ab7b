// SPDX-License-Identifier: Apache-2.0
#include "cache/cost_model.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kBlockTokens = 512;
constexpr uint64_t kBlockBytes = 64u << 20;
constexpr auto kToDevice = TransferPath::kHostToDevice;
constexpr auto kDisk = TransferPath::kDiskToHost;
constexpr auto kStore = TransferPath::kStoreToHost;
constexpr auto kAsk = TransferPath::kStoreQuestion;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
Duration from_seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

LoadOrRecomputeConfig test_costs() {
  LoadOrRecomputeConfig config;
  config.enabled = true;
  config.prefill.tokens_per_second = 10000;
  return config;
}

// Works of blocks that come in turn over the given paths, beside that to the device.
std::vector<CutWork> works_over(const std::vector<TransferPath>& ways, uint64_t bytes) {
  std::vector<CutWork> works(1);
  for (const TransferPath way : ways) {
    CutWork work = works.back();
    work.units[static_cast<size_t>(kToDevice)] += bytes;
    if (way != kToDevice) work.units[static_cast<size_t>(way)] += bytes;
    works.push_back(work);
  }
  return works;
}

CutQuestion question_of(const std::vector<CutWork>& works, TimePoint now = {}) {
  CutQuestion question;
  question.now = now;
  question.works = works;
  question.block_units = kBlockBytes;
  return question;
}

// One job of `blocks` blocks that takes `duration`, all of which come.
bool transfer(CostModel& model, TransferPath path, uint32_t blocks, Duration duration,
              TimePoint& now, Code outcome = Code::kOk, uint64_t bytes = kBlockBytes) {
  const auto sent = model.submitted(path, blocks * bytes, now);
  now += duration;
  for (uint32_t i = 0; i < blocks; ++i) model.left(path, bytes, outcome == Code::kOk);
  return model.ended(path, sent, outcome == Code::kOk ? blocks * bytes : 0, outcome, now, now);
}

// The estimates' formula once more, written down plainly.
double total_of(const LoadOrRecomputeConfig& config, const LoadEstimates& estimates,
                const CutQuestion& question, uint32_t blocks) {
  const auto path = [&](TransferPath which) {
    const size_t i = static_cast<size_t>(which);
    const TransferEstimate& known = estimates.transfers[i];
    const CutWork& work = question.works[blocks];
    if (work.units[i] == 0) return 0.0;
    if (known.suspended) return std::numeric_limits<double>::infinity();
    return seconds(known.rate.latency) +
           static_cast<double>(known.units_ahead + work.units[i]) / known.rate.units_per_second;
  };
  const TransferEstimate& device = estimates.transfers[0];
  const double last = seconds(device.rate.latency) +
                      static_cast<double>(question.block_units) / device.rate.units_per_second;
  const double to_host = path(kAsk) + std::max(path(kDisk), path(kStore));
  double load = std::max(path(kToDevice), to_host > 0 ? to_host + last : 0);
  double checked = load;
  if (question.staged) {
    load = std::max(0.0, to_host - seconds(question.wait)) + path(kToDevice);
    checked = to_host;
  }
  if (question.time_left != Duration::max() && checked > seconds(question.time_left)) {
    return std::numeric_limits<double>::infinity();
  }
  double prefill = 0;  // token by token
  const uint64_t first = (question.first_block + blocks) * uint64_t{kBlockTokens};
  const uint64_t end =
      (question.first_block + question.works.size() - 1) * kBlockTokens + question.tokens_behind;
  for (uint64_t token = first; token < end; ++token) {
    const double growth =
        estimates.prefill.context_doubling > 0
            ? (static_cast<double>(token) + 0.5) / estimates.prefill.context_doubling
            : 0;
    prefill += (1 + growth) / estimates.prefill.tokens_per_second;
  }
  return load + prefill - config.overlap * (std::isinf(load) ? 0 : std::min(load, prefill));
}

TEST(CostModel, TheCutIsThatOfTryingAllCutsForRandomPlacesAndRates) {
  Random random(7);
  uint64_t inner = 0, none = 0, all = 0;
  for (int round = 0; round < 600; ++round) {
    LoadOrRecomputeConfig config = test_costs();
    const auto log_uniform = [&](double low, double high) {
      return low * std::pow(high / low, random.real());
    };
    for (TransferRate& rate : config.transfers) {
      rate.latency = from_seconds(log_uniform(1e-5, 0.3));
      rate.units_per_second = log_uniform(1e8, 2e10);
    }
    config.prefill.tokens_per_second = log_uniform(1000, 100000);
    config.prefill.context_doubling = random.chance(0.5) ? 0 : log_uniform(2000, 100000);
    config.overlap = random.chance(0.5) ? 0 : random.real();
    CostModel model(config, kBlockTokens);
    TimePoint now{};
    for (uint64_t i = random.below(20); i > 0; --i) {
      const auto path = static_cast<TransferPath>(random.below(kTransferPathCount));
      transfer(model, path, static_cast<uint32_t>(1 + random.below(20)),
               from_seconds(log_uniform(1e-4, 1)), now);
    }
    for (uint64_t i = random.below(3); i > 0; --i) {
      model.submitted(static_cast<TransferPath>(random.below(kTransferPathCount)),
                      random.below(20) * kBlockBytes, now);
    }
    if (random.chance(0.1)) transfer(model, kStore, 1, 3600s, now, Code::kTimeout);

    std::vector<TransferPath> ways(random.below(30));
    for (TransferPath& way : ways)
      way = random.chance(0.4) ? kToDevice : random.chance(0.5) ? kDisk : kStore;
    std::vector<CutWork> works = works_over(ways, kBlockBytes);
    CutQuestion question = question_of(works, now);
    question.first_block = static_cast<uint32_t>(random.below(50));
    question.tokens_behind = random.below(5000);
    question.staged = random.chance(0.5);
    if (question.staged) question.wait = from_seconds(log_uniform(1e-3, 1));
    if (random.chance(0.3)) question.time_left = from_seconds(log_uniform(1e-3, 1));

    const LoadChoice choice = model.choose(question);
    const LoadEstimates estimates = model.estimates();
    double best = std::numeric_limits<double>::infinity();
    for (uint32_t cut = 0; cut < works.size(); ++cut) {
      best = std::min(best, total_of(config, estimates, question, cut));
    }
    const double chosen = total_of(config, estimates, question, choice.blocks_chosen);
    ASSERT_NEAR(chosen, best, 1e-6 + 1e-6 * best) << "round " << round;
    ASSERT_NEAR(seconds(choice.time_saved), total_of(config, estimates, question, 0) - best,
                1e-6 + 1e-5 * best);
    if (choice.blocks_chosen == 0) {
      ++none;
    } else if (choice.blocks_chosen == ways.size()) {
      ++all;
    } else {
      ++inner;
    }
  }
  EXPECT_GT(none, 30u);
  EXPECT_GT(all, 30u);
  EXPECT_GT(inner, 30u);
}

TEST(CostModel, TheFirstChoiceTakesHostMemoryAndLeavesASlowStoreToAFastEngine) {
  LoadOrRecomputeConfig config = test_costs();
  config.transfers[static_cast<size_t>(kStore)] = {2ms, 1e9};
  const CostModel model(config, kBlockTokens);
  // 64 MiB are 7 ms from memory and 67 ms from the store; 512 tokens take 51 ms.
  const auto from_host = works_over(std::vector<TransferPath>(8, kToDevice), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(from_host)).blocks_chosen, 8u);
  const auto from_store = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(from_store)).blocks_chosen, 0u);
  const auto both = works_over({kToDevice, kToDevice, kStore, kStore}, kBlockBytes);
  EXPECT_EQ(model.choose(question_of(both)).blocks_chosen, 2u);
  // With a quarter of the bytes it wins.
  const auto small = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes / 4);
  EXPECT_EQ(model.choose(question_of(small)).blocks_chosen, 8u);
}

TEST(CostModel, NothingThereIsNoChoice) {
  const CostModel model(test_costs(), kBlockTokens);
  const std::vector<CutWork> works(1);
  const LoadChoice choice = model.choose(question_of(works));
  EXPECT_FALSE(choice.made);
  EXPECT_EQ(choice.blocks_chosen, 0u);
}

TEST(CostModel, WhatIsNotExpectedBeforeTheDeadlineIsNotChosen) {
  const CostModel model(test_costs(), kBlockTokens);
  const auto works = works_over(std::vector<TransferPath>(8, kToDevice), kBlockBytes);
  CutQuestion question = question_of(works);
  question.time_left = 30ms;
  const LoadChoice choice = model.choose(question);
  EXPECT_EQ(choice.blocks_chosen, 4u);
  EXPECT_LE(choice.load_expected, 30ms);
}

TEST(CostModel, WhatTheRequestWaitsAnywayCostsNothing) {
  CostModel model(test_costs(), kBlockTokens);
  const auto works = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes);
  CutQuestion question = question_of(works);
  question.staged = true;
  EXPECT_EQ(model.choose(question).blocks_chosen, 0u);
  question.wait = 300ms;  // four blocks arrive in that time
  const uint32_t some = model.choose(question).blocks_chosen;
  EXPECT_GE(some, 4u);
  EXPECT_LT(some, 8u);
  question.wait = 1s;
  EXPECT_EQ(model.choose(question).blocks_chosen, 8u);
}

TEST(CostModel, APrefetchIsSeenAtAPollAndItsAnswerOnePollBefore) {
  const CostModel model(test_costs(), kBlockTokens);
  // So small that they come at once; computing the four blocks takes 205 ms.
  const auto known = works_over(std::vector<TransferPath>(4, kStore), 4096);
  CutQuestion question = question_of(known);
  question.staged = true;
  EXPECT_EQ(model.choose(question).blocks_chosen, 4u);
  question.poll = 120ms;
  EXPECT_EQ(model.choose(question).blocks_chosen, 4u);
  EXPECT_GE(model.choose(question).load_expected, 120ms);
  auto unknown = known;
  for (size_t i = 1; i < unknown.size(); ++i) {
    unknown[i].units[static_cast<size_t>(kAsk)] = i;
  }
  question.works = unknown;
  EXPECT_EQ(model.choose(question).blocks_chosen, 0u) << "two polls";
  question.wait = 240ms;
  EXPECT_EQ(model.choose(question).blocks_chosen, 4u);
}

TEST(CostModel, ASlowPriorIsPutRightByTransfersShorterThanAPoll) {
  LoadOrRecomputeConfig config = test_costs();
  CostModel model(config, kBlockTokens);
  const double prior = config.transfers[static_cast<size_t>(kStore)].units_per_second;
  TimePoint now{};
  // Five times as fast as the prior, and seen every 100 ms: four blocks in some 55 ms.
  for (int i = 0; i < 4; ++i) {
    const auto sent = model.submitted(kStore, 4 * kBlockBytes, now);
    const TimePoint before = now;
    now += 100ms;
    for (int block = 0; block < 4; ++block) model.left(kStore, kBlockBytes, true);
    model.ended(kStore, sent, 4 * kBlockBytes, Code::kOk, before, now);
  }
  const double rate =
      model.estimates().transfers[static_cast<size_t>(kStore)].rate.units_per_second;
  EXPECT_GE(rate, 3.5 * prior);
}

TEST(CostModel, WhatIsOnItsWayAlreadyCountsAsQueue) {
  CostModel model(test_costs(), kBlockTokens);
  const auto works = works_over(std::vector<TransferPath>(4, kDisk), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(works)).blocks_chosen, 4u);
  TimePoint now{};
  const auto sent = model.submitted(kDisk, 64 * kBlockBytes, now);
  EXPECT_EQ(model.choose(question_of(works)).blocks_chosen, 0u);
  now += 2s;
  for (int i = 0; i < 64; ++i) model.left(kDisk, kBlockBytes, true);
  model.ended(kDisk, sent, 64 * kBlockBytes, Code::kOk, now, now);
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 4u);
}

TEST(CostModel, ATransferBehindOthersIsNotTakenForASlowOne) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  // Eight jobs at once, served one after the other at 2 GB/s.
  for (int round = 0; round < 10; ++round) {
    std::vector<CostModel::Transfer> sent;
    for (int i = 0; i < 8; ++i) sent.push_back(model.submitted(kDisk, 8 * kBlockBytes, now));
    for (int i = 0; i < 8; ++i) {
      now += from_seconds(8 * static_cast<double>(kBlockBytes) / 2e9);
      for (int block = 0; block < 8; ++block) model.left(kDisk, kBlockBytes, true);
      model.ended(kDisk, sent[i], 8 * kBlockBytes, Code::kOk, now, now);
    }
  }
  const TransferRate rate = model.estimates().transfers[static_cast<size_t>(kDisk)].rate;
  EXPECT_NEAR(rate.units_per_second, 2e9, 0.05e9);
}

TEST(CostModel, FollowsATierThatBecomesTenTimesSlowerAndTenTimesFasterAgain) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  Random random(11);
  const auto run = [&](double bytes_per_second, int jobs) {
    for (int i = 0; i < jobs; ++i) {
      const auto blocks = static_cast<uint32_t>(1 + random.below(32));
      const double noise = 0.8 + 0.4 * random.real();
      transfer(model, kDisk, blocks,
               from_seconds(
                   noise * (300e-6 + blocks * static_cast<double>(kBlockBytes) / bytes_per_second)),
               now);
      now += 300ms;
    }
  };
  const auto worth = [&] {
    const auto works = works_over(std::vector<TransferPath>(8, kDisk), kBlockBytes);
    return model.choose(question_of(works, now)).blocks_chosen;
  };
  const auto rate = [&] {
    return model.estimates().transfers[static_cast<size_t>(kDisk)].rate.units_per_second;
  };
  run(4e9, 200);
  EXPECT_EQ(worth(), 8u);
  EXPECT_NEAR(rate(), 4e9, 0.6e9);
  run(4e8, 5);
  EXPECT_EQ(worth(), 0u);
  EXPECT_NEAR(rate(), 4e8, 1e8);
  run(4e8, 200);
  run(4e9, 5);
  EXPECT_EQ(worth(), 8u);
  EXPECT_NEAR(rate(), 4e9, 1e9);
}

TEST(CostModel, LearnsThePrefillRateAndItsGrowthWithTheContext) {
  LoadOrRecomputeConfig config = test_costs();
  config.prefill = {10000, 32768};
  CostModel model(config, kBlockTokens);
  TimePoint now{};
  const PrefillRate truth{25000, 60000};
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    const uint64_t tokens = 512 + random.below(7680);
    const uint64_t context = random.below(100000);
    now += 200ms;
    model.observe_prefill(tokens, context,
                          from_seconds(prefill_seconds(truth, static_cast<double>(context),
                                                       static_cast<double>(tokens))),
                          now);
  }
  const PrefillRate rate = model.estimates().prefill;
  EXPECT_NEAR(rate.tokens_per_second, truth.tokens_per_second, 1000);
  EXPECT_NEAR(rate.context_doubling, truth.context_doubling, 4000);
}

TEST(CostModel, AStalledStoreIsNotChosenAfterItsFirstDeadline) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  for (int i = 0; i < 20; ++i) transfer(model, kStore, 8, 60ms, now, Code::kOk);
  const auto works = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 8u);
  EXPECT_TRUE(transfer(model, kStore, 8, 200ms, now, Code::kTimeout));
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 0u);
  // Others that were out at the same time do not count as further stalls.
  EXPECT_FALSE(transfer(model, kStore, 8, 200ms, now, Code::kTimeout));
  now += 1h;
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 0u) << "only a probe may find out";
}

TEST(CostModel, AProbeBringsAStalledStoreBackAndFailedOnesAreFurtherAndFurtherApart) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  for (int i = 0; i < 20; ++i) transfer(model, kStore, 8, 60ms, now);
  transfer(model, kStore, 8, 200ms, now, Code::kTimeout);
  Duration last{0};
  for (int i = 0; i < 8; ++i) {
    const TimePoint start = now;
    EXPECT_FALSE(model.wants_probe(kStore, now));
    while (!model.wants_probe(kStore, now)) now += 100ms;
    EXPECT_GE(now - start, std::min<Duration>(last, 60s));
    EXPECT_LE(now - start, 61s);
    last = now - start;
    auto probe = model.submitted(kStore, kBlockBytes, now);
    model.probes(kStore, probe);
    EXPECT_FALSE(model.wants_probe(kStore, now)) << "one at a time";
    now += model.probe_time(kStore);
    model.left(kStore, kBlockBytes, false);
    model.ended(kStore, probe, 0, Code::kTimeout, now, now);
  }
  now += 61s;
  ASSERT_TRUE(model.wants_probe(kStore, now));
  auto probe = model.submitted(kStore, 8 * kBlockBytes, now);
  model.probes(kStore, probe);
  now += 60ms;
  for (int i = 0; i < 8; ++i) model.left(kStore, kBlockBytes, true);
  model.ended(kStore, probe, 8 * kBlockBytes, Code::kOk, now, now);
  const auto works = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 8u);
}

TEST(CostModel, ASlowPathIsProbedFromTimeToTimeAndAFreshlyMeasuredOneIsNot) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  EXPECT_TRUE(model.wants_probe(kStore, now)) << "the prior is no measurement";
  transfer(model, kStore, 8, 5s, now);
  EXPECT_FALSE(model.wants_probe(kStore, now));
  now += 10s;
  EXPECT_TRUE(model.wants_probe(kStore, now));
}

TEST(CostModel, ADeadlineTooShortForTheTransferSaysNothingOfThePath) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  for (int i = 0; i < 20; ++i) transfer(model, kStore, 8, 60ms, now);
  EXPECT_FALSE(transfer(model, kStore, 8, 5ms, now, Code::kTimeout));
  const auto works = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 8u);
}

TEST(CostModel, AQuickRefusalIsNoSpeed) {
  CostModel model(test_costs(), kBlockTokens);
  TimePoint now{};
  for (int i = 0; i < 20; ++i) transfer(model, kStore, 8, 5s, now);
  for (int i = 0; i < 20; ++i) transfer(model, kStore, 8, 1us, now, Code::kUnavailable);
  const auto works = works_over(std::vector<TransferPath>(8, kStore), kBlockBytes);
  EXPECT_EQ(model.choose(question_of(works, now)).blocks_chosen, 0u);
}

TEST(CostModel, RefusesFiguresThatCannotBe) {
  const auto refused = [](auto change, std::string_view named) {
    LoadOrRecomputeConfig config;
    change(config);
    const Status status = config.validate();
    ASSERT_FALSE(status) << named;
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_NE(status.error().message().find(named), std::string::npos) << status.error().message();
  };
  EXPECT_TRUE(LoadOrRecomputeConfig{}.validate());
  refused([](auto& c) { c.transfers[1].units_per_second = 0; }, "disk_to_host");
  refused([](auto& c) { c.transfers[2].units_per_second = std::nan(""); }, "store_to_host");
  refused([](auto& c) { c.transfers[0].latency = Duration(-1); }, "latency");
  refused([](auto& c) { c.prefill.tokens_per_second = 0; }, "tokens_per_second");
  refused([](auto& c) { c.prefill.context_doubling = -1; }, "context_doubling");
  refused([](auto& c) { c.overlap = 1.5; }, "overlap");
  refused([](auto& c) { c.half_life = Duration(0); }, "half_life");
  refused([](auto& c) { c.suspension = Duration(0); }, "suspension");
  refused([](auto& c) { c.suspension_max = Duration(1); }, "suspension_max");
  refused([](auto& c) { c.probe_after = Duration(0); }, "probe_after");
  refused([](auto& c) { c.probe_blocks = 65; }, "probe_blocks");
}

}  // namespace
}  // namespace tiercel
