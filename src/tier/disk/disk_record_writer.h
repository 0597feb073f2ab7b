// SPDX-License-Identifier: Apache-2.0
//
// DiskRecordWriter: writes a batch of records; those of neighbouring slots go out as one write.
//
// One batch at a time: begin, add all, start, take every answer until has_ended, ask for the codes.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

#include "tier/disk/disk_format.h"
#include "tier/disk/disk_request_queue.h"
#include "tier/disk/disk_transfer.h"

namespace tiercel {

class DiskRecordWriter {
 public:
  // The n-th write of a batch has the token `first_token` + n; n < `records_max`.
  DiskRecordWriter(const DiskFolderId& folder_id, uint32_t records_max, uint64_t first_token);

  void begin();
  // In ascending order of the slots, at most `records_max`.
  void add(const DiskRecord& record);
  // Zeros: nothing stands in the slot.
  void add_empty(SlotId slot);
  void start(DiskRequestQueue& queue);

  // The answer to the n-th write.
  void take(size_t write, int64_t result, DiskRequestQueue& queue);
  bool has_ended() const { return open_ == 0; }
  // Of the n-th record that was added.
  Code code(size_t record) const { return writes_[write_of_[record]].code(); }

 private:
  std::span<std::byte, kDiskRecordBytes> next_place(SlotId slot);

  const DiskFolderId folder_id_;
  const uint64_t first_token_;
  std::vector<std::byte> records_;  // side by side, as they were added
  std::vector<SlotId> slots_;       // of each record
  std::vector<uint32_t> write_of_;  // of each record
  std::vector<DiskTransfer> writes_;
  size_t open_ = 0;  // writes without an answer
};

}  // namespace tiercel
