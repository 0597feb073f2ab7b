// SPDX-License-Identifier: Apache-2.0
//
// Tokens, keys and bytes that benchmarks run on: the same for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tiercel/key.h"

#include "base/random.h"

namespace tiercel {

inline KvSpec bench_spec(uint32_t block_tokens) {
  KvSpec spec;
  spec.model_id = "bench";
  spec.weights_revision = "1";
  spec.kv_dtype = "bf16";
  spec.kv_scale_scheme = "none";
  spec.block_tokens = block_tokens;
  spec.groups.resize(1);
  return spec;
}

inline RootKey bench_root() { return make_root(make_namespace(bench_spec(16)).value(), Scope{}); }

inline std::vector<TokenId> bench_tokens(uint32_t count, uint64_t seed) {
  constexpr uint64_t kVocabulary = 128'000;
  Random random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(kVocabulary));
  return tokens;
}

// Writes a random word every `step` bytes: no page stays the zero page, and no two blocks are
// equal.
inline void bench_fill(std::span<std::byte> bytes, uint64_t seed, size_t step) {
  Random random(seed);
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += step) {
    const uint64_t word = random.next();
    std::memcpy(&bytes[at], &word, sizeof(word));
  }
}

// As good as digests, and made much faster.
inline std::vector<BlockKey> bench_keys(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<BlockKey> keys(count);
  for (BlockKey& key : keys) {
    for (size_t at = 0; at < key.bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = random.next();
      std::memcpy(key.bytes.data() + at, &word, sizeof(word));
    }
  }
  return keys;
}

}  // namespace tiercel
