// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/kv_recorder.h"

#include "examples/tiny_llm/tiny_fixture.h"

namespace tiercel::tiny {
namespace {

class KvRecorderTest : public ::testing::Test {
 protected:
  KvRecorderTest() {
    config_.rank_count = 2;
    ranks_ = make_ranks(config_, 3);
    const auto model = *TinyModel::create(config_, 1);
    const std::vector<DeviceBlockId> table{DeviceBlockId(0), DeviceBlockId(1), DeviceBlockId(2)};
    run_chunks(*model, ranks_, table, random_tokens(config_, 24, 2), {24});
  }

  std::optional<KvDifference> check(uint32_t block) const {
    return recorder_.check(key_, 0, config_.block_tokens, ranks_, DeviceBlockId(block));
  }

  TinyConfig config_;
  std::vector<RankKv> ranks_;
  KvRecorder recorder_{config_};
  const BlockKey key_{{std::byte{1}}};
};

TEST_F(KvRecorderTest, WhatWasComputedIsWhatMustBeFound) {
  EXPECT_FALSE(recorder_.record(key_, 0, 8, ranks_, DeviceBlockId(1)));
  EXPECT_FALSE(check(1));
  EXPECT_FALSE(recorder_.record(key_, 0, 8, ranks_, DeviceBlockId(1))) << "and computed once more";
  const auto other = check(2);
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->known);
  EXPECT_TRUE(recorder_.record(key_, 0, 8, ranks_, DeviceBlockId(2))) << "what was first stays";
  EXPECT_FALSE(check(1));
}

TEST_F(KvRecorderTest, ABlockThatNobodyComputedIsToldApart) {
  const auto difference = check(0);
  ASSERT_TRUE(difference);
  EXPECT_FALSE(difference->known);
  EXPECT_EQ(to_string(*difference), "nobody has computed it");
}

TEST_F(KvRecorderTest, EveryByteOfEveryRankAndLayerCounts) {
  recorder_.record(key_, 0, 8, ranks_, DeviceBlockId(0));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t layer = 0; layer < config_.layers; ++layer) {
      for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
        for (std::byte& byte : ranks_[rank].block_bytes(part, layer, DeviceBlockId(0))) {
          byte ^= std::byte{1};
          const auto difference = check(0);
          ASSERT_TRUE(difference);
          EXPECT_EQ(difference->rank, rank);
          EXPECT_EQ(difference->layer, layer);
          byte ^= std::byte{1};
        }
      }
    }
  }
  EXPECT_FALSE(check(0));
}

TEST_F(KvRecorderTest, OfAPartialBlockOnlyItsTokensCount) {
  recorder_.record(key_, 0, 3, ranks_, DeviceBlockId(0));
  const auto bytes = ranks_[1].block_bytes(KvPart::kKey, 1, DeviceBlockId(0));
  bytes[3 * ranks_[1].token_bytes()] ^= std::byte{1};
  EXPECT_FALSE(recorder_.check(key_, 0, 3, ranks_, DeviceBlockId(0)));
  bytes[3 * ranks_[1].token_bytes() - 1] ^= std::byte{1};
  EXPECT_TRUE(recorder_.check(key_, 0, 3, ranks_, DeviceBlockId(0)));
}

}  // namespace
}  // namespace tiercel::tiny
