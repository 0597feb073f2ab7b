// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/assert.h"
#include "tiny_llm/attention.h"

namespace tiercel::tiny {
namespace {

std::vector<float> normalized(std::span<const float> hidden, std::span<const float> weights) {
  float squares = 0;
  for (const float value : hidden) squares += value * value;
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(hidden.size()) + 1e-5f);
  std::vector<float> result(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) result[i] = hidden[i] * scale * weights[i];
  return result;
}

// Part of a matrix with a row for each output: rows from first_row on, as many as `out` has, and of
// these the columns from first_column on, as many as `input` has.
struct MatrixPart {
  std::span<const float> matrix;
  size_t row_elements = 0;
  size_t first_row = 0;
  size_t first_column = 0;
};

void multiply(const MatrixPart& part, std::span<const float> input, std::span<float> out) {
  for (size_t row = 0; row < out.size(); ++row) {
    const std::span<const float> weights = part.matrix.subspan(
        (part.first_row + row) * part.row_elements + part.first_column, input.size());
    float sum = 0;
    for (size_t i = 0; i < input.size(); ++i) sum += weights[i] * input[i];
    out[row] = sum;
  }
}

float silu(float value) { return value / (1.0f + std::exp(-value)); }

void add(std::span<const float> terms, std::span<float> sums) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
}

}  // namespace

Result<std::unique_ptr<TinyModel>> TinyModel::create(const TinyConfig& config, uint64_t seed) {
  TIERCEL_TRY(config.validate());
  return std::unique_ptr<TinyModel>(new TinyModel(config, seed));
}

TinyModel::TinyModel(const TinyConfig& config, uint64_t seed)
    : config_(config), weights_(make_weights(config, seed)) {}

void TinyModel::forward(std::span<RankKv> ranks, std::span<const TinyChunk> chunks,
                        std::span<float> logits) const {
  TIERCEL_ASSERT(ranks.size() == config_.rank_count, "every rank has its KV tensors");
  size_t samples = 0;
  for (const TinyChunk& chunk : chunks) {
    // Token by token through all layers: how a prompt is cut into chunks cannot matter then.
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      const bool wanted = chunk.samples && i + 1 == chunk.tokens.size();
      forward_token(ranks, chunk, i,
                    wanted ? logits.subspan(samples * config_.vocabulary, config_.vocabulary)
                           : std::span<float>());
      samples += wanted ? 1 : 0;
    }
  }
}

void TinyModel::forward_token(std::span<RankKv> ranks, const TinyChunk& chunk, size_t index,
                              std::span<float> logits) const {
  const TokenId token = chunk.tokens[index];
  TIERCEL_ASSERT(token < config_.vocabulary, "a token is in the vocabulary");
  const auto row = weights_.embedding.begin() + static_cast<ptrdiff_t>(token) * config_.hidden;
  std::vector<float> hidden(row, row + config_.hidden);
  for (uint32_t layer = 0; layer < config_.layers; ++layer) {
    add_attention(weights_.layers[layer], layer, ranks, chunk, chunk.first_position + index,
                  hidden);
    add_mlp(weights_.layers[layer], hidden);
  }
  if (logits.empty()) return;
  multiply({weights_.head, config_.hidden}, normalized(hidden, weights_.final_norm), logits);
}

void TinyModel::add_attention(const LayerWeights& weights, uint32_t layer, std::span<RankKv> ranks,
                              const TinyChunk& chunk, uint64_t position,
                              std::span<float> hidden) const {
  const std::vector<float> input = normalized(hidden, weights.attention_norm);
  const std::span<const DeviceBlockId> table = chunk.block_tables[config_.group_of(layer)];
  const KvPlace place = place_of(table, config_.block_tokens, layer, position);
  const size_t query_elements = size_t{config_.rank_heads()} * config_.head_dim;
  const size_t kv_elements = size_t{config_.rank_kv_heads()} * config_.head_dim;
  std::vector<float> query(query_elements), attended(query_elements);
  std::vector<float> key(kv_elements), value(kv_elements);
  std::vector<float> partial(config_.hidden), sum(config_.hidden);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    multiply({weights.query, config_.hidden, rank * query_elements}, input, query);
    multiply({weights.key, config_.hidden, rank * kv_elements}, input, key);
    multiply({weights.value, config_.hidden, rank * kv_elements}, input, value);
    rotate(query, config_.head_dim, position, config_.rope_theta);
    rotate(key, config_.head_dim, position, config_.rope_theta);
    ranks[rank].write(KvPart::kKey, place, key);
    ranks[rank].write(KvPart::kValue, place, value);
    // Reads its own key and value back too: rounded as everybody after it sees them.
    attend(config_, ranks[rank], table, layer, position, query, attended);
    multiply({weights.output, query_elements * ranks.size(), 0, rank * query_elements}, attended,
             partial);
    add(partial, sum);
  }
  add(sum, hidden);
}

void TinyModel::add_mlp(const LayerWeights& weights, std::span<float> hidden) const {
  const std::vector<float> input = normalized(hidden, weights.mlp_norm);
  const size_t columns = config_.rank_mlp();
  std::vector<float> gate(columns), up(columns);
  std::vector<float> partial(config_.hidden), sum(config_.hidden);
  for (size_t rank = 0; rank < config_.rank_count; ++rank) {
    multiply({weights.gate, config_.hidden, rank * columns}, input, gate);
    multiply({weights.up, config_.hidden, rank * columns}, input, up);
    for (size_t i = 0; i < columns; ++i) up[i] *= silu(gate[i]);
    multiply({weights.down, config_.mlp, 0, rank * columns}, up, partial);
    add(partial, sum);
  }
  add(sum, hidden);
}

TokenId sample_greedily(std::span<const float> logits) {
  TIERCEL_ASSERT(!logits.empty(), "there is a token to choose");
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace tiercel::tiny
