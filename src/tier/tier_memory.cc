// SPDX-License-Identifier: Apache-2.0
#include "tier/tier_memory.h"

#include <string>

#include "base/quantity.h"

namespace tiercel {

Status check_memory_of_ranks(const SlotGeometry& geometry, const MemoryLimit& limit, bool shared) {
  uint64_t total_bytes = 0;
  const uint32_t memories = shared ? 1 : geometry.rank_count();
  for (uint32_t rank = 0; rank < memories; ++rank) {
    if (__builtin_add_overflow(total_bytes, geometry.tier_bytes(rank), &total_bytes)) {
      total_bytes = UINT64_MAX;
      break;
    }
  }
  if (total_bytes <= limit.bytes) return {};
  return Error(Code::kNoSpace, "host_blocks of " + std::to_string(geometry.rank_count()) +
                                   " ranks together take " + format_bytes(total_bytes) +
                                   "; allowed: up to " + format_bytes(limit.bytes) + " (" +
                                   limit.source + ")");
}

}  // namespace tiercel
