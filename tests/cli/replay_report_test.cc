// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_report.h"

#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/replay_options.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

ReplayReport sample() {
  ReplayReport report;
  report.complete = true;
  report.requests = 12;
  report.blocks = 2000;
  report.hit_blocks = 500;
  report.loaded_blocks = 499;
  report.ceiling_hit_blocks = 1000;
  report.optimum_hit_blocks = 750;
  report.tokens_saved = 1234567;
  report.tokens = 9999999;
  report.tiers = {{"host", 400, 10, 20}, {"store", 100, 30, 40}};
  return report;
}

TEST(ReplayReport, PercentilesAreValuesThatOccurred) {
  std::vector<uint64_t> nanoseconds;
  for (uint64_t i = 100; i > 0; --i) nanoseconds.push_back(i * 1000);
  const TimesReport times = summarize_times(nanoseconds);
  EXPECT_EQ(times.p50, 50);
  EXPECT_EQ(times.p99, 99);
  EXPECT_EQ(times.max, 100);
  std::vector<uint64_t> one{7000};
  EXPECT_EQ(summarize_times(one).p50, 7);
  std::vector<uint64_t> none;
  EXPECT_EQ(summarize_times(none).max, 0);
}

TEST(ReplayReport, RatiosOfNothingAreZero) {
  EXPECT_EQ(ReplayReport().hit_ratio(), 0);
  EXPECT_EQ(sample().hit_ratio(), 0.25);
  EXPECT_EQ(sample().ceiling_hit_ratio(), 0.5);
}

TEST(ReplayReport, JsonHoldsTheFigures) {
  const auto json = nlohmann::json::parse(to_json(sample()));
  EXPECT_EQ(json["requests"], 12);
  EXPECT_EQ(json["hit_blocks"], 500);
  EXPECT_EQ(json["loaded_blocks"], 499);
  EXPECT_EQ(json["hit_ratio"], 0.25);
  EXPECT_EQ(json["ceiling_hit_ratio"], 0.5);
  EXPECT_EQ(json["optimum_hit_ratio"], 0.375);
  EXPECT_EQ(json["tiers"]["store"]["bytes_written"], 40);
  EXPECT_EQ(json["complete"], true);
}

TEST(ReplayReport, AnOptimumThatWasNotAskedForIsNull) {
  ReplayReport report = sample();
  report.optimum_hit_blocks.reset();
  EXPECT_TRUE(nlohmann::json::parse(to_json(report))["optimum_hit_ratio"].is_null());
  EXPECT_EQ(to_text(report).find("optimum"), std::string::npos);
  EXPECT_NE(to_text(sample()).find("37.50 %"), std::string::npos);
}

TEST(ReplayReport, TellsWhatTheStoresOfTheRanksSaid) {
  ReplayReport report = sample();
  report.store_reasons = {"", ""};
  EXPECT_EQ(to_text(report).find("  store  "), std::string::npos) << "nothing to tell";
  report.store_reasons = {"no master at a:1", "", "no master at a:1", "no licence"};
  report.cache.store = {StoreCondition::kOpen, Code::kUnavailable, 2, 7};
  const std::string text = to_text(report);
  EXPECT_NE(text.find("open (unavailable); given up 2 times, 7 calls"), std::string::npos) << text;
  const size_t first = text.find("of rank 0              no master at a:1");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("no master", first + 30), std::string::npos) << "said once: " << text;
  EXPECT_NE(text.find("of rank 3              no licence"), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["store_reasons"],
            (nlohmann::json{"no master at a:1", "", "no master at a:1", "no licence"}));
}

// Names in the first column of the table under "## JSON" in the page.
std::set<std::string> documented_names() {
  std::istringstream page(testing::read_file(testing::source_path("docs/replay.md")));
  std::set<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line == "## JSON";
    if (!inside || !line.starts_with("| `")) continue;
    names.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return names;
}

TEST(ReplayReport, EveryNameOfTheJsonStandsInItsPageAndNoOther) {
  const auto json = nlohmann::json::parse(to_json(sample()));
  std::set<std::string> names;
  for (const auto& [name, value] : json.items()) names.insert(name);
  EXPECT_EQ(names, documented_names());
}

TEST(ReplayReport, EveryOptionThatShapesTheRunStandsInTheJson) {
  const auto options = nlohmann::json::parse(to_json(sample()))["options"];
  const OptionTable table = replay_option_table();
  for (const Option& option : table.options()) {
    if (option.name == "json" || option.name == "config") continue;
    if (option.name.starts_with("engine")) continue;  // of another report
    const bool is_duration = option.type == OptionType::kDuration;
    EXPECT_TRUE(options.contains(option.name + (is_duration ? "_seconds" : ""))) << option.name;
  }
}

TEST(ReplayReport, TextThatIsNotUtf8DoesNotBreakTheJson) {
  ReplayReport report = sample();
  report.options.trace = "\xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(to_json(report)));
}

TEST(ReplayReport, TheTextShowsRatiosAndGroupsDigits) {
  const std::string text = to_text(sample());
  EXPECT_NE(text.find("25.00 %"), std::string::npos) << text;
  EXPECT_NE(text.find("1,234,567"), std::string::npos) << text;
  EXPECT_EQ(text.find("INCOMPLETE"), std::string::npos) << text;
}

TEST(ReplayReport, TheTextSaysWhatWentWrong) {
  ReplayReport report = sample();
  report.complete = false;
  report.failure = "no end of load";
  report.mismatches = 3;
  report.first_mismatch = "request of line 7";
  const std::string text = to_text(report);
  EXPECT_NE(text.find("INCOMPLETE"), std::string::npos) << text;
  EXPECT_NE(text.find("no end of load"), std::string::npos) << text;
  EXPECT_NE(text.find("request of line 7"), std::string::npos) << text;
}

// Three were lost: one has come back twice, one is on its way, one will not come any more.
ReplayReport with_losses() {
  ReplayReport report = sample();
  report.killed_ranks = 2;
  report.cache.memory_losses = 4;
  report.ranks.resize(3);
  report.ranks[0] = {
      .state = RankState::kUp, .pid = 7, .starts = 3, .times_up = 3, .last_error = "killed"};
  report.ranks[1] = {.state = RankState::kRestarting,
                     .starts = 2,
                     .times_up = 1,
                     .last_error = "unavailable: not yet"};
  report.ranks[2] = {.state = RankState::kLost,
                     .starts = 4,
                     .times_up = 1,
                     .is_given_up = true,
                     .last_error = "unavailable: no such program"};
  return report;
}

TEST(ReplayReport, TheTextCountsOnlyRanksThatCameBackAndNamesTheOthersWithTheirReason) {
  const std::string text = to_text(with_losses());
  EXPECT_NE(text.find("4  2 killed; 2 came back, with empty host memory"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("rank 0"), std::string::npos) << text;
  EXPECT_NE(text.find("restarting after 2 starts: unavailable: not yet"), std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
  EXPECT_NE(text.find("GIVEN UP after 4 starts: unavailable: no such program"), std::string::npos)
      << text;
  EXPECT_EQ(to_text(sample()).find("ranks lost"), std::string::npos);
}

TEST(ReplayReport, TheJsonTellsHowEachRankInAProcessEnded) {
  const auto ranks = nlohmann::json::parse(to_json(with_losses()))["ranks"];
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(ranks[0]["state"], "up");
  EXPECT_EQ(ranks[0]["comebacks"], 2);
  EXPECT_EQ(ranks[0]["given_up"], false);
  EXPECT_EQ(ranks[2]["rank"], 2);
  EXPECT_EQ(ranks[2]["state"], "lost");
  EXPECT_EQ(ranks[2]["starts"], 4);
  EXPECT_EQ(ranks[2]["comebacks"], 0);
  EXPECT_EQ(ranks[2]["given_up"], true);
  EXPECT_EQ(ranks[2]["reason"], "unavailable: no such program");
  EXPECT_TRUE(nlohmann::json::parse(to_json(sample()))["ranks"].empty());
}

TEST(ReplayReport, PeakMemoryIsThatOfThisProcess) { EXPECT_GT(peak_rss_bytes(), 1u << 20); }

}  // namespace
}  // namespace tiercel
