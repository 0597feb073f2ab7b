// SPDX-License-Identifier: Apache-2.0
//
// Specs, keys and tokens for the tests of the key room: a fixed sample, and arbitrary ones from a
// seed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/key.h"

#include "base/random.h"
#include "key/sha256.h"

namespace tiercel::testing {

inline KvSpec sample_spec() {
  KvSpec spec;
  spec.model_id = "example/model";
  spec.weights_revision = "rev-1";
  spec.kv_dtype = "bf16";
  spec.kv_scale_scheme = "none";
  spec.block_tokens = 16;
  spec.positional_scheme = "rope:theta=10000";
  spec.layout_tag = "plain";
  spec.groups = {GroupSpec{}};
  return spec;
}

inline std::string random_text(Random& random, size_t bytes_min, size_t bytes_max) {
  std::string text(random.between(bytes_min, bytes_max), '\0');
  for (char& character : text) character = static_cast<char>(random.below(256));
  return text;
}

inline GroupSpec random_group(Random& random) {
  GroupSpec group;
  group.attention = static_cast<AttentionKind>(random.between(1, 4));
  group.layer_count = static_cast<uint32_t>(random.between(1, 4096));
  group.kv_head_count = static_cast<uint32_t>(random.between(1, 65536));
  group.head_dim_k = static_cast<uint32_t>(random.between(1, 65536));
  const bool is_mla = group.attention == AttentionKind::kMla;
  group.head_dim_v =
      static_cast<uint32_t>(is_mla && random.chance(0.5) ? 0 : random.between(1, 65536));
  if (group.attention == AttentionKind::kWindow) {
    group.window_tokens = static_cast<uint32_t>(random.between(1, UINT32_MAX));
  }
  return group;
}

inline KvSpec random_spec(Random& random) {
  KvSpec spec;
  spec.model_id = random_text(random, 1, 12);
  spec.weights_revision = random_text(random, 1, 12);
  spec.kv_dtype = random_text(random, 1, 6);
  spec.kv_scale_scheme = random_text(random, 1, 6);
  spec.block_tokens = static_cast<uint32_t>(random.between(1, 65536));
  spec.positional_scheme = random_text(random, 0, 6);
  spec.layout_tag = random_text(random, 0, 6);
  spec.groups.resize(random.between(1, 3));
  for (GroupSpec& group : spec.groups) group = random_group(random);
  return spec;
}

// Any digest type, filled from a word.
template <typename AnyDigest>
AnyDigest digest_of(std::string_view word) {
  return AnyDigest{sha256(std::as_bytes(std::span(word)))};
}

inline std::vector<TokenId> random_tokens(Random& random, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.next());
  return tokens;
}

}  // namespace tiercel::testing
