// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_record_reader.h"

#include <algorithm>

#include <fcntl.h>

namespace tiercel {
namespace {

constexpr uint32_t kRecordsPerPiece = (uint32_t{1} << 20) / kDiskRecordBytes;

}  // namespace

DiskRecordReader::DiskRecordReader(const DiskPath& file, uint32_t begin, uint32_t end)
    : file_(file), begin_(begin), end_(end) {
  // Only speeds up what follows.
  static_cast<void>(::posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
}

Result<uint32_t> DiskRecordReader::read_piece() {
  const uint32_t count = std::min(end_ - begin_, kRecordsPerPiece);
  piece_.resize(size_t{count} * kDiskRecordBytes);
  TIERCEL_TRY_ASSIGN(const size_t length,
                     read_disk_file(file_, disk_record_offset(SlotId(begin_)), piece_));
  std::fill(piece_.begin() + static_cast<ptrdiff_t>(length), piece_.end(), std::byte{0});
  return count;
}

}  // namespace tiercel
