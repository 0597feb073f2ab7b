// SPDX-License-Identifier: Apache-2.0
//
// What a restart finds: the records of all ranks, joined slot by slot.
//
// A slot counts on a rank if its record is valid, not cleared, and of the group that its extent
// serves there: that of the record with the highest sequence in the extent, since an older record
// of another group has been written over in part. It counts as a block if all ranks have the same
// one.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/key.h"
#include "tiercel/status.h"

#include "tier/disk/disk_folder.h"
#include "tier/disk/disk_record_reader.h"
#include "tier/slot_geometry.h"

namespace tiercel {

// One rank's metadata.
struct DiskScanRank {
  DiskRecordSource records;
  uint64_t first_sequence = 0;  // as its header says
};

struct DiskScan {
  DiskContents contents;
  // Of each rank, as in DiskRankFiles.
  std::vector<uint64_t> next_sequence;
  std::vector<std::vector<uint32_t>> payload_checksums;
};

// `ranks` in their order; as DiskFolder::read_contents().
Result<DiskScan> scan_disk_records(std::span<const DiskScanRank> ranks,
                                   const SlotGeometry& geometry, const DiskFolderId& folder_id,
                                   const Namespace& name_space, bool purge);

}  // namespace tiercel
