// SPDX-License-Identifier: Apache-2.0
//
// DiskRecordReader: reads the records of a metadata file one after the other, in pieces of about a
// MiB.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

#include "tier/disk/disk_file.h"
#include "tier/disk/disk_format.h"

namespace tiercel {

// Where records come from: reads from `offset` of a metadata file on, up to the end of `out` or of
// the file, and returns how much.
using DiskRecordSource = std::function<Result<size_t>(uint64_t offset, std::span<std::byte> out)>;

// Of a file that stays open as long as the source is used.
DiskRecordSource record_source(const DiskPath& file);

// What a rank must know of its records, as in DiskRankFiles.
struct DiskRankRecords {
  uint64_t next_sequence = 1;
  std::vector<uint32_t> payload_checksums;

  // Of a metadata file whose header says `first_sequence`, before any record.
  DiskRankRecords(uint64_t first_sequence, uint32_t slot_count)
      : next_sequence(std::max<uint64_t>(1, first_sequence)), payload_checksums(slot_count) {}

  // `record` is valid; whether it counts otherwise does not matter. Its slot is below the count.
  void note(const DiskRecord& record) {
    payload_checksums[record.slot.value()] = record.payload_checksum;
    if (record.sequence >= next_sequence && record.sequence != UINT64_MAX) {
      next_sequence = record.sequence + 1;
    }
  }
};

class DiskRecordReader {
 public:
  using RecordBytes = std::span<const std::byte, kDiskRecordBytes>;

  // Records of the slots from `begin` to before `end`.
  DiskRecordReader(DiskRecordSource source, uint32_t begin, uint32_t end)
      : source_(std::move(source)), begin_(begin), end_(end) {}
  // The file stays open that long.
  DiskRecordReader(const DiskPath& file, uint32_t begin, uint32_t end)
      : DiskRecordReader(record_source(file), begin, end) {}

  // Calls visit(slot, bytes) for each. Where the file is too short, bytes are zero: such slots are
  // empty. Fails as the source does.
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

  const DiskRecordSource source_;
  uint32_t begin_;
  const uint32_t end_;
  std::vector<std::byte> piece_;
};

}  // namespace tiercel
