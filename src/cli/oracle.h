// SPDX-License-Identifier: Apache-2.0
//
// The oracle: what the bytes of a block must be. They are derived from its identity alone, so that
// every block that comes back from anywhere can be checked without keeping a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel {

// A block starts and ends with its own key.
inline constexpr size_t kOracleBytesMin = 64;

struct OracleBlock {
  BlockKey key;
  GroupId group;
  uint16_t rank = 0;
};

// Fills `bytes` (at least kOracleBytesMin) with the block's content: its key, bytes that follow
// from key, group, rank and length, and at the end its key again, with group and rank added to its
// last word.
void fill_oracle(const OracleBlock& block, std::span<std::byte> bytes);

// Offset of the first byte that is not the block's content; nullopt if all are.
std::optional<size_t> find_oracle_mismatch(const OracleBlock& block,
                                           std::span<const std::byte> bytes);

}  // namespace tiercel
