// SPDX-License-Identifier: Apache-2.0
//
// What a rank worker refuses at its start.
#pragma once

#include <cstddef>

#include "tiercel/status.h"

#include "tier/slot_geometry.h"
#include "transfer/rank_worker.h"

namespace tiercel {

// kInvalid with what is wrong, its value and what is allowed. `copier` may be null.
Status check_rank_worker(const RankWorkerOptions& options, const SlotGeometry& geometry,
                         size_t host_bytes, const DeviceCopier* copier);

}  // namespace tiercel
