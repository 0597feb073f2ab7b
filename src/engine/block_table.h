// SPDX-License-Identifier: Apache-2.0
//
// BlockTable: a view of the device blocks of one request, by group and position.
//
// Threads: a plain view. Valid as long as whoever gives it away says.
#pragma once

#include <cstdint>
#include <span>

#include "tiercel/ids.h"

namespace tiercel {

// Group-major: the block of position p in group g stands at blocks[g × stride + p].
struct BlockTable {
  const DeviceBlockId* blocks = nullptr;
  uint32_t block_count = 0;  // positions that have a device block
  uint32_t stride = 0;       // at least block_count
  uint32_t group_count = 0;

  // The blocks of the positions 0, 1, … of one group; group < group_count.
  std::span<const DeviceBlockId> group(uint32_t group) const {
    return {blocks + static_cast<size_t>(group) * stride, block_count};
  }
};

}  // namespace tiercel
