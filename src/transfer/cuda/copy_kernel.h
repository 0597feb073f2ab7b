// SPDX-License-Identifier: Apache-2.0
//
// The gather and scatter kernel. Its body is copy_units() (transfer/layout_index.h).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "transfer/layout_index.h"

namespace tiercel {

// Puts the copy of one part of `place_count` blocks into `stream`. `places` and the payloads that
// they name are addresses that the device reaches; `unit_bytes` (16, 8, 4, 2 or 1) divides them and
// everything in `part`. At most `grid_blocks_max` thread blocks, so that the rest of the device
// goes on computing.
cudaError_t launch_copy(const PartPlan& part, uint32_t unit_bytes, const CopyPlace* places,
                        uint32_t place_count, CopyDirection direction, uint32_t grid_blocks_max,
                        cudaStream_t stream);

}  // namespace tiercel
