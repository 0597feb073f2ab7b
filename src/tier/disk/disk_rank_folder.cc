// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_rank_folder.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/quantity.h"
#include "tier/disk/disk_owner.h"

namespace tiercel {
namespace {

constexpr const char* kDataName = "data";
constexpr const char* kMetadataName = "metadata";

std::string folder_name(uint32_t rank) { return "rank" + std::to_string(rank); }

Status shorten(const DiskPath& file, uint64_t bytes) {
  TIERCEL_TRY_ASSIGN(const uint64_t length, disk_file_length(file));
  return length > bytes ? truncate_disk_file(file, bytes) : Status();
}

bool is_about_contents(const Error& error) {
  return error.code() == Code::kUnsupported || error.code() == Code::kCorrupt;
}

}  // namespace

Result<DiskRankFolder> DiskRankFolder::open(const DiskPath& instance, uint32_t rank, DiskOpen how,
                                            TimePoint deadline) {
  DiskRankFolder folder;
  folder.rank_ = rank;
  TIERCEL_TRY_ASSIGN(folder.folder_, open_disk_folder(instance, folder_name(rank), how));
  TIERCEL_TRY_ASSIGN(folder.data_, open_locked_disk_file(folder.folder_, kDataName, DiskOpen::kMake,
                                                         deadline, instance));
  TIERCEL_TRY_ASSIGN(folder.metadata_,
                     open_disk_file(folder.folder_, kMetadataName, DiskOpen::kMake));
  return folder;
}

Status DiskRankFolder::load() {
  const Result<DiskHeader> metadata = read_metadata_header(metadata_);
  const Result<DiskHeader> data = read_data_header(data_);
  if (metadata) header_ = *metadata;
  if (data) data_header_ = *data;
  is_data_lost_ = metadata && data.code() == Code::kNotFound;
  if (!metadata && metadata.code() != Code::kNotFound) {
    if (!is_about_contents(metadata.error())) return metadata.error();
    // A disk that does not keep what it has confirmed may lose both headers with the power.
    const bool is_ours = metadata.code() == Code::kCorrupt && data && data->rank == rank_;
    (is_ours ? lost_header_ : refusal_) = metadata.error();
  } else if (!data && data.code() != Code::kNotFound) {
    if (!is_about_contents(data.error())) return data.error();
    // With a good metadata file the folder is ours, and what the data header says is known.
    if (!metadata || data.code() == Code::kUnsupported) refusal_ = data.error();
  }
  return {};
}

Status DiskRankFolder::empty() {
  header_.reset();
  data_header_.reset();
  lost_header_.reset();
  is_data_lost_ = false;
  TIERCEL_TRY(shorten(metadata_, 0));
  TIERCEL_TRY(sync_disk_file(metadata_));
  return shorten(data_, 0);
}

Status DiskRankFolder::remove(const DiskPath& instance) {
  TIERCEL_TRY(empty());
  for (const char* name : {kMetadataName, kDataName}) {
    if (::unlinkat(folder_.fd.get(), name, 0) != 0) {
      return disk_error(folder_.path + "/" + name, "remove", errno);
    }
  }
  if (::unlinkat(instance.fd.get(), folder_name(rank_).c_str(), AT_REMOVEDIR) != 0) {
    return disk_error(folder_.path, "remove", errno);
  }
  return {};
}

Status DiskRankFolder::lengthen(const DiskPath& file, uint64_t bytes, bool reserve) {
  TIERCEL_TRY_ASSIGN(const uint64_t length_before, disk_file_length(file));
  if (reserve) {
    TIERCEL_TRY_ASSIGN(const bool is_reserved, reserve_disk_file(file, bytes));
    if (!is_reserved && &file == &data_) {
      notes_.push_back("the file system cannot reserve space for " + quoted_path(file.path) +
                       "; it grows in use");
    }
  }
  // Else there is nothing to sync, and blocks that wait to be written back could make that long.
  if (length_before >= bytes) return {};
  TIERCEL_TRY(truncate_disk_file(file, bytes));
  return sync_disk_file(file);
}

Status DiskRankFolder::lay_out(const SlotGeometry& geometry, bool reserve) {
  TIERCEL_TRY(lengthen(data_, disk_data_bytes(geometry, rank_), reserve));
  // Always reserved: a record must not fail for want of space when its payload had it.
  return lengthen(metadata_, disk_metadata_bytes(geometry), true);
}

Status DiskRankFolder::write_first_headers(DiskHeader header) {
  // Both pages, so that one that is damaged later leaves the other.
  header_ = std::move(header);
  TIERCEL_TRY(write_data_header());
  for (const uint64_t generation : {uint64_t{0}, uint64_t{1}}) {
    header_->generation = generation;
    TIERCEL_TRY(write_disk_header(metadata_, *header_));
  }
  return {};
}

Status DiskRankFolder::write_data_header() {
  TIERCEL_ASSERT(header_.has_value(), "the data file says what the metadata file says");
  data_header_ = header_;
  data_header_->kind = DiskFileKind::kData;
  data_header_->generation = 0;
  data_header_->first_sequence = 0;
  return write_disk_header(data_, *data_header_);
}

Status DiskRankFolder::fit(DiskHeader header, const SlotGeometry& before,
                           const SlotGeometry& geometry, bool reserve) {
  TIERCEL_ASSERT(header_.has_value(), "only what is made can be fitted");
  header.generation = header_->generation;
  header.first_sequence = header_->first_sequence;
  // What lies behind the end is from a change that was cut off; as records it would be stale.
  TIERCEL_TRY(shorten(metadata_, disk_metadata_bytes(before)));
  TIERCEL_TRY(shorten(data_, disk_data_bytes(before, rank_)));
  if (const Status status = lay_out(geometry, reserve); !status) {
    // What could be had of it goes back; the error is what counts.
    static_cast<void>(shorten(metadata_, disk_metadata_bytes(before)));
    static_cast<void>(shorten(data_, disk_data_bytes(before, rank_)));
    return status;
  }
  if (header != *header_) {
    ++header.generation;
    // The one that counts may so far be in the page cache only, from an owner that was killed: a
    // loss of power while the other page is written would leave neither.
    TIERCEL_TRY(sync_disk_file(metadata_));
    TIERCEL_TRY(write_disk_header(metadata_, header));
    header_ = std::move(header);
  }
  if (!data_header_ || data_header_->folder_id != header_->folder_id ||
      data_header_->rank != rank_) {
    TIERCEL_TRY(write_data_header());
  }
  TIERCEL_TRY(shorten(metadata_, disk_metadata_bytes(geometry)));
  return shorten(data_, disk_data_bytes(geometry, rank_));
}

}  // namespace tiercel
