// SPDX-License-Identifier: Apache-2.0
//
// DiskRepair: the changes that `tiercel verify --repair` makes, under the lock of the instance.
//
// Ownership: holds the lock while it lives.
// Threads:   one.
#pragma once

#include <string>
#include <vector>

#include "tiercel/status.h"

#include "tier/disk/disk_file.h"
#include "tier/disk/disk_format.h"

namespace tiercel {

class DiskRepair {
 public:
  // Locks the ranks that are there, in their order, and makes no file. kBusy naming the holder.
  static Result<DiskRepair> open(const std::string& path, const std::string& instance);
  ~DiskRepair();
  DiskRepair(DiskRepair&&) = default;
  DiskRepair& operator=(DiskRepair&&) = default;

  // Empties the records of the slots that are marked, and syncs.
  Status drop(uint32_t rank, const std::vector<bool>& slots);
  // Writes the header that counts once more, over the other one.
  Status write_second_header(uint32_t rank, DiskHeader header);
  // From that of the metadata file.
  Status write_data_header(uint32_t rank, DiskHeader header);

 private:
  struct Rank {
    uint32_t rank = 0;
    DiskPath data, metadata;
  };
  DiskRepair() = default;
  Result<const Rank*> find(uint32_t rank) const;

  DiskPath instance_;
  std::vector<Rank> ranks_;
};

}  // namespace tiercel
