// SPDX-License-Identifier: Apache-2.0
//
// A rank's files in the process of the rank, which has nothing but their descriptors. It reads for
// itself what it must know, so that a rank that is started again goes on where the dead one was.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "tier/disk/disk_folder.h"
#include "tier/disk/disk_record_reader.h"
#include "tier/slot_geometry.h"

namespace tiercel {

// Of the slots below `slot_count`. Fails as the source does.
Result<DiskRankRecords> read_disk_rank_records(const DiskRecordSource& source,
                                               const DiskHeader& header, uint32_t slot_count);

// kInvalid if the descriptors are not those of the two files of `rank`, or their headers say so;
// kUnavailable if they cannot be read. Reads the whole metadata file.
Result<DiskRankFiles> read_disk_rank_files(FileDescriptor data, FileDescriptor metadata,
                                           uint32_t rank);

// The places of the slots on the header's rank; other ranks look alike in it, whatever they are.
Result<SlotGeometry> disk_geometry_of(const DiskHeader& header);

}  // namespace tiercel
