// SPDX-License-Identifier: Apache-2.0
//
// Weights from a seed, the same on every platform.
//
// The generator is the standard's mt19937_64 (base/random.h), seeded with the seed. Each weight
// takes one number and is (number >> 40) ÷ 2^23 − 1, uniform in [−1, 1) and exact in a float, times
// sqrt(3 ÷ inputs), which gives outputs the variance of inputs; weights of norms are 1 + an eighth
// of it. Order: embedding, then layer by layer the tensors in the order of LayerWeights, then the
// final norm and the head; matrices row by row, a row for each output.
#pragma once

#include <cstdint>
#include <vector>

#include "tiny_llm/tiny_config.h"

namespace tiercel::tiny {

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  std::vector<float> query;           // [heads × head_dim][hidden]
  std::vector<float> key;             // [kv_heads × head_dim][hidden]
  std::vector<float> value;           // as key
  std::vector<float> output;          // [hidden][heads × head_dim]
  std::vector<float> mlp_norm;        // [hidden]
  std::vector<float> gate;            // [mlp][hidden]
  std::vector<float> up;              // [mlp][hidden]
  std::vector<float> down;            // [hidden][mlp]
};

struct TinyWeights {
  std::vector<float> embedding;  // [vocabulary][hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  std::vector<float> head;        // [vocabulary][hidden]
};

// `config` must validate. The same weights for every rank_count and kv_type.
TinyWeights make_weights(const TinyConfig& config, uint64_t seed);

}  // namespace tiercel::tiny
