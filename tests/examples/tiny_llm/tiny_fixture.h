// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the tiny decoder share.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tiny_llm/rank_kv.h"
#include "tiny_llm/tiny_model.h"

namespace tiercel::tiny {

inline std::vector<TokenId> random_tokens(const TinyConfig& config, size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(config.vocabulary));
  return tokens;
}

inline std::vector<RankKv> make_ranks(const TinyConfig& config, uint32_t block_count) {
  std::vector<RankKv> ranks;
  for (uint32_t rank = 0; rank < config.rank_count; ++rank) {
    ranks.push_back(*RankKv::create(config, block_count));
  }
  return ranks;
}

// Blocks in an order in which nobody would read memory by chance: 3 of 7 blocks ahead each time.
inline std::vector<DeviceBlockId> scattered_table(uint32_t block_count, uint32_t first = 0) {
  std::vector<DeviceBlockId> table;
  for (uint32_t i = 0; i < block_count; ++i) {
    table.emplace_back(first + (i * 7 + 3) % block_count);
  }
  return table;
}

// Prefills the tokens in chunks of the given sizes; the logits after each chunk's last token.
inline std::vector<std::vector<float>> run_chunks(const TinyModel& model, std::span<RankKv> ranks,
                                                  std::span<const DeviceBlockId> table,
                                                  std::span<const TokenId> tokens,
                                                  const std::vector<size_t>& sizes) {
  std::vector<std::vector<float>> all;
  uint64_t position = 0;
  for (const size_t size : sizes) {
    std::vector<float> logits(model.config().vocabulary);
    const TinyChunk chunk{tokens.subspan(position, size), position, {table, table}, true};
    model.forward(ranks, std::span(&chunk, 1), logits);
    all.push_back(std::move(logits));
    position += size;
  }
  EXPECT_EQ(position, tokens.size());
  return all;
}

inline std::vector<std::byte> all_bytes(const RankKv& kv, const TinyConfig& config,
                                        std::span<const DeviceBlockId> table) {
  std::vector<std::byte> bytes;
  for (const DeviceBlockId block : table) {
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
      for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
        const auto piece = kv.block_bytes(part, layer, block);
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
    }
  }
  return bytes;
}

}  // namespace tiercel::tiny
