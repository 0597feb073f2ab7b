// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as keys alone can show them: a key that lacks
// a fact (F01, F02), a fingerprint that was cut (F03), a digest that was cut (F05).

#include <functional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/frame.h"
#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

// All facts that decide what the bytes of a slice mean.
struct Context {
  KvSpec spec = testing::sample_spec();
  Scope scope{"adapter", "1", "salt"};
  GroupId group{0};
  Slice slice{0, 2};
};

std::vector<BlockKey> keys_of(const KvSpec& spec, const Scope& scope,
                              std::span<const TokenId> tokens,
                              const std::vector<SequenceItem>& items = {}) {
  // One block size for all, so that the block size itself is seen to be in the key.
  Sequence sequence(make_root(*make_namespace(spec), scope), 16);
  for (const SequenceItem& item : items) EXPECT_TRUE(sequence.add_item(item));
  sequence.append(tokens);
  return {sequence.keys().begin(), sequence.keys().end()};
}

size_t match_length(const std::unordered_set<BlockKey>& stored, const std::vector<BlockKey>& keys) {
  size_t length = 0;
  while (length < keys.size() && stored.contains(keys[length])) ++length;
  return length;
}

struct Change {
  const char* fact;
  std::function<void(Context&)> apply;
};

std::vector<Change> changes_of_spec() {
  return {
      {"model_id", [](Context& c) { c.spec.model_id += "2"; }},
      {"weights_revision", [](Context& c) { c.spec.weights_revision += "2"; }},
      {"kv_dtype", [](Context& c) { c.spec.kv_dtype = "fp8_e4m3"; }},
      {"kv_scale_scheme", [](Context& c) { c.spec.kv_scale_scheme = "per_tensor"; }},
      {"block_tokens", [](Context& c) { c.spec.block_tokens = 32; }},
      {"positional_scheme", [](Context& c) { c.spec.positional_scheme.clear(); }},
      {"layout_tag", [](Context& c) { c.spec.layout_tag = "cpu-amx-pack"; }},
      {"groups", [](Context& c) { c.spec.groups.emplace_back(); }},
      {"attention", [](Context& c) { c.spec.groups[0].attention = AttentionKind::kMha; }},
      {"attention: MLA", [](Context& c) { c.spec.groups[0].attention = AttentionKind::kMla; }},
      {"layer_count", [](Context& c) { c.spec.groups[0].layer_count += 1; }},
      {"kv_head_count", [](Context& c) { c.spec.groups[0].kv_head_count += 1; }},
      {"head_dim_k", [](Context& c) { c.spec.groups[0].head_dim_k += 1; }},
      {"head_dim_v", [](Context& c) { c.spec.groups[0].head_dim_v += 1; }},
      {"window",
       [](Context& c) { c.spec.groups[0] = {AttentionKind::kWindow, 1, 1, 128, 128, 512}; }},
      {"window_tokens",
       [](Context& c) { c.spec.groups[0] = {AttentionKind::kWindow, 1, 1, 128, 128, 513}; }},
  };
}

std::vector<Change> changes_of_scope() {
  return {
      {"adapter_id", [](Context& c) { c.scope.adapter_id = "other"; }},
      {"no adapter", [](Context& c) { c.scope.adapter_id = c.scope.adapter_revision = ""; }},
      {"adapter_revision", [](Context& c) { c.scope.adapter_revision = "2"; }},
      {"tenant_salt", [](Context& c) { c.scope.tenant_salt = "other"; }},
      {"no salt", [](Context& c) { c.scope.tenant_salt.clear(); }},
  };
}

std::vector<Change> changes_of_place() {
  return {
      {"group", [](Context& c) { c.group = GroupId(1); }},
      {"rank", [](Context& c) { c.slice.rank = 1; }},
      {"rank count", [](Context& c) { c.slice.rank_count = 4; }},
      {"slice all", [](Context& c) { c.slice = Slice::all(); }},
  };
}

// Fails to compile when a fact is added, so that it cannot be forgotten in the tables above.
[[maybe_unused]] void every_fact_is_in_a_table(const Context& context) {
  [[maybe_unused]] const auto& [model, weights, dtype, scale, block, position, layout, groups] =
      context.spec;
  [[maybe_unused]] const auto& [attention, layers, heads, k, v, window] = groups[0];
  [[maybe_unused]] const auto& [adapter, revision, salt] = context.scope;
  [[maybe_unused]] const auto& [rank, rank_count] = context.slice;
}

std::vector<Context> contexts_of(const std::vector<Change>& changes) {
  std::vector<Context> contexts(1 + changes.size());
  for (size_t i = 0; i < changes.size(); ++i) changes[i].apply(contexts[i + 1]);
  return contexts;
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
  std::vector<Change> changes = changes_of_spec();
  for (Change& change : changes_of_scope()) changes.push_back(std::move(change));
  for (Change& change : changes_of_place()) changes.push_back(std::move(change));
  const std::vector<Context> contexts = contexts_of(changes);
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
