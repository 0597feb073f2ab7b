// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/tiny_config.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "tiny_llm/bf16.h"

namespace tiercel::tiny {
namespace {

TEST(TinyConfigTest, TheDefaultIsValid) { EXPECT_TRUE(TinyConfig{}.validate()); }

TEST(TinyConfigTest, WhatCannotBeSplitIsRefusedByName) {
  const auto refused = [](auto change) {
    TinyConfig config;
    change(config);
    const Status status = config.validate();
    return status ? std::string("ok") : status.error().message();
  };
  EXPECT_EQ(refused([](TinyConfig& c) { c.layers = 0; }), "layers is 0; allowed: 1 to 64");
  EXPECT_EQ(refused([](TinyConfig& c) { c.heads = 5; }),
            "heads is 5; allowed: multiples of kv_heads (2)");
  EXPECT_EQ(refused([](TinyConfig& c) { c.rank_count = 3; }),
            "kv_heads is 2; allowed: multiples of rank_count (3)");
  EXPECT_EQ(refused([](TinyConfig& c) { c.rank_count = 2, c.mlp = 65; }),
            "mlp is 65; allowed: multiples of rank_count (2)");
  EXPECT_EQ(refused([](TinyConfig& c) { c.head_dim = 7; }),
            "head_dim is 7; allowed: multiples of a pair (2)");
  EXPECT_EQ(refused([](TinyConfig& c) { c.rope_theta = NAN; }),
            "rope_theta is nan; allowed: above 1");
}

TEST(TinyConfigTest, WeightsAndKvTypeAreOfTheNamespace) {
  TinyConfig config;
  const auto one = make_namespace(kv_spec(config, 1, "order"));
  ASSERT_TRUE(one) << one.error().message();
  EXPECT_EQ(*one, *make_namespace(kv_spec(config, 1, "order")));
  EXPECT_NE(*one, *make_namespace(kv_spec(config, 2, "order")));
  EXPECT_NE(*one, *make_namespace(kv_spec(config, 1, "another")));
  config.kv_type = KvType::kBf16;
  EXPECT_NE(*one, *make_namespace(kv_spec(config, 1, "order")));
}

TEST(Bf16Test, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
    const float value = from_bf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_bf16(to_bf16(value)))) << bits;
    } else {
      EXPECT_EQ(to_bf16(value), bits);
    }
  }
}

TEST(Bf16Test, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 0x1p-9f)), 1.0f);
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 0x1p-8f)), 1.0f) << "a tie: down to the even one";
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 0x1.8p-8f)), 1.0f + 0x1p-7f);
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 0x1.8p-7f)), 1.0f + 0x1p-6f) << "a tie: up to the even one";
  EXPECT_EQ(from_bf16(to_bf16(-1.0f - 0x1.8p-8f)), -1.0f - 0x1p-7f);
  EXPECT_EQ(from_bf16(to_bf16(3.4e38f)), INFINITY) << "beyond the largest";
}

}  // namespace
}  // namespace tiercel::tiny
