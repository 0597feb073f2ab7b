// SPDX-License-Identifier: Apache-2.0
#include "cli/token_expansion.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

using Tokens = std::array<TokenId, kTokensPerId>;

Tokens expand(uint64_t id) {
  Tokens tokens{};
  expand_id(id, tokens);
  return tokens;
}

TEST(TokenExpansion, TheSameIdIsTheSameTokens) { EXPECT_EQ(expand(77), expand(77)); }

// Computed by a separate script from the definition of SplitMix64.
TEST(TokenExpansion, ValuesDoNotChangeFromBuildToBuild) {
  EXPECT_EQ(expand(0)[0], 0xff3cd4bfu);
  EXPECT_EQ(expand(0)[511], 0xeb895796u);
}

TEST(TokenExpansion, DifferentIdsShareNoRunOfTokens) {
  // First and last 16 tokens stand for the first and last block at 16 tokens a block.
  std::set<std::vector<TokenId>> runs;
  constexpr size_t kIds = 2000;
  for (uint64_t id = 0; id < kIds; ++id) {
    const Tokens tokens = expand(id);
    runs.emplace(tokens.begin(), tokens.begin() + 16);
    runs.emplace(tokens.end() - 16, tokens.end());
  }
  EXPECT_EQ(runs.size(), 2 * kIds);
}

}  // namespace
}  // namespace tiercel
