// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_rank_files.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "tier/disk/disk_file.h"
#include "tier/disk/disk_record_reader.h"

namespace tiercel {
namespace {

Status check_file(const DiskPath& file) {
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) return disk_error(file.path, "look at", errno);
  if (S_ISREG(status.st_mode)) return {};
  return Error(Code::kInvalid, file.path + " of the disk tier is no file");
}

// Higher than any in the file.
Result<uint64_t> next_sequence_of(const DiskPath& metadata, const DiskHeader& header,
                                  const SlotGeometry& geometry) {
  uint64_t next = std::max<uint64_t>(1, header.first_sequence);
  DiskRecordReader reader(metadata, 0, geometry.slot_count_max());
  TIERCEL_TRY(reader.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
    const auto record = decode_disk_record(bytes, header.folder_id, slot);
    if (record) next = std::max(next, record->sequence + 1);
  }));
  return next;
}

}  // namespace

Result<SlotGeometry> disk_geometry_of(const DiskHeader& header) {
  SlotGeometryOptions options;
  for (const uint64_t bytes : header.payload_bytes) {
    options.payload_bytes.emplace_back(header.rank_count, bytes);
  }
  options.extent_count = header.extent_count;
  options.slots_per_extent = header.slots_per_extent;
  options.last_extent_slots = header.last_extent_slots;
  return SlotGeometry::create(std::move(options));
}

Result<DiskRankFiles> read_disk_rank_files(FileDescriptor data, FileDescriptor metadata,
                                           uint32_t rank) {
  DiskPath data_file{std::move(data), "the data file"};
  DiskPath metadata_file{std::move(metadata), "the metadata file"};
  TIERCEL_TRY(check_file(data_file));
  TIERCEL_TRY(check_file(metadata_file));
  TIERCEL_TRY_ASSIGN(DiskHeader header, read_metadata_header(metadata_file));
  if (header.rank != rank) {
    return Error(Code::kInvalid, "the files of the disk tier are those of rank " +
                                     std::to_string(header.rank) + "; allowed: of rank " +
                                     std::to_string(rank));
  }
  TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, disk_geometry_of(header));
  TIERCEL_TRY_ASSIGN(const uint64_t next, next_sequence_of(metadata_file, header, geometry));
  DiskRankFiles files;
  files.direct = (::fcntl(data_file.fd.get(), F_GETFL) & O_DIRECT) != 0;
  files.data = std::move(data_file.fd);
  files.metadata = std::move(metadata_file.fd);
  files.header = std::move(header);
  files.next_sequence = next;
  return files;
}

}  // namespace tiercel
