// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <sstream>

#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace tiercel {
namespace {

TEST(ProgressBar, IsRedrawnAFewTimesASecondAndWipedAway) {
  std::ostringstream out;
  ManualClock clock;
  {
    ProgressBar bar(out, clock);
    bar.show(1, 4);
    const std::string first = out.str();
    EXPECT_NE(first.find("25 %"), std::string::npos);
    bar.show(2, 4);
    EXPECT_EQ(out.str(), first);
    clock.advance(std::chrono::seconds(1));
    bar.show(4, 4);
    EXPECT_NE(out.str().find("100 %"), std::string::npos);
  }
  EXPECT_TRUE(out.str().ends_with("\r\x1b[K"));
}

TEST(ProgressBar, LeavesNoTraceIfNeverShown) {
  std::ostringstream out;
  ManualClock clock;
  { ProgressBar bar(out, clock); }
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace tiercel
