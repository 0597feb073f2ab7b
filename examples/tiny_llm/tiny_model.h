// SPDX-License-Identifier: Apache-2.0
//
// TinyModel: a small but real decoder on the CPU: embedding, RMSNorm, rotary positions,
// grouped-query attention over paged KV, gated MLP, greedy sampling; tensor-parallel by splitting
// heads and the columns of the MLP over ranks.
//
// Made for proofs, not for speed: a token's arithmetic is the same in whichever chunk and beside
// whichever other requests it runs, and the ranks' partial sums are added in the order of the
// ranks. So logits are equal bit by bit for the same weights, KV type and number of ranks, in one
// program; another C library may round exp, sin and cos otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "tiny_llm/rank_kv.h"
#include "tiny_llm/tiny_config.h"
#include "tiny_llm/tiny_weights.h"

namespace tiercel::tiny {

// The blocks of one request, for each group.
using BlockTables = std::array<std::span<const DeviceBlockId>, kTinyGroupsMax>;

// Tokens of one request to be computed in one step; KV of everything before them is in its blocks.
struct TinyChunk {
  std::span<const TokenId> tokens;  // each below TinyConfig::vocabulary
  uint64_t first_position = 0;
  BlockTables block_tables;  // each reaches over the last token
  bool samples = false;      // logits of the last token are wanted
};

// Threads: constant after create(); forward() may run on several threads on different blocks.
class TinyModel {
 public:
  // kInvalid as TinyConfig::validate.
  static Result<std::unique_ptr<TinyModel>> create(const TinyConfig& config, uint64_t seed);

  const TinyConfig& config() const { return config_; }

  // Computes the chunks, in order, and writes their KV. `ranks`: rank_count of them. `logits`:
  // `vocabulary` floats for each chunk that samples, in order.
  void forward(std::span<RankKv> ranks, std::span<const TinyChunk> chunks,
               std::span<float> logits) const;

 private:
  TinyModel(const TinyConfig& config, uint64_t seed);
  void forward_token(std::span<RankKv> ranks, const TinyChunk& chunk, size_t index,
                     std::span<float> logits) const;
  void add_attention(const LayerWeights& weights, uint32_t layer, std::span<RankKv> ranks,
                     const TinyChunk& chunk, uint64_t position, std::span<float> hidden) const;
  void add_mlp(const LayerWeights& weights, std::span<float> hidden) const;

  const TinyConfig config_;
  const TinyWeights weights_;
};

// The token with the largest logit, the first of equal ones.
TokenId sample_greedily(std::span<const float> logits);

}  // namespace tiercel::tiny
