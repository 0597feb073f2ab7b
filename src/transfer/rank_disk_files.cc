// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_disk_files.h"

#include <algorithm>
#include <utility>

#include "tier/disk/disk_io.h"

namespace tiercel {
namespace {

// A put keeps its place while it waits for its record; meanwhile others use the disk.
constexpr uint32_t kOperationsPerRequest = 2;
constexpr uint32_t kDiskOperationsMax = 4096;

}  // namespace

Result<std::unique_ptr<RankDisk>> open_rank_disk(const DiskConfig& config, uint32_t rank,
                                                 const SlotGeometry& geometry,
                                                 const DiskRankFiles& files,
                                                 std::span<std::byte> host_memory,
                                                 const Clock& clock) {
  DiskIoOptions io;
  io.way = config.io;
  io.queue_depth = config.queue_depth;
  io.memory = host_memory;
  io.register_memory = config.register_memory;
  TIERCEL_TRY_ASSIGN(std::unique_ptr<DiskIo> way,
                     make_disk_io(files.data.get(), files.metadata.get(), io));
  RankDiskOptions options;
  options.rank = rank;
  options.operations_max = std::min(kDiskOperationsMax, kOperationsPerRequest * config.queue_depth);
  options.sync = config.sync;
  options.sync_interval = config.sync_interval;
  options.stuck_after = config.stuck_after;
  options.payload_checksums = files.payload_checksums;
  return RankDisk::create(std::move(options), geometry, files.header, files.next_sequence,
                          std::move(way), clock);
}

}  // namespace tiercel
