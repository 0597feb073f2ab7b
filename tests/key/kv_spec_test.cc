// SPDX-License-Identifier: Apache-2.0

#include "tiercel/kv_spec.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "key/samples.h"

namespace tiercel {
namespace {

std::string message_after(const std::function<void(KvSpec&)>& change) {
  KvSpec spec = testing::sample_spec();
  change(spec);
  const Status status = spec.validate();
  if (status) return "ok";
  EXPECT_EQ(status.code(), Code::kInvalid);
  return status.error().message();
}

TEST(KvSpec, ValidSpecsPass) {
  EXPECT_EQ(message_after([](KvSpec&) {}), "ok");
  Random random(2);
  for (int round = 0; round < 500; ++round) EXPECT_TRUE(testing::random_spec(random).validate());
}

TEST(KvSpec, BoundsThemselvesAreAllowed) {
  EXPECT_EQ(message_after([](KvSpec& s) { s.model_id.assign(65536, 'm'); }), "ok");
  EXPECT_EQ(message_after([](KvSpec& s) { s.block_tokens = 65536; }), "ok");
  EXPECT_EQ(message_after([](KvSpec& s) { s.block_tokens = 1; }), "ok");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups.resize(kGroupCountMax); }), "ok");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].layer_count = 4096; }), "ok");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].kv_head_count = 65536; }), "ok");
}

TEST(KvSpec, TextOutOfRangeIsNamed) {
  EXPECT_EQ(message_after([](KvSpec& s) { s.model_id.clear(); }),
            "model_id is empty; allowed: 1 to 65536 bytes");
  EXPECT_EQ(message_after([](KvSpec& s) { s.weights_revision.clear(); }),
            "weights_revision is empty; allowed: 1 to 65536 bytes");
  EXPECT_EQ(message_after([](KvSpec& s) { s.kv_dtype.clear(); }),
            "kv_dtype is empty; allowed: 1 to 65536 bytes");
  EXPECT_EQ(message_after([](KvSpec& s) { s.kv_scale_scheme.clear(); }),
            "kv_scale_scheme is empty; allowed: 1 to 65536 bytes");
  EXPECT_EQ(message_after([](KvSpec& s) { s.layout_tag.assign(65537, 'l'); }),
            "layout_tag has 65537 bytes; allowed: 0 to 65536 bytes");
  EXPECT_EQ(message_after([](KvSpec& s) { s.positional_scheme.clear(); }), "ok");
  EXPECT_EQ(message_after([](KvSpec& s) { s.layout_tag.clear(); }), "ok");
}

TEST(KvSpec, NumberOutOfRangeIsNamed) {
  EXPECT_EQ(message_after([](KvSpec& s) { s.block_tokens = 0; }),
            "block_tokens is 0; allowed: 1 to 65536");
  EXPECT_EQ(message_after([](KvSpec& s) { s.block_tokens = 65537; }),
            "block_tokens is 65537; allowed: 1 to 65536");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups.clear(); }),
            "groups has 0 entries; allowed: 1 to 8");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups.resize(9); }),
            "groups has 9 entries; allowed: 1 to 8");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].layer_count = 0; }),
            "groups[0].layer_count is 0; allowed: 1 to 4096");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].kv_head_count = 65537; }),
            "groups[0].kv_head_count is 65537; allowed: 1 to 65536");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].head_dim_k = 0; }),
            "groups[0].head_dim_k is 0; allowed: 1 to 65536");
}

TEST(KvSpec, UnknownAttentionIsNamedWithItsGroup) {
  EXPECT_EQ(message_after([](KvSpec& s) {
              s.groups.resize(2);
              s.groups[1].attention = static_cast<AttentionKind>(5);
            }),
            "groups[1].attention is 5; allowed: 1 (MHA), 2 (GQA), 3 (MLA), 4 (window)");
  EXPECT_NE(message_after([](KvSpec& s) { s.groups[0].attention = AttentionKind{}; }), "ok");
}

TEST(KvSpec, WindowTokensGoWithWindowAttentionOnly) {
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].window_tokens = 128; }),
            "groups[0].window_tokens is 128; allowed: 0 unless attention is window");
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].attention = AttentionKind::kWindow; }),
            "groups[0].window_tokens is 0; allowed: 1 to 4294967295 where attention is window");
  EXPECT_EQ(message_after([](KvSpec& s) {
              s.groups[0].attention = AttentionKind::kWindow;
              s.groups[0].window_tokens = 128;
            }),
            "ok");
}

TEST(KvSpec, OnlyMlaMayDoWithoutV) {
  EXPECT_EQ(message_after([](KvSpec& s) { s.groups[0].head_dim_v = 0; }),
            "groups[0].head_dim_v is 0; allowed: 1 to 65536 (0 only where attention is MLA)");
  EXPECT_EQ(message_after([](KvSpec& s) {
              s.groups[0].head_dim_v = 0;
              s.groups[0].attention = AttentionKind::kMla;
            }),
            "ok");
}

}  // namespace
}  // namespace tiercel
