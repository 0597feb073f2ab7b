// SPDX-License-Identifier: Apache-2.0
//
// data/key_vectors.json against the library. The file's numbers come from Python
// (tests/key/check_vectors.py), so keys that agree with it are equal in every process and language.

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tiercel/frame.h"
#include "tiercel/key.h"

#include "key/hex.h"
#include "support/paths.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;

const Json& vectors() {
  static const Json json =
      Json::parse(std::ifstream(testing::source_path("data/key_vectors.json")));
  return json;
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text(2 * bytes.size(), '\0');
  write_hex(bytes, text.data());
  return text;
}

std::string bytes_of(const Json& hex) {
  const auto text = hex.get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(*hex_digit_value(text[i]) << 4 | *hex_digit_value(text[i + 1]));
  }
  return bytes;
}

template <typename AnyDigest>
AnyDigest digest_of(const Json& hex) {
  return *AnyDigest::from_hex(hex.get<std::string>());
}

KvSpec spec_of(const Json& json) {
  KvSpec spec;
  spec.model_id = json["model_id"];
  spec.weights_revision = json["weights_revision"];
  spec.kv_dtype = json["kv_dtype"];
  spec.kv_scale_scheme = json["kv_scale_scheme"];
  spec.block_tokens = json["block_tokens"];
  spec.positional_scheme = json["positional_scheme"];
  spec.layout_tag = json["layout_tag"];
  for (const Json& group : json["groups"]) {
    spec.groups.push_back({static_cast<AttentionKind>(group["attention"].get<uint8_t>()),
                           group["layer_count"], group["kv_head_count"], group["head_dim_k"],
                           group["head_dim_v"], group["window_tokens"]});
  }
  return spec;
}

Scope scope_of(const Json& json) {
  return {json["adapter_id"], json["adapter_revision"], json["tenant_salt"]};
}

TEST(Vectors, FileHoldsEveryKind) {
  for (const char* kind :
       {"specs", "roots", "blocks", "sequences", "foreign_keys", "object_keys", "frames"}) {
    EXPECT_GE(vectors()[kind].size(), 3u) << kind;
  }
}

TEST(Vectors, KeyDocumentsAndNamespacesAgree) {
  for (const Json& vector : vectors()["specs"]) {
    const KvSpec spec = spec_of(vector["spec"]);
    const auto document = key_document(spec);
    EXPECT_EQ(hex_of(document), vector["key_document"].get<std::string>());
    EXPECT_EQ(make_namespace(spec)->hex(), vector["namespace"].get<std::string>());
    EXPECT_EQ(*parse_key_document(document), spec);
  }
}

TEST(Vectors, RootsAgree) {
  for (const Json& vector : vectors()["roots"]) {
    EXPECT_EQ(make_root(digest_of<Namespace>(vector["namespace"]), scope_of(vector["scope"])).hex(),
              vector["root"].get<std::string>());
  }
}

TEST(FieldCase, F06BlockKeysAreTheSameInEveryProcess) {
  for (const Json& vector : vectors()["blocks"]) {
    std::vector<std::string> texts;  // what the extras view
    texts.reserve(2 * vector["extras"].size());
    std::vector<BlockExtra> extras;
    for (const Json& extra : vector["extras"]) {
      const std::string& kind = texts.emplace_back(extra["kind"]);
      const std::string& content = texts.emplace_back(bytes_of(extra["content"]));
      extras.push_back({kind, content, extra["offset_tokens"].get<int64_t>()});
    }
    const auto parent = digest_of<BlockKey>(vector["parent"]);
    const auto tokens = vector["tokens"].get<std::vector<TokenId>>();
    EXPECT_EQ(chain_block_key(parent, tokens, extras).hex(),
              vector["block_key"].get<std::string>());
    EXPECT_EQ(partial_block_key(parent, tokens, extras).hex(),
              vector["partial_block_key"].get<std::string>());
  }
}

TEST(FieldCase, F06SequenceKeysAreTheSameInEveryProcess) {
  for (const Json& vector : vectors()["sequences"]) {
    Sequence sequence(digest_of<RootKey>(vector["root"]), vector["block_tokens"]);
    for (const Json& item : vector["items"]) {
      ASSERT_TRUE(sequence.add_item(
          {item["kind"], bytes_of(item["content_hash"]), item["begin"], item["end"]}));
    }
    sequence.append(vector["tokens"].get<std::vector<TokenId>>());
    std::vector<std::string> keys;
    for (const BlockKey& key : sequence.keys()) keys.push_back(key.hex());
    EXPECT_EQ(Json(keys), vector["keys"]);
    const auto partial = sequence.partial_key();
    EXPECT_EQ(partial ? Json(partial->hex()) : Json(), vector["partial_key"]);
  }
}

TEST(Vectors, ForeignKeysAgree) {
  for (const Json& vector : vectors()["foreign_keys"]) {
    EXPECT_EQ(
        foreign_block_key(EngineHash::kSha256, digest_of<BlockKey>(vector["engine_hash"]).bytes,
                          scope_of(vector["scope"]), vector["scope_included"])
            ->hex(),
        vector["block_key"].get<std::string>());
  }
}

TEST(Vectors, ObjectKeysAgree) {
  for (const Json& vector : vectors()["object_keys"]) {
    const ObjectKey key(digest_of<Namespace>(vector["namespace"]), GroupId(vector["group"]),
                        Slice{vector["rank"], vector["rank_count"]},
                        digest_of<BlockKey>(vector["block_key"]));
    EXPECT_EQ(key.text(), vector["object_key"].get<std::string>());
  }
}

TEST(Vectors, FramesAgree) {
  for (const Json& vector : vectors()["frames"]) {
    const Json& fields = vector["fields"];
    Frame frame;
    frame.name_space = digest_of<Namespace>(fields["namespace"]);
    frame.key = digest_of<BlockKey>(fields["block_key"]);
    frame.group = GroupId(fields["group"]);
    frame.slice = Slice{fields["rank"], fields["rank_count"]};
    frame.token_count = fields["token_count"];
    frame.codec = static_cast<Codec>(fields["codec"].get<uint8_t>());
    frame.checksum_kind = static_cast<ChecksumKind>(fields["checksum_kind"].get<uint8_t>());
    frame.stored_bytes = fields["stored_bytes"];
    frame.raw_bytes = fields["raw_bytes"];
    frame.writer_epoch = fields["writer_epoch"];
    frame.checksum = fields["checksum"];
    std::array<std::byte, kFrameBytes> bytes;
    encode_frame(frame, bytes);
    EXPECT_EQ(hex_of(bytes), vector["bytes"].get<std::string>());
    EXPECT_EQ(*decode_frame(bytes), frame);
  }
}

}  // namespace
}  // namespace tiercel
