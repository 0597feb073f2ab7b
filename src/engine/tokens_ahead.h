// SPDX-License-Identifier: Apache-2.0
//
// TokensAhead: how many tokens an engine computes before a request that waits has its turn. What it
// says is rather too little than too much, because whoever relies on it would wait in vain.
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
    if (tokens <= chunk_tokens_) ending_in_step_ += tokens;
  }

  // Where those ahead fill their steps the turn comes when all of them are through; else it comes
  // at once, beside their chunks, and only what ends with this step is out of the way afterwards.
  uint64_t tokens() const { return in_step_ >= step_tokens_ ? all_ : ending_in_step_; }

 private:
  uint64_t step_tokens_;
  uint64_t chunk_tokens_;
  uint64_t all_ = 0;
  uint64_t in_step_ = 0;
  uint64_t ending_in_step_ = 0;
};

}  // namespace tiercel
