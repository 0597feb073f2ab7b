// SPDX-License-Identifier: Apache-2.0
//
// Whether a host tier fits into memory. What counts is the sum: each rank alone may fit where all
// of them together bring the out-of-memory killer.
#pragma once

#include "tiercel/status.h"

#include "base/memory_limit.h"
#include "tier/slot_geometry.h"

namespace tiercel {

// Ok if the tiers of all ranks on this machine fit into `limit` together; kNoSpace with both
// numbers if not. To be asked before anything is allocated.
// `shared`: the ranks have one memory together.
Status check_memory_of_ranks(const SlotGeometry& geometry, const MemoryLimit& limit,
                             bool shared = false);

}  // namespace tiercel
