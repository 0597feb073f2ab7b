// SPDX-License-Identifier: Apache-2.0
#include "cli/request_keys.h"

#include <algorithm>

#include "base/assert.h"
#include "cli/token_expansion.h"

namespace tiercel {
namespace {

// Expanded and hashed together: their tokens (64 KiB) stay in the second-level cache.
constexpr size_t kIdsPerStep = 32;

RootKey replay_root(uint32_t block_tokens) {
  const auto name_space = make_namespace(replay_spec(block_tokens));
  TIERCEL_ASSERT(name_space.has_value(), "the spec of a replay is valid");
  return make_root(*name_space, Scope{});
}

}  // namespace

KvSpec replay_spec(uint32_t block_tokens) {
  KvSpec spec;
  spec.model_id = "tiercel-replay";
  spec.weights_revision = "1";
  spec.kv_dtype = "u8";
  spec.kv_scale_scheme = "none";
  spec.block_tokens = block_tokens;
  spec.groups = {GroupSpec{}};
  return spec;
}

RequestKeys::RequestKeys(uint32_t block_tokens, const Clock& clock)
    : clock_(clock),
      root_(replay_root(block_tokens)),
      sequence_(root_, block_tokens),
      tokens_(kIdsPerStep * kTokensPerId) {}

std::span<const BlockKey> RequestKeys::hash(std::span<const uint64_t> ids) {
  hash_time_ = Duration(0);
  sequence_ = Sequence(root_, sequence_.block_tokens());
  while (!ids.empty()) {
    const auto step = ids.first(std::min(kIdsPerStep, ids.size()));
    for (size_t i = 0; i < step.size(); ++i) {
      expand_id(step[i],
                std::span<TokenId, kTokensPerId>(&tokens_[i * kTokensPerId], kTokensPerId));
    }
    const TimePoint start = clock_.now();
    sequence_.append(std::span(tokens_).first(step.size() * kTokensPerId));
    hash_time_ += clock_.now() - start;
    ids = ids.subspan(step.size());
  }
  return sequence_.keys();
}

}  // namespace tiercel
