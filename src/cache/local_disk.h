// SPDX-License-Identifier: Apache-2.0
//
// LocalDisk: the disk tier of a LocalCache: the folder, what was found in it, and each rank's disk.
//
// Ownership: owns the folder's lock and the descriptors; outlives the disks that it makes.
// Threads:   one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiercel/cache.h"
#include "tiercel/disk.h"
#include "tiercel/status.h"

#include "cache/disk_parts.h"
#include "tier/disk/disk_folder.h"
#include "tier/disk/rank_disk.h"

namespace tiercel {

class LocalDisk {
 public:
  // As DiskFolder::open and read_contents. Where the slices of all ranks are equal, one rank's
  // files hold them.
  static Result<std::unique_ptr<LocalDisk>> open(const DiskConfig& config,
                                                 const CacheConfig& cache);

  const DiskParts& parts() const { return parts_; }
  // Ranks below it have a disk.
  uint32_t rank_count() const { return static_cast<uint32_t>(files_.size()); }
  // The descriptors stay ours.
  const DiskRankFiles& files(uint32_t rank) const { return files_[rank]; }
  const DiskConfig& config() const { return config_; }

  // `host_memory`: where its transfers begin and end; outlives the disk.
  Result<std::unique_ptr<RankDisk>> make_disk(uint32_t rank, std::span<std::byte> host_memory,
                                              const Clock& clock);

  // What an operator should be told once: of the folder, of what was found, of the way to the disk.
  const std::vector<std::string>& notes() const { return notes_; }
  // Blocks and checksums have been taken in: their lists are of no use any more.
  void forget_contents() {
    parts_.contents.blocks = {};
    for (DiskRankFiles& files : files_) files.payload_checksums = {};
    folder_->forget_payload_checksums();
  }

 private:
  LocalDisk(DiskConfig config, std::unique_ptr<DiskFolder> folder, DiskParts parts);

  const DiskConfig config_;
  const std::unique_ptr<DiskFolder> folder_;
  DiskParts parts_;
  std::vector<DiskRankFiles> files_;  // [rank]
  std::vector<std::string> notes_;
};

}  // namespace tiercel
