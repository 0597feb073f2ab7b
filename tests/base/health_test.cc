// SPDX-License-Identifier: Apache-2.0
#include "tiercel/health.h"

#include <string>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(ReasonText, KeepsWhatFits) {
  EXPECT_TRUE(ReasonText().empty());
  EXPECT_TRUE(ReasonText::of("").empty());
  EXPECT_EQ(ReasonText::of("no answer").view(), "no answer");
  const std::string longest(ReasonText::kBytesMax, 'x');
  EXPECT_EQ(ReasonText::of(longest).view(), longest);
}

TEST(ReasonText, CutsWhatDoesNotFitAndShowsIt) {
  const std::string view(ReasonText::of(std::string(1000, 'x')).view());
  EXPECT_EQ(view, std::string(ReasonText::kBytesMax - 3, 'x') + "...");
}

TEST(ReasonText, IsPrintableWhateverItIsMadeOf) {
  EXPECT_EQ(ReasonText::of("a\nb\x1b[1m\xff\x7f").view(), "a?b?[1m??");
}

TEST(ReasonText, IsEqualByItsWords) {
  EXPECT_EQ(ReasonText::of("a"), ReasonText::of("a"));
  EXPECT_FALSE(ReasonText::of("a") == ReasonText::of("ab"));
}

// As another process may have left it.
TEST(ReasonText, NeverShowsMoreThanItHolds) {
  ReasonText reason;
  reason.size = 255;
  EXPECT_EQ(reason.view().size(), ReasonText::kBytesMax);
}

}  // namespace
}  // namespace tiercel
