// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(Assert, TrueExpressionIsEvaluatedOnce) {
  int evaluations = 0;
  TIERCEL_ASSERT(++evaluations == 1, "counts");
  EXPECT_EQ(evaluations, 1);
}

TEST(AssertDeathTest, FalseExpressionNamesPlaceMessageAndExpression) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int two = 2;
  EXPECT_DEATH(TIERCEL_ASSERT(two == 3, "two is three"),
               "assert_test.cc:[0-9]+: assertion failed: two is three \\(two == 3\\)");
}

}  // namespace
}  // namespace tiercel
