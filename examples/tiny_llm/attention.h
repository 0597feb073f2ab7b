// SPDX-License-Identifier: Apache-2.0
//
// Rotary positions and grouped-query attention over paged KV tensors.
#pragma once

#include <cstdint>
#include <span>

#include "tiercel/ids.h"

#include "tiny_llm/rank_kv.h"
#include "tiny_llm/tiny_config.h"

namespace tiercel::tiny {

// Turns each pair (i, i + head_dim/2) of each head in `heads` by position × theta^(−2i/head_dim).
void rotate(std::span<float> heads, uint32_t head_dim, uint64_t position, float theta);

// The block of a request that position stands in, and where in it; the table of the layer's group.
KvPlace place_of(std::span<const DeviceBlockId> block_table, uint32_t block_tokens, uint32_t layer,
                 uint64_t position);

// Attention of one token at `position` to itself and what the layer sees before it, on one rank.
// `query` and `out`: rank_heads × head_dim. Sums run from the first position upwards, whatever the
// blocks are and whoever computed them: the same KV gives the same bits.
void attend(const TinyConfig& config, const RankKv& kv, std::span<const DeviceBlockId> block_table,
            uint32_t layer, uint64_t position, std::span<const float> query, std::span<float> out);

}  // namespace tiercel::tiny
