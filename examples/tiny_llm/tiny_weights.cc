// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/tiny_weights.h"

#include <cmath>
#include <cstddef>

#include "base/random.h"

namespace tiercel::tiny {
namespace {

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::vector<float> matrix(size_t outputs, size_t inputs) {
    const float scale = std::sqrt(3.0f / static_cast<float>(inputs));
    std::vector<float> weights(outputs * inputs);
    for (float& weight : weights) weight = uniform() * scale;
    return weights;
  }

  std::vector<float> norm(size_t width) {
    std::vector<float> weights(width);
    for (float& weight : weights) weight = 1.0f + uniform() * 0.125f;
    return weights;
  }

 private:
  float uniform() {
    return static_cast<float>(static_cast<int32_t>(random_.next() >> 40) - (1 << 23)) * 0x1.0p-23f;
  }

  Random random_;
};

}  // namespace

TinyWeights make_weights(const TinyConfig& config, uint64_t seed) {
  Generator generator(seed);
  const size_t hidden = config.hidden;
  const size_t queries = size_t{config.heads} * config.head_dim;
  const size_t keys = size_t{config.kv_heads} * config.head_dim;
  TinyWeights weights;
  // One input is chosen, not summed over.
  weights.embedding = generator.matrix(size_t{config.vocabulary} * hidden, 1);
  weights.layers.resize(config.layers);
  for (LayerWeights& layer : weights.layers) {
    layer.attention_norm = generator.norm(hidden);
    layer.query = generator.matrix(queries, hidden);
    layer.key = generator.matrix(keys, hidden);
    layer.value = generator.matrix(keys, hidden);
    layer.output = generator.matrix(hidden, queries);
    layer.mlp_norm = generator.norm(hidden);
    layer.gate = generator.matrix(config.mlp, hidden);
    layer.up = generator.matrix(config.mlp, hidden);
    layer.down = generator.matrix(hidden, config.mlp);
  }
  weights.final_norm = generator.norm(hidden);
  weights.head = generator.matrix(config.vocabulary, hidden);
  return weights;
}

}  // namespace tiercel::tiny
