// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/rank_kv.h"

#include "examples/tiny_llm/tiny_fixture.h"
#include "tiny_llm/bf16.h"

namespace tiercel::tiny {
namespace {

TEST(RankKvTest, KeepsFp32ExactlyAndBf16Rounded) {
  for (const KvType type : {KvType::kFp32, KvType::kBf16}) {
    TinyConfig config;
    config.kv_type = type;
    RankKv kv = *RankKv::create(config, 3);
    std::vector<float> row(config.rank_kv_heads() * config.head_dim);
    for (size_t i = 0; i < row.size(); ++i) row[i] = 0.1f * static_cast<float>(i + 1);
    const KvPlace place{1, DeviceBlockId(2), 5};
    kv.write(KvPart::kValue, place, row);
    std::vector<float> head(config.head_dim);
    kv.read(KvPart::kValue, place, 1, head);
    for (uint32_t i = 0; i < config.head_dim; ++i) {
      const float written = row[config.head_dim + i];
      EXPECT_EQ(head[i], type == KvType::kFp32 ? written : from_bf16(to_bf16(written)));
    }
    kv.read(KvPart::kKey, place, 1, head);
    EXPECT_EQ(head, std::vector<float>(config.head_dim)) << "keys stand elsewhere";
  }
}

TEST(RankKvTest, TheLayoutNamesThePlacesThatTheModelWrites) {
  TinyConfig config;
  config.rank_count = 2;
  RankKv kv = *RankKv::create(config, 4);
  const auto layout = kv.layout();
  ASSERT_TRUE(layout) << layout.error().message();
  const GroupId group(0);
  EXPECT_EQ(layout->block_count(group), 4u);
  EXPECT_EQ(layout->layer_count(group), config.layers);
  // 8 tokens × 1 KV head of 2 × 8 elements × 4 bytes, keys and values, 2 layers.
  EXPECT_EQ(layout->payload_bytes(group), 8u * 1 * 8 * 4 * 2 * 2);
  EXPECT_EQ(layout->payload_bytes(group), kv.payload_bytes(0));
  const auto& layers = layout->groups()[0].layers;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    ASSERT_EQ(layers[layer].parts.size(), 2u);
    for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
      const DevicePart& tensor = layers[layer].parts[static_cast<size_t>(part)];
      for (uint32_t block = 0; block < 4; ++block) {
        const auto bytes = kv.block_bytes(part, layer, DeviceBlockId(block));
        EXPECT_EQ(bytes.size(), tensor.payload_bytes());
        EXPECT_EQ(bytes.data(),
                  tensor.memory.data() + tensor.offset_bytes + block * tensor.block_stride_bytes);
      }
    }
  }
}

TEST(RankKvTest, LayersWithAWindowAreAGroupOfTheirOwn) {
  TinyConfig config;
  config.layers = 3;
  config.window_layers = 1;
  RankKv kv = *RankKv::create(config, 4);
  const auto layout = kv.layout();
  ASSERT_TRUE(layout) << layout.error().message();
  ASSERT_EQ(layout->groups().size(), 2u);
  EXPECT_EQ(layout->layer_count(GroupId(0)), 2u);
  EXPECT_EQ(layout->layer_count(GroupId(1)), 1u);
  EXPECT_EQ(layout->payload_bytes(GroupId(0)), kv.payload_bytes(0));
  EXPECT_EQ(layout->payload_bytes(GroupId(1)), kv.payload_bytes(1));
  EXPECT_EQ(kv.payload_bytes(0), 2 * kv.payload_bytes(1));
  const DevicePart& values = layout->groups()[1].layers[0].parts[1];
  EXPECT_EQ(kv.block_bytes(KvPart::kValue, 2, DeviceBlockId(3)).data(),
            values.memory.data() + values.offset_bytes + 3 * values.block_stride_bytes);
}

TEST(RankKvTest, RefusesNoBlocksAndAModelThatCannotBe) {
  EXPECT_EQ(RankKv::create(TinyConfig{}, 0).code(), Code::kInvalid);
  TinyConfig config;
  config.rank_count = 4;
  EXPECT_EQ(RankKv::create(config, 4).code(), Code::kInvalid);
}

}  // namespace
}  // namespace tiercel::tiny
