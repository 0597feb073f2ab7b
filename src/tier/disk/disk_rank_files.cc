// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_rank_files.h"

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

}  // namespace

Result<DiskRankRecords> read_disk_rank_records(const DiskRecordSource& source,
                                               const DiskHeader& header, uint32_t slot_count) {
  DiskRankRecords records(header.first_sequence, slot_count);
  DiskRecordReader reader(source, 0, slot_count);
  TIERCEL_TRY(reader.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
    const auto record = decode_disk_record(bytes, header.folder_id, slot);
    if (record) records.note(*record);
  }));
  return records;
}

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
  TIERCEL_TRY_ASSIGN(
      DiskRankRecords records,
      read_disk_rank_records(record_source(metadata_file), header, geometry.slot_count_max()));
  DiskRankFiles files;
  files.direct = (::fcntl(data_file.fd.get(), F_GETFL) & O_DIRECT) != 0;
  files.data = std::move(data_file.fd);
  files.metadata = std::move(metadata_file.fd);
  files.header = std::move(header);
  files.next_sequence = records.next_sequence;
  files.payload_checksums = std::move(records.payload_checksums);
  return files;
}

}  // namespace tiercel
