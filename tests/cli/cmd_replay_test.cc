// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"
#include "cli/commands.h"
#include "support/paths.h"

namespace tiercel {
namespace {

class ReplayCommand : public CommandTest {
 protected:
  int run(const CommandLineOptions& options) { return run_command(run_replay_command, options); }
  int run_small(CommandLineOptions more = {}) {
    CommandLineOptions options{{"trace", testing::source_path("data/conversation_trace.jsonl")},
                               {"limit", "400"},
                               {"host_blocks", "500"},
                               {"block_bytes", "512"}};
    options.insert(options.end(), more.begin(), more.end());
    return run(options);
  }
};

TEST_F(ReplayCommand, PrintsASummaryAndNothingElse) {
  EXPECT_EQ(run_small(), kExitOk);
  EXPECT_NE(out_.str().find("mismatches"), std::string::npos) << out_.str();
  EXPECT_EQ(error_.str(), "");
}

TEST_F(ReplayCommand, WritesJsonBesideTheSummary) {
  EXPECT_EQ(run_small({{"json", folder_.path("out.json")}}), kExitOk);
  const auto json = nlohmann::json::parse(testing::read_file(folder_.path("out.json")));
  EXPECT_EQ(json["requests"], 400);
  EXPECT_EQ(json["mismatches"], 0);
  EXPECT_NE(out_.str().find("mismatches"), std::string::npos);
}

TEST_F(ReplayCommand, WritesOnlyJsonToStandardOutput) {
  EXPECT_EQ(run_small({{"json", "-"}}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["complete"], true);
}

TEST_F(ReplayCommand, MismatchesAreExitStatus1) {
  EXPECT_EQ(run_small({{"store", "faulty+memory:?fault_corrupt=0.2"}, {"verify", "false"}}),
            kExitFailed);
  EXPECT_NE(error_.str().find("blocks were not what they must be"), std::string::npos);
}

TEST_F(ReplayCommand, AStopIsExitStatus130WithWhatThereIs) {
  stop_ = true;
  EXPECT_EQ(run_small(), kExitInterrupted);
  EXPECT_NE(out_.str().find("INCOMPLETE"), std::string::npos);
}

TEST_F(ReplayCommand, WhatIsRefusedIsExitStatus2AndPrintsNoFigures) {
  const std::string broken = folder_.write("broken.jsonl", "{\n");
  const std::vector<CommandLineOptions> refused{
      {},
      {{"trace", folder_.path("missing")}},
      {{"trace", broken}},
      {{"trace", broken}, {"block_bytes", "0"}},
      {{"trace", broken}, {"policy", "best"}},
  };
  for (const CommandLineOptions& options : refused) {
    EXPECT_EQ(run(options), kExitRefused);
    EXPECT_EQ(out_.str(), "");
    EXPECT_TRUE(error_.str().starts_with("tiercel replay: ")) << error_.str();
    EXPECT_TRUE(error_.str().ends_with("\n")) << error_.str();
  }
  EXPECT_EQ(run_small({{"store", "unknown:"}}), kExitRefused);
  EXPECT_EQ(run_small({{"json", folder_.path("no/such/folder.json")}}), kExitRefused);
  memory_ = {1u << 20, "available memory"};
  EXPECT_EQ(run_small({{"host_blocks", "100000"}}), kExitRefused);
  EXPECT_NE(error_.str().find("host_blocks is 100000"), std::string::npos) << error_.str();
}

TEST_F(ReplayCommand, BadLinesAreCountedIfAskedFor) {
  const std::string path = folder_.write(
      "trace.jsonl",
      "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [1]}\nbad\n");
  EXPECT_EQ(run({{"trace", path}}), kExitRefused);
  EXPECT_NE(error_.str().find("trace.jsonl:2: broken JSON"), std::string::npos) << error_.str();
  EXPECT_EQ(run({{"trace", path}, {"skip_bad_lines", "true"}}), kExitOk);
  EXPECT_NE(out_.str().find("1 bad lines skipped"), std::string::npos) << out_.str();
}

TEST(StoresCommand, ListsStoresAndWrappersWithTheirOptions) {
  std::ostringstream out, error;
  const SystemClock clock;
  EXPECT_EQ(run_stores_command({.out = out, .error = error, .clock = clock}), kExitOk);
  EXPECT_NE(out.str().find("memory:"), std::string::npos);
  EXPECT_NE(out.str().find("faulty+"), std::string::npos);
  EXPECT_NE(out.str().find("fault_corrupt"), std::string::npos);
}

}  // namespace
}  // namespace tiercel
