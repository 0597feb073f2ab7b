// SPDX-License-Identifier: Apache-2.0
#include "cli/token_expansion.h"

#include "cli/mix.h"

namespace tiercel {

void expand_id(uint64_t id, std::span<TokenId, kTokensPerId> tokens) {
  uint64_t counter = mix64(id + kGoldenRatio64);
  for (size_t i = 0; i < kTokensPerId; i += 2) {
    const uint64_t pair = mix64(counter);
    counter += kGoldenRatio64;
    tokens[i] = static_cast<TokenId>(pair);
    tokens[i + 1] = static_cast<TokenId>(pair >> 32);
  }
}

}  // namespace tiercel
