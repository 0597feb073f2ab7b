// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_record_reader.h"

#include <algorithm>

#include <fcntl.h>

namespace tiercel {
namespace {

constexpr uint32_t kRecordsPerPiece = (uint32_t{1} << 20) / kDiskRecordBytes;

}  // namespace

DiskRecordSource record_source(const DiskPath& file) {
  // Only speeds up what follows.
  static_cast<void>(::posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
  return [&file](uint64_t offset, std::span<std::byte> out) {
    return read_disk_file(file, offset, out);
  };
}

Result<uint32_t> DiskRecordReader::read_piece() {
  const uint32_t count = std::min(end_ - begin_, kRecordsPerPiece);
  piece_.resize(size_t{count} * kDiskRecordBytes);
  TIERCEL_TRY_ASSIGN(const size_t length, source_(disk_record_offset(SlotId(begin_)), piece_));
  std::fill(piece_.begin() + static_cast<ptrdiff_t>(length), piece_.end(), std::byte{0});
  return count;
}

}  // namespace tiercel
