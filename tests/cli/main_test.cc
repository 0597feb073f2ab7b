// SPDX-License-Identifier: Apache-2.0
//
// The tool as a user runs it.
#include <string>

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "support/paths.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

using testing::Outcome;

Outcome run_tool(const std::string& arguments) {
  return testing::run_shell(testing::binary_path("tiercel") + " " + arguments);
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
  EXPECT_FALSE(contains(run_tool("version \"$(printf '\\033[31m')\""), "\x1b"));
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

TEST(Tool, OutputThatCannotBeWrittenIsExitStatus1) {
  for (const std::string command : {"", "--help", "version", "stores", "replay --help"}) {
    for (const std::string target : {">/dev/full", ">&-"}) {
      SCOPED_TRACE(command + target);
      // Standard error goes to the pipe before standard output goes away.
      const Outcome outcome = run_tool(command + " 2>&1 " + target + " #");
      EXPECT_EQ(outcome.status, kExitFailed);
      EXPECT_TRUE(contains(outcome, "standard output could not be written")) << outcome.text;
    }
  }
}

TEST(Tool, AClosedStandardOutputDoesNotSpillIntoAFile) {
  // The pipe of the test is the file here; it is opened before the text is printed.
  const Outcome outcome = run_tool("bench key --runs 1 --tokens 64 --json /dev/stderr 2>&1 >&- #");
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_TRUE(contains(outcome, "\"name\": \"key.sequence\"")) << outcome.text;
  EXPECT_FALSE(contains(outcome, "runs: 1;")) << outcome.text;
}

TEST(Tool, SubjectsAsWordsAndAsAnOptionAreRefused) {
  const Outcome outcome = run_tool("bench key --subjects host");
  EXPECT_EQ(outcome.status, kExitRefused);
  EXPECT_TRUE(contains(outcome, "subjects")) << outcome.text;
}

TEST(Tool, WithoutFioTheDiskHasNoLimitAndTheReasonIsThere) {
  const testing::TempFolder folder;
  const Outcome outcome = testing::run_shell(
      "PATH=/nowhere " + testing::binary_path("tiercel") + " bench disk --json - --runs 1" +
      " --disk-sizes 4KiB --disk-file-bytes 256KiB --disk-queue-depth 4 --disk-reopen-blocks 100" +
      " --disk-path " + folder.path("."));
  EXPECT_EQ(outcome.status, kExitOk);
  EXPECT_TRUE(contains(outcome, "\"name\": \"disk.put.4KiB\"")) << outcome.text;
  EXPECT_TRUE(contains(outcome, "none: fio is not installed (package fio)")) << outcome.text;
  EXPECT_FALSE(contains(outcome, "\"ratio\": 1")) << outcome.text;
}

TEST(Tool, LooksAtTheFolderThatIsNamedAsAWord) {
  const testing::TempFolder folder;
  const std::string tier = folder.path("tier");
  const Outcome replay = run_tool(kSmall + "--disk-bytes 2MiB --disk-path " + tier);
  ASSERT_EQ(replay.status, kExitOk) << replay.text;
  for (const std::string command : {"inspect ", "verify "}) {
    const Outcome outcome = run_tool(command + tier);
    EXPECT_EQ(outcome.status, kExitOk) << outcome.text;
    EXPECT_TRUE(contains(outcome, tier + "/main")) << outcome.text;
    EXPECT_EQ(run_tool(command + tier + " " + tier).status, kExitRefused);
    EXPECT_EQ(run_tool(command).status, kExitRefused);
  }
  EXPECT_TRUE(contains(run_tool("verify " + tier), "all is well"));
  const Outcome unknown = run_tool("verify --reapir " + tier);
  EXPECT_EQ(unknown.status, kExitRefused);
  EXPECT_TRUE(contains(unknown, "did you mean '--repair'?")) << unknown.text;
}

}  // namespace
}  // namespace tiercel
