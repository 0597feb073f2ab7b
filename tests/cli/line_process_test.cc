// SPDX-License-Identifier: Apache-2.0
#include "cli/line_process.h"

#include <chrono>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

std::unique_ptr<LineProcess> start_shell(const std::string& script) {
  return LineProcess::start({"/bin/sh", "-c", script}).value();
}

TEST(LineProcess, AnswersLinesWithLines) {
  const auto process = start_shell("while read -r line; do echo \"<$line>\"; done");
  EXPECT_EQ(process->ask("one", minutes(1)).value(), "<one>");
  EXPECT_EQ(process->ask("two words", minutes(1)).value(), "<two words>");
}

TEST(LineProcess, HandsOutOneLineAtATime) {
  const auto process = start_shell("printf 'a\\n\\nb\\nrest'");
  EXPECT_EQ(process->read_line(minutes(1)).value(), "a");
  EXPECT_EQ(process->read_line(minutes(1)).value(), "");
  EXPECT_EQ(process->read_line(minutes(1)).value(), "b");
  const Result<std::string> rest = process->read_line(minutes(1));
  EXPECT_EQ(rest.code(), Code::kUnavailable) << "a line without an end is none";
}

TEST(LineProcess, PassesArgumentsAsTheyAre) {
  const auto process = LineProcess::start({"/bin/echo", "two  words", "$HOME", "'"}).value();
  EXPECT_EQ(process->read_line(minutes(1)).value(), "two  words $HOME '");
}

TEST(LineProcess, NamesAProgramThatHasEnded) {
  const auto process = LineProcess::start({"/nonexistent/program"}, "/dev/null").value();
  const Result<std::string> line = process->read_line(minutes(1));
  ASSERT_EQ(line.code(), Code::kUnavailable);
  EXPECT_NE(line.error().message().find("/nonexistent/program"), std::string::npos);
  EXPECT_EQ(process->ask("anything", minutes(1)).code(), Code::kUnavailable);
}

TEST(LineProcess, DoesNotWaitForEver) {
  const auto process = start_shell("read -r line; read -r line");
  EXPECT_EQ(process->read_line(milliseconds(1)).code(), Code::kTimeout);
}

}  // namespace
}  // namespace tiercel
