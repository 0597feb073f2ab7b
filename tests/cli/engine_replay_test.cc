// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_replay.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"
#include "cli/commands.h"
#include "cli/replay_run.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

// Small tiers, so that every one of them is used by the head of the trace.
ReplayOptions small_engine() {
  ReplayOptions options;
  options.engine.enabled = true;
  options.engine.device_blocks = 1000;
  options.engine.host_blocks = 2500;
  options.engine.disk_blocks = 4000;
  options.engine.store.bytes_per_second = 20e9;
  return options;
}

EngineReplayReport run_engine_over(size_t requests, const ReplayOptions& options) {
  const SystemClock clock;
  auto report = replay_engine(head_of(whole_trace(), requests), options, ReplayContext{clock});
  EXPECT_TRUE(report.has_value()) << report.error().message();
  if (!report) return {};
  EXPECT_EQ(report->failure, "");
  EXPECT_TRUE(report->complete);
  return *std::move(report);
}

TEST(EngineReplay, EachTierSavesPrefillAndEveryRequestIsAnswered) {
  const EngineReplayReport report = run_engine_over(1500, small_engine());
  ASSERT_EQ(report.runs.size(), 4u);
  for (const EngineRunReport& run : report.runs) {
    SCOPED_TRACE(run.name);
    EXPECT_EQ(first_token_times(run).requests, 1500u);
    EXPECT_EQ(run.refused, 0u);
    // What was neither hit nor loaded was computed, some of it again after a preemption.
    EXPECT_GE(run.computed_tokens + run.device_hit_tokens + run.loaded_tokens, run.prompt_tokens);
    EXPECT_EQ(run.scheduler_wait, Duration(0));
    EXPECT_EQ(run.cache.unbalanced_unholds, 0u);
    EXPECT_EQ(run.cache.refused_frees, 0u);
  }
  EXPECT_GT(report.runs[0].device_hit_tokens, 0u);
  EXPECT_EQ(report.runs[0].loaded_tokens, 0u);
  EXPECT_GT(report.runs[1].loaded_tokens, 0u);
  EXPECT_EQ(report.runs[1].cache.disk_get_blocks, 0u);
  EXPECT_GT(report.runs[2].cache.disk_get_blocks, 0u);
  EXPECT_GT(report.runs[3].cache.get_blocks, 0u);
  for (size_t i = 1; i < report.runs.size(); ++i) {
    EXPECT_GT(report.runs[i].prefill_seconds_saved, report.runs[i - 1].prefill_seconds_saved)
        << report.runs[i].name;
  }
}

TEST(EngineReplay, NoFigureButRealTimeDependsOnTheMachine) {
  const EngineReplayReport one = run_engine_over(500, small_engine());
  const EngineReplayReport two = run_engine_over(500, small_engine());
  for (size_t i = 0; i < one.runs.size(); ++i) {
    const EngineRunReport &a = one.runs[i], &b = two.runs[i];
    EXPECT_EQ(first_token_times(a).p50, first_token_times(b).p50);
    EXPECT_EQ(first_token_times(a).max, first_token_times(b).max);
    EXPECT_EQ(a.virtual_seconds, b.virtual_seconds);
    EXPECT_EQ(a.loaded_tokens, b.loaded_tokens);
    EXPECT_EQ(a.regret.lost, b.regret.lost);
  }
}

TEST(EngineReplay, ChoicesLoseLittleAgainstTheBestKnownAfterwards) {
  const EngineReplayReport report = run_engine_over(3000, small_engine());
  // All of them together: where there are few choices the first ones, made by priors, weigh more.
  double lost = 0, best = 0;
  for (const EngineRunReport& run : report.runs) {
    lost += run.regret.lost;
    best += run.regret.best;
  }
  EXPECT_LE(lost, 0.05 * best);
  const EngineRegret::Sums& all = report.runs.back().regret;
  EXPECT_GT(all.choices, 100u);
  EXPECT_GT(all.lost_loading_nothing, all.lost);
}

TEST(EngineReplay, AnEngineFasterThanItsTiersComputesRatherThanWait) {
  ReplayOptions options = small_engine();
  options.engine.prefill.tokens_per_second = 5e6;
  const EngineReplayReport fast = run_engine_over(500, options);
  const EngineRunReport& run = fast.runs.back();
  EXPECT_GT(run.cache.not_worth_blocks, 0u);
  EXPECT_LE(run.regret.lost, 0.05 * run.regret.best);
  options.engine.choose = false;
  const EngineRunReport all = run_engine_over(500, options).runs.back();
  EXPECT_GT(all.loaded_tokens, run.loaded_tokens);
}

TEST(EngineReplay, AStalledStoreLeavesRequestsThatDoNotNeedItAlone) {
  ReplayOptions options = small_engine();
  options.engine.prefill.tokens_per_second = 200000;  // an engine with time to spare
  options.engine.stall_at = 2min;
  options.engine.stall = kStallForEver;
  const EngineReplayReport report = run_engine_over(2000, options);
  ASSERT_TRUE(report.stall.has_value());
  const StallReport& stall = *report.stall;
  EXPECT_EQ(stall.run.scheduler_wait, Duration(0));
  EXPECT_GT(stall.needing.requests, 20u);
  EXPECT_GT(stall.others.requests, 1000u);
  EXPECT_LE(stall.others.p99, 1.05 * stall.others_without.p99);
  EXPECT_LE(stall.needing.p99, 1.05 * stall.needing_without.p99);
  EXPECT_GE(stall.run.cache.store.opened + stall.run.cache.suspensions, 1u);
  EXPECT_LT(stall.run.cache.get_blocks, report.runs.back().cache.get_blocks);
}

TEST(EngineReplay, AStoreThatComesBackIsUsedAgain) {
  ReplayOptions options = small_engine();
  options.engine.stall_at = 2min;
  options.engine.stall = 1min;
  const EngineReplayReport back = run_engine_over(2000, options);
  options.engine.stall = kStallForEver;
  const EngineReplayReport gone = run_engine_over(2000, options);
  EXPECT_GT(back.stall->run.cache.get_blocks, gone.stall->run.cache.get_blocks + 100);
}

TEST(EngineReplay, FasterArrivalsWaitLonger) {
  ReplayOptions options = small_engine();
  const double once = first_token_times(run_engine_over(500, options).runs.back()).mean;
  options.engine.speedup = 8;
  const EngineRunReport run = run_engine_over(500, options).runs.back();
  EXPECT_GT(first_token_times(run).mean, once);
}

class EngineReplayCommand : public CommandTest {
 protected:
  int run(CommandLineOptions more) {
    CommandLineOptions options{{"trace", testing::source_path("data/conversation_trace.jsonl")},
                               {"limit", "100"},
                               {"engine", "true"}};
    options.insert(options.end(), more.begin(), more.end());
    return run_command(run_replay_command, options);
  }
};

TEST_F(EngineReplayCommand, PrintsOneTable) {
  EXPECT_EQ(run({}), kExitOk);
  for (const char* name : {"device only", "+ host", "+ disk", "+ store"}) {
    EXPECT_NE(out_.str().find(name), std::string::npos) << out_.str();
  }
  EXPECT_EQ(error_.str(), "");
}

TEST_F(EngineReplayCommand, WritesJson) {
  EXPECT_EQ(run({{"json", "-"}, {"engine_stall", "24h"}, {"engine_stall_at", "10s"}}), kExitOk);
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["complete"], true);
  ASSERT_EQ(json["runs"].size(), 4u);
  EXPECT_EQ(json["runs"][3]["first_token_seconds"]["requests"], 100);
  EXPECT_EQ(json["stall"]["run"]["scheduler_wait_us"], 0);
  EXPECT_EQ(json["options"]["engine_stall_seconds"], 86400);
}

TEST_F(EngineReplayCommand, AStopIsExitStatus130) {
  stop_ = true;
  EXPECT_EQ(run({}), kExitInterrupted);
  EXPECT_NE(out_.str().find("INCOMPLETE: 0 of 100 requests"), std::string::npos) << out_.str();
  EXPECT_EQ(out_.str().find("0.000"), std::string::npos) << "nothing was measured\n" << out_.str();
}

TEST_F(EngineReplayCommand, RefusesAPoolIntoWhichNoRequestFits) {
  EXPECT_EQ(run({{"engine_device_blocks", "1"}}), kExitRefused);
  EXPECT_NE(
      error_.str().find("engine_device_blocks is 1: no request of the trace fits into its 512 "
                        "tokens; allowed: at least "),
      std::string::npos)
      << error_.str();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(EngineReplayCommand, SaysHowManyDoNotFit) {
  EXPECT_EQ(run({{"engine_device_blocks", "20"}}), kExitOk);
  EXPECT_NE(out_.str().find("of 100 requests were refused: empty, or more tokens than the 10240"),
            std::string::npos)
      << out_.str();
}

TEST_F(EngineReplayCommand, TakesMemoryByWhatTheTraceCanUse) {
  const std::string most = std::to_string(1u << 26);
  CommandLineOptions huge{{"engine_device_blocks", most},
                          {"engine_host_blocks", most},
                          {"engine_disk_blocks", most},
                          {"json", "-"}};
  memory_ = {32u << 20, "a test"};
  EXPECT_EQ(run(huge), kExitOk) << error_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["options"]["engine_host_blocks"], 1u << 26);
  memory_ = {64u << 10, "a test"};
  EXPECT_EQ(run(huge), kExitRefused);
  EXPECT_NE(error_.str().find("as far as the trace can use them"), std::string::npos)
      << error_.str();
}

TEST_F(EngineReplayCommand, RefusesStepsTooSmallForThoseWhoRun) {
  EXPECT_EQ(run({{"engine_step_tokens", "100"}}), kExitRefused);
  EXPECT_NE(
      error_.str().find("engine_step_tokens is 100; allowed: 256 (engine_running_max) to 1048576"),
      std::string::npos)
      << error_.str();
  EXPECT_EQ(run({{"engine_step_tokens", "100"}, {"engine_running_max", "100"}}), kExitOk);
}

TEST_F(EngineReplayCommand, RefusesWhatCannotBe) {
  EXPECT_EQ(run({{"engine_speedup", "0"}}), kExitRefused);
  EXPECT_NE(error_.str().find("engine_speedup"), std::string::npos) << error_.str();
  EXPECT_EQ(run({{"engine_store_bandwidth", "0"}}), kExitRefused);
  EXPECT_EQ(run({{"engine_host_blocks", "1"}}), kExitRefused);
}

}  // namespace
}  // namespace tiercel
