// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/bench_measure.h"
#include "cli/command_fixture.h"
#include "cli/commands.h"
#include "support/mooncake_pool.h"
#include "support/paths.h"

namespace tiercel {
namespace {

class Bench : public CommandTest {
 protected:
  int run(const CommandLineOptions& options) { return run_command(run_bench_command, options); }
  // One subject, as small as it goes.
  int run_small(const std::string& subjects, CommandLineOptions more = {}) {
    CommandLineOptions options{{"subjects", subjects},
                               {"runs", "1"},
                               {"tokens", "256"},
                               {"index_blocks", "500"},
                               {"checksum_bytes", "5000"},
                               {"host_bytes", "64KiB"},
                               {"host_block_bytes", "5000"},
                               {"ring_round_trips", "20"},
                               {"cache_blocks", "64"},
                               {"disk_path", folder_.path(".")},
                               {"disk_sizes", "4KiB"},
                               {"disk_file_bytes", "256KiB"},
                               {"disk_queue_depth", "4"},
                               {"disk_reopen_blocks", "100"},
                               {"mooncake_rounds", "1"},
                               {"mooncake_batch_bytes", "1MiB"},
                               {"mooncake_round_trips", "2"},
                               {"mooncake_faults", "1"},
                               {"mooncake_arenas", "1MiB"}};
    options.insert(options.end(), more.begin(), more.end());
    return run(options);
  }
};

void expect_documented_fields(const nlohmann::json& figure) {
  std::set<std::string> fields;
  for (const auto& [name, value] : figure.items()) fields.insert(name);
  EXPECT_EQ(fields,
            (std::set<std::string>{"name", "value", "unit", "limit", "ratio", "conditions"}));
  EXPECT_TRUE(figure["name"].is_string());
  EXPECT_TRUE(figure["unit"].is_string());
  EXPECT_TRUE(figure["value"].is_number());
  EXPECT_GE(figure["value"].get<double>(), 0);
  EXPECT_TRUE(figure["conditions"].is_object());
  EXPECT_EQ(figure["limit"].is_null(), figure["ratio"].is_null());
  if (!figure["limit"].is_null()) {
    EXPECT_GT(figure["limit"].get<double>(), 0);
    EXPECT_GT(figure["ratio"].get<double>(), 0);
  }
}

class BenchOfSubject : public Bench, public ::testing::WithParamInterface<std::string_view> {};

TEST_P(BenchOfSubject, RunsAtTinySizesAndSaysWhatIsDocumented) {
  const std::string subject(GetParam());
  CommandLineOptions more{{"json", "-"}};
  if (subject == "mooncake") {
    TIERCEL_NEEDS_MOONCAKE();
    more.emplace_back("mooncake", testing::source_path("scripts/mooncake-dev"));
  }
  ASSERT_EQ(run_small(subject, more), kExitOk) << error_.str();
  const auto list = nlohmann::json::parse(out_.str());
  ASSERT_TRUE(list.is_array());
  ASSERT_FALSE(list.empty());
  for (const auto& figure : list) {
    SCOPED_TRACE(figure.dump());
    expect_documented_fields(figure);
    EXPECT_EQ(figure["name"].get<std::string>().rfind(subject + ".", 0), 0u);
  }
}

std::vector<std::string_view> subject_names() {
  std::vector<std::string_view> names;
  for (const BenchSubject& subject : bench_subjects()) names.push_back(subject.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, BenchOfSubject, ::testing::ValuesIn(subject_names()),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_F(Bench, NamesNoFigureTwice) {
  ASSERT_EQ(run_small("key,checksum,index,host,copy,ring,cache,disk", {{"json", "-"}}), kExitOk)
      << error_.str();
  std::set<std::string> names;
  for (const auto& figure : nlohmann::json::parse(out_.str())) {
    EXPECT_TRUE(names.insert(figure["name"]).second) << figure["name"];
  }
}

TEST_F(Bench, WritesJsonBesideTheText) {
  ASSERT_EQ(run_small("key", {{"json", folder_.path("out.json")}}), kExitOk) << error_.str();
  const auto list = nlohmann::json::parse(testing::read_file(folder_.path("out.json")));
  ASSERT_FALSE(list.empty());
  for (const auto& figure : list) {
    EXPECT_NE(out_.str().find(figure["name"].get<std::string>()), std::string::npos);
  }
}

TEST_F(Bench, RefusesAnUnknownSubjectAndNamesTheNearest) {
  EXPECT_EQ(run({{"subjects", "key,indx"}}), kExitRefused);
  EXPECT_NE(error_.str().find("did you mean 'index'"), std::string::npos) << error_.str();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Bench, RefusesASubjectThatIsNamedTwice) {
  EXPECT_EQ(run({{"subjects", "key,host,key"}}), kExitRefused);
  EXPECT_NE(error_.str().find("\"key\" twice"), std::string::npos) << error_.str();
  // As plain words and as an option: neither is dropped silently.
  EXPECT_EQ(run({{"subjects", "host"}, {"subjects", "key"}}), kExitRefused);
  EXPECT_NE(error_.str().find("subjects"), std::string::npos) << error_.str();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Bench, RefusesSizesThatDoNotFitTogether) {
  EXPECT_EQ(run({{"tokens", "15"}}), kExitRefused);
  EXPECT_NE(error_.str().find("tokens is 15"), std::string::npos) << error_.str();
  EXPECT_EQ(run({{"cache_blocks", "6249"}}), kExitRefused);
  EXPECT_NE(error_.str().find("cache_blocks is 6249"), std::string::npos) << error_.str();
}

TEST_F(Bench, SaysWhichSizeDoesNotFitIntoMemory) {
  memory_ = MemoryLimit{1000, "a test"};
  for (const auto& [subject, option] :
       std::map<std::string, std::string>{{"checksum", "checksum_b"},
                                          {"index", "index_b"},
                                          {"host", "host_b"},
                                          {"copy", "host_b"},
                                          {"cache", "cache_b"},
                                          {"disk", "disk_s"},
                                          {"mooncake", "mooncake_b"}}) {
    // Before anything runs, also what would fit.
    EXPECT_EQ(run_small("key," + subject), kExitRefused);
    EXPECT_EQ(out_.str(), "");
    EXPECT_NE(error_.str().find(subject + ": "), std::string::npos) << error_.str();
    EXPECT_NE(error_.str().find(option), std::string::npos) << error_.str();
    EXPECT_NE(error_.str().find("a test"), std::string::npos) << error_.str();
  }
}

TEST_F(Bench, CopyNeedsBlocksOfTwoRuns) {
  EXPECT_EQ(run_small("copy", {{"host_block_bytes", "512"}}), kExitOk) << error_.str();
  EXPECT_EQ(run_small("copy", {{"host_block_bytes", "511"}}), kExitRefused);
  EXPECT_NE(error_.str().find("host_block_bytes is 511"), std::string::npos) << error_.str();
}

TEST_F(Bench, MooncakeWithoutAPoolSaysHowToHaveOne) {
  ASSERT_EQ(run_small("mooncake", {{"json", "-"}}), kExitOk) << error_.str();
  EXPECT_EQ(nlohmann::json::parse(out_.str()), nlohmann::json::array());
  EXPECT_NE(error_.str().find("--mooncake scripts/mooncake-dev"), std::string::npos)
      << error_.str();
}

TEST_F(Bench, MooncakeFailsWhereThereIsNoPool) {
  for (const auto& [given, words] : std::map<std::string, std::string>{
           {"/bin/false", "has started no pool"},
           {"guard+mooncake://127.0.0.1:1", "guard"},
           {"mooncake://127.0.0.1:1?python=/nonexistent/python", "/nonexistent/python"}}) {
    EXPECT_EQ(run_small("mooncake", {{"mooncake", given}}), kExitFailed);
    EXPECT_NE(error_.str().find(words), std::string::npos) << error_.str();
  }
}

TEST_F(Bench, MooncakeLeavesAPoolAloneThatIsNotItsOwn) {
  TIERCEL_NEEDS_MOONCAKE();
  const auto pool = testing::MooncakePool::start();
  ASSERT_NE(pool, nullptr);
  ASSERT_EQ(run_small("mooncake", {{"json", "-"}, {"mooncake", pool->url()}}), kExitOk)
      << error_.str();
  std::map<std::string, nlohmann::json> figures;
  for (const auto& figure : nlohmann::json::parse(out_.str())) figures[figure["name"]] = figure;
  EXPECT_EQ(figures.count("mooncake.dead_master.first"), 0u);
  EXPECT_EQ(figures.count("mooncake.frozen_master.first"), 0u);
  ASSERT_EQ(figures.count("mooncake.exists.300"), 1u);
  EXPECT_EQ(figures["mooncake.exists.300"]["conditions"]["messages_per_question"], "1");
  EXPECT_NE(error_.str().find("a dead pool"), std::string::npos) << error_.str();
}

TEST_F(Bench, DiskRefusesFilesThatDoNotFitOntoTheDisk) {
  EXPECT_EQ(run_small("key,disk", {{"disk_file_bytes", "900GB"}}), kExitRefused);
  EXPECT_EQ(out_.str(), "");
  EXPECT_NE(error_.str().find("disk_file_bytes is "), std::string::npos) << error_.str();
  EXPECT_NE(error_.str().find(" free"), std::string::npos) << error_.str();
  EXPECT_EQ(run_small("disk", {{"disk_sizes", "1MiB"}}), kExitRefused);
  EXPECT_NE(error_.str().find("too little for 1MiB"), std::string::npos) << error_.str();
  EXPECT_EQ(run_small("disk", {{"disk_path", folder_.path("missing")}}), kExitRefused);
  EXPECT_NE(error_.str().find("disk_path is "), std::string::npos) << error_.str();
}

TEST_F(Bench, RefusesSizesOfPayloadsThatAreNone) {
  for (const char* sizes : {"4KiB,", "4KiB,x", "0", "4KiB,4096", "2GiB"}) {
    EXPECT_EQ(run_small("disk", {{"disk_sizes", sizes}}), kExitRefused) << sizes;
    EXPECT_NE(error_.str().find("disk_sizes has "), std::string::npos) << error_.str();
  }
}

TEST_F(Bench, DiskLeavesNothingBehind) {
  EXPECT_EQ(run_small("disk"), kExitOk) << error_.str();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path(".")));
}

TEST_F(Bench, RefusesAJsonFileThatCannotBeWrittenBeforeItRuns) {
  EXPECT_EQ(run_small("key", {{"json", folder_.path("no/such/folder")}}), kExitRefused);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Bench, SaysThatItHasStartedOnceThereWillBeFigures) {
  // Until then a signal ends the tool at once, afterwards it prints what there is.
  std::atomic<bool> started{false};
  const CommandContext context{
      .out = out_, .error = error_, .clock = clock_, .memory = memory_, .started = &started};
  EXPECT_EQ(run_bench_command({{"subjects", "kye"}}, context), kExitRefused);
  EXPECT_FALSE(started);
  EXPECT_EQ(run_bench_command({{"subjects", "key"}, {"runs", "1"}, {"tokens", "64"}}, context),
            kExitOk);
  EXPECT_TRUE(started);
}

TEST_F(Bench, StoppedBeforeItStartsRunsNothing) {
  stop_ = true;
  EXPECT_EQ(run_small("key"), kExitInterrupted);
  EXPECT_EQ(out_.str(), "");
}

// A clock that stops the run once it has been asked often enough.
class StoppingClock final : public Clock {
 public:
  StoppingClock(std::atomic<bool>& stop, int readings) : stop_(stop), left_(readings) {}
  TimePoint now() const override {
    if (--left_ == 0) stop_ = true;
    return clock_.now();
  }

 private:
  const SystemClock clock_;
  std::atomic<bool>& stop_;
  mutable std::atomic<int> left_;
};

TEST_F(Bench, FiguresThatWereNotMeasuredAreLeftOutAfterAStop) {
  BenchOptions options;
  options.runs = 10'000;
  options.tokens = 256;
  options.checksum_bytes = 5000;
  options.index_blocks = 500;
  options.disk_path = folder_.path(".");
  options.disk_sizes = {4096};
  options.disk_file_bytes = 256u << 10;
  options.disk_reopen_blocks = 100;
  options.host_bytes = 64 << 10;
  options.host_block_bytes = 5000;
  options.ring_round_trips = 20;
  options.cache_blocks = 64;
  for (const BenchSubject& subject : bench_subjects()) {
    // The stop comes at every early moment.
    for (int readings = 1; readings < 30; ++readings) {
      std::atomic<bool> stop{false};
      const StoppingClock clock(stop, readings);
      const auto figures = run_bench_subject(subject, options, BenchContext{clock, {}, &stop, {}});
      ASSERT_TRUE(figures.has_value()) << figures.error().message();
      for (const BenchFigure& figure : *figures) {
        EXPECT_GT(figure.value, 0) << figure.name << " after " << readings;
        EXPECT_NE(figure.conditions.front(), (std::pair<std::string, std::string>("runs", "0")));
      }
    }
  }
}

TEST(BenchMeasure, AStopEndsTheTurnsBeforeTheNextHalf) {
  const SystemClock clock;
  std::atomic<bool> stop{false};
  const BenchContext context{clock, {}, &stop, {}};
  std::string order;
  const Pairs pairs = in_turns(
      9, context,
      [&] {
        order += 'm';
        stop = order.size() >= 4;
        return 1.0;
      },
      [&] {
        order += 'l';
        return 1.0;
      });
  EXPECT_EQ(order, "mllm");
  EXPECT_EQ(pairs.measured.size(), 1u);
  stop = false;
  order = "mm";
  const Pairs cut = in_turns(
      9, context, [&] { return stop = true, 1.0; }, [&] { return order += 'l', 1.0; });
  EXPECT_EQ(order, "mm");
  EXPECT_TRUE(cut.measured.empty());
}

TEST(BenchMeasure, SpreadIsQuartilesOfTheValues) {
  const Spread spread = spread_of({5, 1, 4, 2, 3});
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.quarter, 2);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.three_quarters, 4);
  EXPECT_EQ(spread.high, 5);
  EXPECT_EQ(spread_of({}).median, 0);
}

TEST(BenchMeasure, RatioIsTheMedianOfThePairs) {
  const BenchFigure figure = paired_figure("n", "us", Pairs{{2, 30, 6}, {1, 10, 4}}, "");
  EXPECT_EQ(figure.value, 6);
  EXPECT_EQ(*figure.limit, 4);
  EXPECT_EQ(*figure.ratio, 2);
}

TEST(BenchMeasure, TurnsAlternateAndTheFirstPairDoesNotCount) {
  const SystemClock clock;
  const BenchContext context{clock, {}, nullptr, {}};
  std::string order;
  double number = 0;
  const Pairs pairs = in_turns(
      3, context,
      [&] {
        order += 'm';
        return ++number;
      },
      [&] {
        order += 'l';
        return ++number;
      });
  EXPECT_EQ(order, "mllmmllm");
  EXPECT_EQ(pairs.measured, (std::vector<double>{4, 5, 8}));
  EXPECT_EQ(pairs.limit, (std::vector<double>{3, 6, 7}));
}

}  // namespace
}  // namespace tiercel
