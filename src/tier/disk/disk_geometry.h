// SPDX-License-Identifier: Apache-2.0
//
// How many slots fit into so many bytes: the geometry of a disk tier from the bound on its files.
//
// With one group the tier has as many slots as fit. With several an extent serves one group at a
// time, and there are at least as many extents as groups, so that none is shut out. The bound
// counts the header pages, the slots and the records of all ranks; the `owner` file (below 4 KiB)
// and what the file system needs for itself come on top.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "tiercel/status.h"

#include "tier/slot_geometry.h"

namespace tiercel {

// A new folder gets about so many extents for each group.
inline constexpr uint32_t kDiskExtentsPerGroup = 64;

// Lengths of all files of all ranks together.
uint64_t disk_files_bytes(const SlotGeometry& geometry);

// For a new folder: the most that fits into `bytes`. kInvalid with the least that is allowed, and
// as SlotGeometry::create().
Result<SlotGeometry> new_disk_geometry(const PayloadBytes& payload_bytes, uint64_t bytes);

// For a folder that is there: its extents keep their size, since blocks lie in them; how many there
// are follows `bytes`. The same bytes give the same geometry again.
Result<SlotGeometry> fitted_disk_geometry(const PayloadBytes& payload_bytes,
                                          const std::vector<uint32_t>& slots_per_extent,
                                          uint64_t bytes);

}  // namespace tiercel
