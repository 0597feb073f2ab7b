// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as keys alone can show them: a key that lacks
// a fact (F01, F02), a fingerprint that was cut (F03), a digest that was cut (F05).

#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/frame.h"
#include "tiercel/key.h"

#include "key/field_case_contexts.h"
#include "key/samples.h"

namespace tiercel {
namespace {

using namespace testing;

size_t match_length(const std::unordered_set<BlockKey>& stored, const std::vector<BlockKey>& keys) {
  size_t length = 0;
  while (length < keys.size() && stored.contains(keys[length])) ++length;
  return length;
}

const std::vector<TokenId> kFourBlocks = [] {
  Random random(13);
  return testing::random_tokens(random, 64);
}();

TEST(FieldCase, F01ChangingOneFactLeavesNoCommonKey) {
  std::vector<Change> changes = changes_of_spec();
  for (Change& change : changes_of_scope()) changes.push_back(std::move(change));
  const std::vector<Context> contexts = contexts_of(changes);
  std::unordered_set<BlockKey> stored;
  for (size_t i = 0; i < contexts.size(); ++i) {
    const char* fact = i == 0 ? "nothing" : changes[i - 1].fact;
    ASSERT_TRUE(contexts[i].spec.validate()) << fact;
    const auto keys = keys_of(contexts[i].spec, contexts[i].scope, kFourBlocks);
    ASSERT_EQ(keys.size(), 4u);
    for (const BlockKey& key : keys) {
      EXPECT_TRUE(stored.insert(key).second) << "a key is shared after changing " << fact;
    }
  }
}

TEST(FieldCase, F01ChangingOneFactLeavesNoCommonObjectKeyAndNoFrameThatPasses) {
  const std::vector<Context> contexts = all_contexts().contexts;
  std::set<std::string> objects;
  std::vector<Frame> frames;
  for (const Context& context : contexts) {
    const Namespace name_space = *make_namespace(context.spec);
    const BlockKey key = keys_of(context.spec, context.scope, kFourBlocks).back();
    objects.emplace(ObjectKey(name_space, context.group, context.slice, key).text());
    frames.push_back({.name_space = name_space,
                      .key = key,
                      .group = context.group,
                      .slice = context.slice,
                      .token_count = 16});
  }
  EXPECT_EQ(objects.size(), contexts.size());
  for (size_t writer = 0; writer < frames.size(); ++writer) {
    std::array<std::byte, kFrameBytes> bytes;
    encode_frame(frames[writer], bytes);
    for (size_t reader = 0; reader < frames.size(); ++reader) {
      uint32_t checksum = 0;
      EXPECT_EQ(check_frame(bytes, frames[reader], &checksum),
                reader == writer ? Code::kOk : Code::kCorrupt)
          << "written as " << writer << ", read as " << reader;
    }
  }
}

TEST(FieldCase, F01FormatVersionIsInEveryObjectKey) {
  const std::string text(ObjectKey({}, GroupId(0), Slice{}, {}).text());
  EXPECT_EQ(text.substr(0, 3), "v" + std::to_string(kFormatVersion) + "-");
  EXPECT_EQ(ObjectKey::parse("v2" + text.substr(2)).code(), Code::kInvalid);
}

TEST(FieldCase, F02AdaptersMatchOnlyTheirOwnBlocks) {
  const std::vector<Scope> scopes = {
      {}, {"adapter-x", "sha-1", ""}, {"adapter-y", "sha-1", ""}, {"adapter-x", "sha-2", ""}};
  const KvSpec spec = testing::sample_spec();
  for (size_t writer = 0; writer < scopes.size(); ++writer) {
    const auto written = keys_of(spec, scopes[writer], kFourBlocks);
    const std::unordered_set<BlockKey> stored(written.begin(), written.end());
    for (size_t reader = 0; reader < scopes.size(); ++reader) {
      EXPECT_EQ(match_length(stored, keys_of(spec, scopes[reader], kFourBlocks)),
                reader == writer ? 4u : 0u)
          << "written by " << writer << ", read by " << reader;
    }
  }
}

// Six blocks of 16 tokens; the picture's placeholders cover tokens 37 to 69: blocks 2, 3 and 4.
std::vector<BlockKey> keys_with_picture(const std::string& fingerprint) {
  std::vector<TokenId> tokens(96);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = i >= 37 && i < 70 ? 151655 : static_cast<TokenId>(i);
  }
  return keys_of(testing::sample_spec(), {}, tokens, {{"image", fingerprint, 37, 70}});
}

std::string random_fingerprint(Random& random) { return testing::random_text(random, 32, 32); }

TEST(FieldCase, F03PicturesShareOnlyTheBlocksBeforeThem) {
  Random random(14);
  std::vector<std::string> fingerprints;
  for (int i = 0; i < 2000; ++i) fingerprints.push_back(random_fingerprint(random));
  for (int i = 0; i < 20; ++i) {
    const std::string one = random_fingerprint(random);
    fingerprints.push_back(one);
    fingerprints.push_back(random_fingerprint(random).substr(0, 30) + one.substr(30));
  }
  std::unordered_set<BlockKey> before;
  std::unordered_set<BlockKey> covered_or_after;
  for (const std::string& fingerprint : fingerprints) {
    const auto keys = keys_with_picture(fingerprint);
    ASSERT_EQ(keys.size(), 6u);
    before.insert(keys.begin(), keys.begin() + 2);
    covered_or_after.insert(keys.begin() + 2, keys.end());
  }
  EXPECT_EQ(before.size(), 2u);
  EXPECT_EQ(covered_or_after.size(), fingerprints.size() * 4);
}

TEST(FieldCase, F03MatchForTheOtherPictureEndsBeforeTheSpan) {
  Random random(15);
  for (int pair = 0; pair < 20; ++pair) {
    const std::string one = random_fingerprint(random);
    const std::string other = random_fingerprint(random).substr(0, 30) + one.substr(30);
    ASSERT_NE(one, other);
    const auto written = keys_with_picture(one);
    const std::unordered_set<BlockKey> stored(written.begin(), written.end());
    EXPECT_EQ(match_length(stored, keys_with_picture(one)), 6u);
    EXPECT_EQ(match_length(stored, keys_with_picture(other)), 2u);
  }
}

TEST(FieldCase, F05DigestsAreNeverShortened) {
  static_assert(sizeof(Namespace) == 32 && sizeof(RootKey) == 32 && sizeof(BlockKey) == 32);
  static_assert(sizeof(Frame{}.key.bytes) == 32);
  BlockKey key = testing::digest_of<BlockKey>("block");
  std::set<std::string> objects;
  std::set<std::string> frames;
  std::set<BlockKey> children;
  for (size_t bit = 0; bit < 256; ++bit) {
    key.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    objects.emplace(ObjectKey({}, GroupId(0), Slice{}, key).text());
    std::array<std::byte, kFrameBytes> bytes;
    encode_frame({.name_space = {}, .key = key, .group = {}, .slice = {}}, bytes);
    frames.emplace(reinterpret_cast<const char*>(bytes.data()), 80);  // up to the key's end
    children.insert(chain_block_key(key, kFourBlocks));
    key.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  EXPECT_EQ(objects.size(), 256u);
  EXPECT_EQ(frames.size(), 256u);
  EXPECT_EQ(children.size(), 256u);
}

TEST(FieldCase, F05WeakEngineHashesAreRefused) {
  const std::array<std::byte, 32> hash{};
  EXPECT_EQ(foreign_block_key(EngineHash::kXxh3, hash, {}, false).code(), Code::kUnsupported);
  EXPECT_EQ(foreign_block_key(EngineHash::kSha256, std::span(hash).first(8), {}, false).code(),
            Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
