// SPDX-License-Identifier: Apache-2.0
//
// What a cache needs to know of a disk tier: where its slots are, and what was found in them.
#pragma once

#include "tier/disk/disk_folder.h"
#include "tier/slot_geometry.h"

namespace tiercel {

struct DiskParts {
  SlotGeometry geometry;
  DiskContents contents;
};

}  // namespace tiercel
