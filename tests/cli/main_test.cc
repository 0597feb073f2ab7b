// SPDX-License-Identifier: Apache-2.0
//
// The tool as a user runs it.
#include <array>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

struct Outcome {
  int status = -1;
  std::string text;  // both outputs
};

Outcome run_tool(const std::string& arguments) {
  const std::string command = testing::binary_path("tiercel") + " " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

bool contains(const Outcome& outcome, std::string_view text) {
  return outcome.text.find(text) != std::string::npos;
}

const std::string kSmall = "replay --trace " +
                           testing::source_path("data/conversation_trace.jsonl") +
                           " --limit 200 --host-blocks 300 --block-bytes 256 ";

TEST(Tool, WithoutArgumentsPrintsHelp) {
  const Outcome outcome = run_tool("");
  EXPECT_EQ(outcome.status, kExitOk);
  EXPECT_TRUE(contains(outcome, "replay")) << outcome.text;
}

TEST(Tool, HelpNamesEveryOptionWithRangeAndDefault) {
  const Outcome outcome = run_tool("replay --help");
  EXPECT_EQ(outcome.status, kExitOk);
  EXPECT_TRUE(contains(outcome, "--host-blocks")) << outcome.text;
  EXPECT_TRUE(contains(outcome, "[10000]")) << outcome.text;
  EXPECT_TRUE(contains(outcome, "lru, s3fifo")) << outcome.text;
}

TEST(Tool, ReplaysWithOptionsInEveryForm) {
  EXPECT_EQ(run_tool(kSmall + "--ranks=2 --no-verify").status, kExitOk);
  EXPECT_EQ(run_tool(kSmall + "--verify=true --metadata-only").status, kExitOk);
  // The last one counts.
  EXPECT_EQ(run_tool(kSmall + "--ranks 999 --ranks 1").status, kExitOk);
}

TEST(Tool, UnknownArgumentsAreRefusedWithTheNearestOne) {
  const Outcome option = run_tool(kSmall + "--host-bloks 7");
  EXPECT_EQ(option.status, kExitRefused);
  EXPECT_TRUE(contains(option, "unknown argument '--host-bloks'; did you mean '--host-blocks'?"))
      << option.text;
  const Outcome command = run_tool("repaly");
  EXPECT_EQ(command.status, kExitRefused);
  EXPECT_TRUE(contains(command, "did you mean 'replay'?")) << command.text;
  EXPECT_EQ(run_tool("version 7").status, kExitRefused);
  EXPECT_EQ(run_tool(kSmall + "--ranks").status, kExitRefused);
}

TEST(Tool, BadValuesAreRefused) {
  const Outcome outcome = run_tool(kSmall + "--block-bytes 0");
  EXPECT_EQ(outcome.status, kExitRefused);
  EXPECT_TRUE(contains(outcome, "block_bytes is \"0\"; allowed: ")) << outcome.text;
  EXPECT_EQ(run_tool(kSmall + "--metadata-only=maybe").status, kExitRefused);
}

TEST(Tool, StoresAndVersionAnswer) {
  EXPECT_TRUE(contains(run_tool("stores"), "memory:"));
  const Outcome version = run_tool("version");
  EXPECT_EQ(version.status, kExitOk);
  EXPECT_TRUE(contains(version, "tiercel ")) << version.text;
}

TEST(Tool, CtrlCPrintsWhatThereIsAndExits130) {
  // The trace comes through a pipe with a name. Once the tool has opened it, it listens for
  // signals; it gets one, and only then its requests.
  const testing::TempFolder folder;
  const std::string pipe = folder.path("trace");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string json = folder.path("out.json");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(98);
    ::execl(testing::binary_path("tiercel").c_str(), "tiercel", "replay", "--metadata-only",
            "--trace", pipe.c_str(), "--json", json.c_str(), nullptr);
    ::_exit(99);
  }
  {
    std::ofstream trace(pipe);
    EXPECT_EQ(::kill(child, SIGINT), 0);
    for (int i = 0; i < 1000; ++i) {
      trace << R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]})"
            << "\n";
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kExitInterrupted);
  const std::string figures = testing::read_file(json);
  EXPECT_NE(figures.find("\"complete\": false"), std::string::npos) << figures;
}

}  // namespace
}  // namespace tiercel
