// SPDX-License-Identifier: Apache-2.0

#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

using testing::random_text;
using testing::random_tokens;

const BlockKey kParent = testing::digest_of<BlockKey>("parent");

TEST(BlockKey, EqualInputsGiveEqualKeys) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  const std::vector<BlockExtra> extras = {{"image", "hash", -4}};
  EXPECT_EQ(chain_block_key(kParent, tokens, extras), chain_block_key(kParent, tokens, extras));
}

TEST(BlockKey, EveryBitOfParentAndTokensCounts) {
  std::unordered_set<BlockKey> keys;
  BlockKey parent = kParent;
  std::vector<TokenId> tokens(16, 7);
  keys.insert(chain_block_key(parent, tokens));
  for (size_t bit = 0; bit < 256; ++bit) {
    parent.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    keys.insert(chain_block_key(parent, tokens));
    parent.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  for (size_t bit = 0; bit < 32 * tokens.size(); ++bit) {
    tokens[bit / 32] ^= 1u << (bit % 32);
    keys.insert(chain_block_key(parent, tokens));
    tokens[bit / 32] ^= 1u << (bit % 32);
  }
  EXPECT_EQ(keys.size(), 1 + 256 + 32 * 16u);
}

TEST(BlockKey, TokensCannotBeTakenForCountsOrExtras) {
  std::set<BlockKey> keys;
  size_t blocks = 0;
  // All-zero blocks: their preimages differ in length and counts only.
  for (size_t count = 0; count < 64; ++count, ++blocks) {
    keys.insert(chain_block_key(kParent, std::vector<TokenId>(count, 0)));
  }
  // An empty extra is 16 zero bytes, as four zero tokens are.
  for (size_t count = 1; count < 16; ++count, ++blocks) {
    keys.insert(chain_block_key(kParent, {}, std::vector<BlockExtra>(count)));
  }
  EXPECT_EQ(keys.size(), blocks);
}

TEST(BlockKey, ByteMovedBetweenKindAndContentMakesAnotherKey) {
  const std::string word = "aaaaaa";
  std::set<BlockKey> keys;
  for (size_t cut = 0; cut <= word.size(); ++cut) {
    const std::string_view view = word;
    keys.insert(chain_block_key(kParent, {}, {{{view.substr(0, cut), view.substr(cut), 0}}}));
  }
  EXPECT_EQ(keys.size(), word.size() + 1);
}

TEST(BlockKey, OffsetAndOrderOfExtrasCount) {
  const BlockExtra a{"image", "a", 0};
  const BlockExtra b{"image", "b", 0};
  const std::vector<TokenId> tokens(16, 7);
  const std::set<BlockKey> keys = {chain_block_key(kParent, tokens),
                                   chain_block_key(kParent, tokens, {{a}}),
                                   chain_block_key(kParent, tokens, {{b}}),
                                   chain_block_key(kParent, tokens, {{a, b}}),
                                   chain_block_key(kParent, tokens, {{b, a}}),
                                   chain_block_key(kParent, tokens, {{a, a}}),
                                   chain_block_key(kParent, tokens, {{{"image", "a", 1}}}),
                                   chain_block_key(kParent, tokens, {{{"image", "a", -1}}}),
                                   chain_block_key(kParent, tokens, {{{"image", "a", INT64_MIN}}})};
  EXPECT_EQ(keys.size(), 9u);
}

TEST(BlockKey, PartialKeyNeverEqualsAFullKey) {
  Random random(7);
  std::unordered_set<BlockKey> full;
  std::unordered_set<BlockKey> partial;
  for (int round = 0; round < 2000; ++round) {
    const auto tokens = random_tokens(random, random.below(40));
    const std::string content = random_text(random, 0, 300);
    const std::vector<BlockExtra> extras(random.below(3), BlockExtra{"kind", content, 1});
    full.insert(chain_block_key(kParent, tokens, extras));
    partial.insert(partial_block_key(kParent, tokens, extras));
  }
  for (const BlockKey& key : partial) EXPECT_FALSE(full.contains(key));
  EXPECT_EQ(full.size(), partial.size());
}

TEST(BlockKey, BlocksAboveTheBufferAreHashedWhole) {
  for (const size_t count : {100u, 116u, 117u, 118u, 119u, 120u, 128u, 512u, 65536u}) {
    std::vector<TokenId> tokens(count, 9);
    const BlockKey key = chain_block_key(kParent, tokens);
    for (const size_t index : {size_t{0}, count / 2, count - 1}) {
      tokens[index] = 8;
      EXPECT_NE(chain_block_key(kParent, tokens), key) << count << " tokens, token " << index;
      tokens[index] = 9;
    }
  }
}

}  // namespace
}  // namespace tiercel
