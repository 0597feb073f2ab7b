// SPDX-License-Identifier: Apache-2.0
//
// What --json does to files, through the commands that have it.
#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "cli/command_fixture.h"
#include "cli/commands.h"
#include "support/paths.h"

namespace tiercel {
namespace {

namespace fs = std::filesystem;

class ResultFileOfCommand : public CommandTest {
 protected:
  ResultFileOfCommand()
      : trace_(folder_.write("trace.jsonl",
                             "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, "
                             "\"hash_ids\": [1]}\n")) {}

  int replay(const std::string& json, CommandLineOptions more = {}) {
    CommandLineOptions options{{"trace", trace_}, {"metadata_only", "true"}, {"json", json}};
    options.insert(options.end(), more.begin(), more.end());
    return run_command(run_replay_command, options);
  }
  int bench(const std::string& json, CommandLineOptions more = {}) {
    CommandLineOptions options{
        {"subjects", "checksum"}, {"runs", "1"}, {"checksum_bytes", "1000"}, {"json", json}};
    options.insert(options.end(), more.begin(), more.end());
    return run_command(run_bench_command, options);
  }
  // Names in the folder: nothing may be left beside the result.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder_.path(""))) {
      result.push_back(entry.path().filename());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  const std::string trace_;
};

TEST_F(ResultFileOfCommand, TheTraceIsNotOverwritten) {
  const std::string before = testing::read_file(trace_);
  EXPECT_EQ(replay(trace_), kExitRefused);
  EXPECT_NE(error_.str().find("trace"), std::string::npos) << error_.str();
  EXPECT_EQ(testing::read_file(trace_), before);
  // Under another name too.
  fs::create_symlink(trace_, folder_.path("link"));
  EXPECT_EQ(replay(folder_.path("link")), kExitRefused);
  EXPECT_EQ(testing::read_file(trace_), before);
}

TEST_F(ResultFileOfCommand, TheConfigurationIsNotOverwritten) {
  const std::string config = folder_.write("tiercel.toml", "runs = 1\n");
  EXPECT_EQ(bench(config, {{"config", config}}), kExitRefused);
  EXPECT_EQ(testing::read_file(config), "runs = 1\n");
  const std::string other = folder_.write("replay.toml", "ranks = 1\n");
  EXPECT_EQ(replay(other, {{"config", other}}), kExitRefused);
  EXPECT_EQ(testing::read_file(other), "ranks = 1\n");
}

TEST_F(ResultFileOfCommand, AnEarlierFileStaysWhenTheRunIsRefused) {
  const std::string json = folder_.write("out.json", "earlier");
  memory_ = {1000, "a test"};
  EXPECT_EQ(replay(json, {{"host_blocks", "100000"}}), kExitRefused);
  EXPECT_EQ(testing::read_file(json), "earlier");
  EXPECT_EQ(bench(json, {{"subjects", "index"}}), kExitRefused);
  EXPECT_EQ(testing::read_file(json), "earlier");
  EXPECT_EQ(names(), (std::vector<std::string>{"out.json", "trace.jsonl"}));
}

TEST_F(ResultFileOfCommand, AnEarlierFileIsReplacedWholeAndKeepsItsRights) {
  const std::string json = folder_.write("out.json", std::string(100'000, 'x'));
  fs::permissions(json, fs::perms(0640));
  const std::string link = folder_.path("link.json");
  fs::create_symlink("out.json", link);
  EXPECT_EQ(replay(link), kExitOk) << error_.str();
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(nlohmann::json::parse(testing::read_file(json))["requests"], 1);
  EXPECT_EQ(fs::status(json).permissions(), fs::perms(0640));
  EXPECT_EQ(names(), (std::vector<std::string>{"link.json", "out.json", "trace.jsonl"}));
}

TEST_F(ResultFileOfCommand, AFullDeviceIsExitStatus1) {
  EXPECT_EQ(replay("/dev/full"), kExitFailed);
  EXPECT_NE(error_.str().find("/dev/full"), std::string::npos) << error_.str();
  EXPECT_EQ(bench("/dev/full"), kExitFailed);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(ResultFileOfCommand, WhatSomebodyHasOpenIsWrittenToAndNotReplaced) {
  const std::string path = folder_.write("open.txt", "earlier\n");
  const FileDescriptor open(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(open);
  EXPECT_EQ(replay("/proc/self/fd/" + std::to_string(open.get())), kExitOk) << error_.str();
  // The file that is open is still the one with this name.
  std::string start(10, '\0');
  EXPECT_EQ(::pread(open.get(), start.data(), start.size(), 0), 10);
  EXPECT_EQ(start, "earlier\n{\n");
  EXPECT_TRUE(testing::read_file(path).starts_with(start));
}

TEST_F(ResultFileOfCommand, WhatCannotBeWrittenIsRefusedBeforeAnythingRuns) {
  for (const std::string& bad : {folder_.path("no/such/folder.json"), folder_.path(""),
                                 std::string(), folder_.path(std::string(300, 'n'))}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(bench(bad), kExitRefused);
    EXPECT_EQ(out_.str(), "");
    EXPECT_EQ(replay(bad), kExitRefused);
    EXPECT_EQ(out_.str(), "");
  }
}

TEST_F(ResultFileOfCommand, ControlCharactersOfANameDoNotReachTheTerminal) {
  const std::string strange = folder_.write("a\x1b[31m", testing::read_file(trace_));
  EXPECT_EQ(replay("-", {{"trace", strange}}), kExitOk);
  EXPECT_EQ(replay(folder_.path("out.json"), {{"trace", strange}}), kExitOk);
  EXPECT_EQ(out_.str().find('\x1b'), std::string::npos) << out_.str();
  for (const std::string& bad :
       {strange + "missing", folder_.write("b\x1b", ""), folder_.write("c\x1b", "bad\n")}) {
    EXPECT_EQ(replay("-", {{"trace", bad}}), kExitRefused);
    EXPECT_EQ(error_.str().find('\x1b'), std::string::npos) << error_.str();
  }
  for (const std::string& bad : {folder_.path("no\x1b[31m/out.json"), folder_.path("a\nb/out")}) {
    EXPECT_EQ(bench(bad), kExitRefused);
    EXPECT_EQ(error_.str().find('\x1b'), std::string::npos) << error_.str();
    EXPECT_EQ(error_.str().find('\n'), error_.str().size() - 1) << error_.str();
  }
}

}  // namespace
}  // namespace tiercel
