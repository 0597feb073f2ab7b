// SPDX-License-Identifier: Apache-2.0
//
// DiskHeaderWriter: changes the header of a metadata file. Of its two pages the one that does not
// count now is written over, so that a torn write leaves the other.
//
// Threads: one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tiercel/status.h"

#include "tier/disk/disk_format.h"
#include "tier/disk/disk_request_queue.h"
#include "tier/disk/disk_transfer.h"

namespace tiercel {

class DiskHeaderWriter {
 public:
  // `header`: the one that counts now.
  DiskHeaderWriter(const DiskHeader& header, uint64_t token, bool alternates = true)
      : header_(header), token_(token), alternates_(alternates) {}

  // Writes the next generation, in which records below `first_sequence` are invalid.
  void start(uint64_t first_sequence, DiskRequestQueue& queue) {
    next_ = header_;
    ++next_.generation;
    next_.first_sequence = first_sequence;
    encode_disk_header(next_, page_);
    const uint64_t generation = alternates_ ? next_.generation : header_.generation;
    transfer_ = DiskTransfer({.token = token_,
                              .kind = DiskIoKind::kWrite,
                              .file = DiskFile::kMetadata,
                              .offset = disk_header_offset(generation),
                              .memory = page_});
    queue.push(transfer_.request());
  }

  // True: the write has ended, code() says how.
  bool take(int64_t result, DiskRequestQueue& queue) {
    if (transfer_.take(result)) return true;
    queue.push(transfer_.request());
    return false;
  }
  Code code() const { return transfer_.code(); }

  // What was written is safe: it counts from now on. Without this the next start() writes over it.
  void accept() { header_ = next_; }

 private:
  DiskHeader header_;
  DiskHeader next_;
  const uint64_t token_;
  const bool alternates_;
  DiskTransfer transfer_;
  std::array<std::byte, kDiskHeaderBytes> page_{};
};

}  // namespace tiercel
