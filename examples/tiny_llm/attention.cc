// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/assert.h"

namespace tiercel::tiny {

void rotate(std::span<float> heads, uint32_t head_dim, uint64_t position, float theta) {
  const uint32_t half = head_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    // In double: at a large position the angle needs more bits than a float has.
    const double angle =
        static_cast<double>(position) *
        std::pow(static_cast<double>(theta), -2.0 * static_cast<double>(i) / head_dim);
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    for (size_t head = 0; head < heads.size(); head += head_dim) {
      const float a = heads[head + i], b = heads[head + i + half];
      heads[head + i] = a * cosine - b * sine;
      heads[head + i + half] = b * cosine + a * sine;
    }
  }
}

KvPlace place_of(std::span<const DeviceBlockId> block_table, uint32_t block_tokens, uint32_t layer,
                 uint64_t position) {
  const uint64_t block = position / block_tokens;
  TIERCEL_ASSERT(block < block_table.size(), "the block table reaches as far as the positions");
  return {layer, block_table[block], static_cast<uint32_t>(position % block_tokens)};
}

void attend(const TinyConfig& config, const RankKv& kv, std::span<const DeviceBlockId> block_table,
            uint32_t layer, uint64_t position, std::span<const float> query, std::span<float> out) {
  const uint32_t head_dim = config.head_dim;
  const uint32_t heads_per_kv_head = config.heads / config.kv_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  std::vector<float> row(head_dim);
  const uint64_t first = config.first_seen(config.group_of(layer), position);
  std::vector<float> weights(position + 1 - first);
  for (uint32_t head = 0; head < config.rank_heads(); ++head) {
    const uint32_t kv_head = head / heads_per_kv_head;
    const std::span<const float> head_query = query.subspan(size_t{head} * head_dim, head_dim);
    float largest = -INFINITY;
    for (uint64_t other = first; other <= position; ++other) {
      kv.read(KvPart::kKey, place_of(block_table, config.block_tokens, layer, other), kv_head, row);
      float score = 0;
      for (uint32_t i = 0; i < head_dim; ++i) score += head_query[i] * row[i];
      weights[other - first] = score * scale;
      largest = std::max(largest, weights[other - first]);
    }
    float sum = 0;
    for (float& weight : weights) {
      weight = std::exp(weight - largest);
      sum += weight;
    }
    const std::span<float> head_out = out.subspan(size_t{head} * head_dim, head_dim);
    std::fill(head_out.begin(), head_out.end(), 0.0f);
    for (uint64_t other = first; other <= position; ++other) {
      kv.read(KvPart::kValue, place_of(block_table, config.block_tokens, layer, other), kv_head,
              row);
      for (uint32_t i = 0; i < head_dim; ++i) head_out[i] += weights[other - first] * row[i];
    }
    for (float& value : head_out) value /= sum;
  }
}

}  // namespace tiercel::tiny
