// SPDX-License-Identifier: Apache-2.0
//
// TokensAhead: how many tokens an engine computes before a request that waits has its turn: those
// of the steps that others fill. A step with room left is the turn. Rather too little than too
// much, because whoever relies on it would wait in vain.
//
// Threads: a plain value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiercel {

class TokensAhead {
 public:
  // `step_tokens` of a batch, `chunk_tokens` of one request in it, both at most.
  TokensAhead(uint64_t step_tokens, uint64_t chunk_tokens)
      : step_tokens_(step_tokens), chunk_tokens_(chunk_tokens) {}

  // A request before it has so many to compute. Decodes take no turn from anybody.
  void add(uint64_t tokens) {
    if (tokens <= 1) return;
    all_ += tokens;
    in_step_ += std::min(tokens, chunk_tokens_);
  }

  uint64_t tokens() const {
    return in_step_ < step_tokens_ ? 0 : all_ / step_tokens_ * step_tokens_;
  }

 private:
  uint64_t step_tokens_;
  uint64_t chunk_tokens_;
  uint64_t all_ = 0;
  uint64_t in_step_ = 0;
};

}  // namespace tiercel
