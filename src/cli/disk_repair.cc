// SPDX-License-Identifier: Apache-2.0
#include "cli/disk_repair.h"

#include <array>
#include <utility>

#include "tiercel/ids.h"

#include "tier/disk/disk_owner.h"

namespace tiercel {

Result<DiskRepair> DiskRepair::open(const std::string& path, const std::string& instance) {
  DiskRepair repair;
  TIERCEL_TRY_ASSIGN(const DiskPath root, open_disk_folder(path, DiskOpen::kWrite));
  TIERCEL_TRY_ASSIGN(DiskPath folder, open_disk_folder(root, instance, DiskOpen::kWrite));
  const SystemClock clock;
  for (uint32_t rank = 0; rank < kRankCountMax; ++rank) {
    const Result<DiskPath> rank_folder =
        open_disk_folder(folder, "rank" + std::to_string(rank), DiskOpen::kWrite);
    if (rank_folder.code() == Code::kNotFound) continue;
    if (!rank_folder) return rank_folder.error();
    Result<DiskPath> data =
        open_locked_disk_file(*rank_folder, "data", DiskOpen::kWrite, clock.now(), folder);
    // Without it there is nothing to lock, and nothing to repair.
    if (data.code() == Code::kNotFound) continue;
    if (!data) return data.error();
    Result<DiskPath> metadata = open_disk_file(*rank_folder, "metadata", DiskOpen::kWrite);
    if (metadata.code() == Code::kNotFound) continue;
    if (!metadata) return metadata.error();
    repair.ranks_.push_back({rank, *std::move(data), *std::move(metadata)});
  }
  TIERCEL_TRY(write_disk_owner(folder));
  repair.instance_ = std::move(folder);
  return repair;
}

DiskRepair::~DiskRepair() {
  if (instance_.fd) remove_disk_owner(instance_);
}

Status DiskRepair::drop(uint32_t rank, const std::vector<bool>& slots) {
  TIERCEL_TRY_ASSIGN(const Rank* files, find(rank));
  TIERCEL_TRY_ASSIGN(const uint64_t length, disk_file_length(files->metadata));
  constexpr std::array<std::byte, kDiskRecordBytes> kEmpty{};
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    const uint64_t offset = disk_record_offset(SlotId(slot));
    if (!slots[slot] || offset >= length) continue;
    TIERCEL_TRY(write_disk_file(files->metadata, offset, kEmpty));
  }
  return sync_disk_file(files->metadata);
}

Status DiskRepair::write_second_header(uint32_t rank, DiskHeader header) {
  TIERCEL_TRY_ASSIGN(const Rank* files, find(rank));
  ++header.generation;
  return write_disk_header(files->metadata, header);
}

Status DiskRepair::write_data_header(uint32_t rank, DiskHeader header) {
  TIERCEL_TRY_ASSIGN(const Rank* files, find(rank));
  header.kind = DiskFileKind::kData;
  header.generation = 0;
  header.first_sequence = 0;
  return write_disk_header(files->data, header);
}

Result<const DiskRepair::Rank*> DiskRepair::find(uint32_t rank) const {
  for (const Rank& one : ranks_) {
    if (one.rank == rank) return &one;
  }
  return Error(Code::kNotFound, "rank " + std::to_string(rank) + " has no data file to lock");
}

}  // namespace tiercel
