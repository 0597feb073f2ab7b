// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_record_writer.h"

#include <algorithm>

#include "base/assert.h"

namespace tiercel {

DiskRecordWriter::DiskRecordWriter(const DiskFolderId& folder_id, uint32_t records_max,
                                   uint64_t first_token)
    : folder_id_(folder_id), first_token_(first_token), records_(records_max * kDiskRecordBytes) {
  slots_.reserve(records_max);
  write_of_.reserve(records_max);
  writes_.reserve(records_max);
}

void DiskRecordWriter::begin() {
  TIERCEL_ASSERT(has_ended(), "the memory of a batch is written from until it has ended");
  slots_.clear();
  write_of_.clear();
  writes_.clear();
}

std::span<std::byte, kDiskRecordBytes> DiskRecordWriter::next_place(SlotId slot) {
  TIERCEL_ASSERT(slots_.empty() || slots_.back() <= slot,
                 "records come in the order of their slots");
  const size_t offset = slots_.size() * kDiskRecordBytes;
  TIERCEL_ASSERT(offset < records_.size(), "no more records than there are operations");
  slots_.push_back(slot);
  return std::span<std::byte, kDiskRecordBytes>(records_.data() + offset, kDiskRecordBytes);
}

void DiskRecordWriter::add(const DiskRecord& record) {
  encode_disk_record(record, folder_id_, next_place(record.slot));
}

void DiskRecordWriter::add_empty(SlotId slot) { std::ranges::fill(next_place(slot), std::byte{0}); }

void DiskRecordWriter::start(DiskRequestQueue& queue) {
  for (size_t begin = 0, end = 0; begin < slots_.size(); begin = end) {
    do {
      write_of_.push_back(static_cast<uint32_t>(writes_.size()));
      ++end;
    } while (end < slots_.size() && slots_[end].value() == slots_[end - 1].value() + 1);
    writes_.emplace_back(
        DiskIoRequest{.token = first_token_ + writes_.size(),
                      .kind = DiskIoKind::kWrite,
                      .file = DiskFile::kMetadata,
                      .offset = disk_record_offset(slots_[begin]),
                      .memory = std::span(records_).subspan(begin * kDiskRecordBytes,
                                                            (end - begin) * kDiskRecordBytes)});
    queue.push(writes_.back().request());
  }
  open_ = writes_.size();
}

void DiskRecordWriter::take(size_t write, int64_t result, DiskRequestQueue& queue) {
  if (writes_[write].take(result)) {
    --open_;
  } else {
    queue.push(writes_[write].request());
  }
}

}  // namespace tiercel
