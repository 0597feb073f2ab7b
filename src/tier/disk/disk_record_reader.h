// SPDX-License-Identifier: Apache-2.0
//
// DiskRecordReader: reads the records of a metadata file one after the other, in pieces of about a
// MiB.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

#include "tier/disk/disk_file.h"
#include "tier/disk/disk_format.h"

namespace tiercel {

class DiskRecordReader {
 public:
  using RecordBytes = std::span<const std::byte, kDiskRecordBytes>;

  // Records of the slots from `begin` to before `end`. The file stays open that long.
  DiskRecordReader(const DiskPath& file, uint32_t begin, uint32_t end);

  // Calls visit(slot, bytes) for each. Where the file is too short, bytes are zero: such slots are
  // empty. kUnavailable if the file cannot be read.
  template <typename Visit>
  Status for_each(Visit&& visit) {
    while (begin_ < end_) {
      TIERCEL_TRY_ASSIGN(const uint32_t count, read_piece());
      for (uint32_t i = 0; i < count; ++i) {
        visit(SlotId(begin_ + i),
              RecordBytes(piece_.data() + size_t{i} * kDiskRecordBytes, kDiskRecordBytes));
      }
      begin_ += count;
    }
    return {};
  }

 private:
  Result<uint32_t> read_piece();

  const DiskPath& file_;
  uint32_t begin_;
  const uint32_t end_;
  std::vector<std::byte> piece_;
};

}  // namespace tiercel
