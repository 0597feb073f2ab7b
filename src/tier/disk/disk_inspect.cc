// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_inspect.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <sys/stat.h>

#include "tier/disk/disk_owner.h"
#include "tier/disk/disk_record_reader.h"

namespace tiercel {
namespace {

constexpr uint64_t kStatBlockBytes = 512;

using ReadHeader = Result<DiskHeader> (*)(const DiskPath&);

Result<DiskFileLook> look_at_file(const DiskPath& folder, const std::string& name,
                                  ReadHeader read_header) {
  DiskFileLook look;
  Result<DiskPath> file = open_disk_file(folder, name, DiskOpen::kRead);
  if (file.code() == Code::kNotFound) {
    look.file.path = folder.path + "/" + name;
    look.header = file.error();
    return look;
  }
  if (!file) return file.error();
  look.file = *std::move(file);
  struct stat status {};
  if (::fstat(look.file.fd.get(), &status) != 0) {
    return disk_error(look.file.path, "examine", errno);
  }
  look.bytes = static_cast<uint64_t>(status.st_size);
  look.allocated_bytes = static_cast<uint64_t>(status.st_blocks) * kStatBlockBytes;
  look.header = read_header(look.file);
  if (look.header.code() == Code::kUnavailable) return look.header.error();
  return look;
}

}  // namespace

uint32_t DiskRankLook::slot_count() const {
  if (!metadata.header) return 0;
  const DiskHeader& header = *metadata.header;
  const uint64_t slots_per_extent =
      *std::max_element(header.slots_per_extent.begin(), header.slots_per_extent.end());
  const uint64_t last = header.last_extent_slots == 0 ? slots_per_extent : header.last_extent_slots;
  return static_cast<uint32_t>(
      std::min<uint64_t>((header.extent_count - 1) * slots_per_extent + last, UINT32_MAX));
}

Status DiskRankLook::for_each_record(
    const std::function<void(SlotId, const Result<DiskRecord>&)>& visit) const {
  if (!metadata.header) return metadata.header.error();
  // A file that is shorter than its header says has no records behind its end.
  const uint64_t there = metadata.bytes < disk_record_offset(SlotId(0))
                             ? 0
                             : (metadata.bytes - disk_record_offset(SlotId(0))) / kDiskRecordBytes;
  DiskRecordReader reader(metadata.file, 0,
                          static_cast<uint32_t>(std::min<uint64_t>(slot_count(), there)));
  return reader.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
    visit(slot, decode_disk_record(bytes, metadata.header->folder_id, slot));
  });
}

Result<std::vector<std::string>> list_disk_instances(const std::string& path) {
  TIERCEL_TRY(open_disk_folder(path, DiskOpen::kRead));
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unreadable;
    if (std::filesystem::is_directory(entry->path() / "rank0", unreadable)) {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error) return disk_error(path, "list", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Result<DiskInstanceLook> look_at_disk_instance(const std::string& path,
                                               const std::string& instance) {
  TIERCEL_TRY_ASSIGN(const DiskPath root, open_disk_folder(path, DiskOpen::kRead));
  TIERCEL_TRY_ASSIGN(const DiskPath folder, open_disk_folder(root, instance, DiskOpen::kRead));
  DiskInstanceLook look;
  look.path = folder.path;
  for (uint32_t rank = 0; rank < kRankCountMax; ++rank) {
    const Result<DiskPath> rank_folder =
        open_disk_folder(folder, "rank" + std::to_string(rank), DiskOpen::kRead);
    if (rank_folder.code() == Code::kNotFound) continue;
    if (!rank_folder) return rank_folder.error();
    DiskRankLook rank_look;
    rank_look.rank = rank;
    TIERCEL_TRY_ASSIGN(rank_look.data, look_at_file(*rank_folder, "data", &read_data_header));
    TIERCEL_TRY_ASSIGN(rank_look.metadata,
                       look_at_file(*rank_folder, "metadata", &read_metadata_header));
    if (!look.holder && rank_look.data.file.fd) {
      TIERCEL_TRY_ASSIGN(const bool is_locked, is_disk_file_locked(rank_look.data.file));
      if (is_locked) look.holder = describe_disk_owner(folder);
    }
    look.ranks.push_back(std::move(rank_look));
  }
  return look;
}

}  // namespace tiercel
