// SPDX-License-Identifier: Apache-2.0
//
// From a rank's files to its disk, the same in every host of a rank worker.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tiercel/clock.h"
#include "tiercel/disk.h"
#include "tiercel/status.h"

#include "tier/disk/disk_folder.h"
#include "tier/disk/rank_disk.h"
#include "tier/slot_geometry.h"

namespace tiercel {

// `files` stay open, and `host_memory` stays, until the disk is gone. `rank` is that of the
// geometry. Errors as make_disk_io and RankDisk::create.
Result<std::unique_ptr<RankDisk>> open_rank_disk(const DiskConfig& config, uint32_t rank,
                                                 const SlotGeometry& geometry,
                                                 const DiskRankFiles& files,
                                                 std::span<std::byte> host_memory,
                                                 const Clock& clock);

}  // namespace tiercel
