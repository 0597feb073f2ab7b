// SPDX-License-Identifier: Apache-2.0
//
// A published trace holds ids where the tokens were. The same id becomes the same tokens here, so
// that real hashing runs over real amounts of tokens.
#pragma once

#include <cstdint>
#include <span>

#include "tiercel/key.h"

#include "cli/trace.h"

namespace tiercel {

// The tokens that stand for `id`: a function of the id and the position only. Different ids differ.
void expand_id(uint64_t id, std::span<TokenId, kTokensPerId> tokens);

}  // namespace tiercel
