// SPDX-License-Identifier: Apache-2.0
#include <regex>

#include <gtest/gtest.h>

#include "base/log.h"

namespace tiercel {
namespace {

TEST(StderrSink, WritesTimeLevelAndTheLineAsItIs) {
  testing::internal::CaptureStderr();
  const auto sink = make_stderr_sink();
  sink->write(LogLevel::kDebug, "one");
  sink->write(LogLevel::kWarning, "not a format: {} %d");
  sink->write(LogLevel::kError, "three");
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3} ";
  EXPECT_TRUE(std::regex_match(text, std::regex(time + "debug tiercel: one\n" + time +
                                                "warning tiercel: not a format: \\{\\} %d\n" +
                                                time + "error tiercel: three\n")))
      << text;
}

}  // namespace
}  // namespace tiercel
