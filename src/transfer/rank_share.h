// SPDX-License-Identifier: Apache-2.0
//
// RankShare: of a list of operations, those that concern one rank.
//
// Threads: one. Allocates only to become larger than it ever was.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "tiercel/transfer.h"

namespace tiercel {

class RankShare {
 public:
  // In order. Valid until the next call; nearly always `ops` itself.
  std::span<const BlockOp> of(std::span<const BlockOp> ops, uint32_t rank) {
    const auto concerned = [rank](const BlockOp& op) { return concerns(op, rank); };
    if (std::all_of(ops.begin(), ops.end(), concerned)) return ops;
    chosen_.clear();
    std::copy_if(ops.begin(), ops.end(), std::back_inserter(chosen_), concerned);
    return chosen_;
  }

 private:
  std::vector<BlockOp> chosen_;
};

}  // namespace tiercel
