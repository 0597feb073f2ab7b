// SPDX-License-Identifier: Apache-2.0
#include "engine/tokens_ahead.h"

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(TokensAhead, NobodyAheadIsTheTurn) { EXPECT_EQ(TokensAhead(100, 100).tokens(), 0u); }

TEST(TokensAhead, AStepWithRoomLeftIsTheTurn) {
  TokensAhead ahead(100, 100);
  ahead.add(99);
  EXPECT_EQ(ahead.tokens(), 0u);
}

TEST(TokensAhead, OnlyStepsThatOthersFillCount) {
  TokensAhead ahead(100, 100);
  ahead.add(250);
  EXPECT_EQ(ahead.tokens(), 200u);
  ahead.add(60);
  EXPECT_EQ(ahead.tokens(), 300u);
}

TEST(TokensAhead, ALongPromptInSmallChunksLeavesRoomInEachStep) {
  TokensAhead ahead(100, 30);
  ahead.add(5000);
  ahead.add(5000);
  EXPECT_EQ(ahead.tokens(), 0u);
  ahead.add(5000);
  ahead.add(5000);
  EXPECT_EQ(ahead.tokens(), 20000u);
}

TEST(TokensAhead, DecodesTakeNoTurn) {
  TokensAhead ahead(100, 100);
  for (int i = 0; i < 1000; ++i) ahead.add(1);
  EXPECT_EQ(ahead.tokens(), 0u);
}

}  // namespace
}  // namespace tiercel
