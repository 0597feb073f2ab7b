// SPDX-License-Identifier: Apache-2.0
//
// The slot geometry of a configuration's host tier. Control plane and rank workers each compute it
// from the same configuration, so that slot ids mean the same place on both sides.
#pragma once

#include "tiercel/cache.h"

#include "tier/slot_geometry.h"

namespace tiercel {

// kInvalid if the configuration's sizes are out of range.
Result<SlotGeometry> host_geometry(const CacheConfig& config);

}  // namespace tiercel
