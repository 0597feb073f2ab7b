// SPDX-License-Identifier: Apache-2.0
//
// What makes a device layout possible: no block reaches outside its memory, and no byte of a group
// belongs to two places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiercel/device_layout.h"
#include "tiercel/status.h"

namespace tiercel {

// The payload of one block of group number `index`, or kInvalid as DeviceLayout::create says it.
Result<uint64_t> check_device_group(const DeviceGroup& group, size_t index);

}  // namespace tiercel
