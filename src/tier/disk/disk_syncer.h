// SPDX-License-Identifier: Apache-2.0
//
// DiskSyncer: the syncs of one file, one at a time. Whoever has written asks for a sync; all that
// ask while one is under way share the next.
//
// A system says once that it could not write something back, to whichever sync comes first, and
// drops what it could not write. So a failed sync counts for all that has been written and was not
// yet known to be safe, not only for those who had asked for it: failures() before a write and
// after the sync that covers it must be equal.
//
// Threads: one.
#pragma once

#include <cstdint>

#include "tiercel/status.h"

#include "tier/disk/disk_io.h"
#include "tier/disk/disk_request_queue.h"
#include "tier/disk/disk_transfer.h"

namespace tiercel {

class DiskSyncer {
 public:
  DiskSyncer(DiskFile file, uint64_t token) : file_(file), token_(token) {}

  // Something was written.
  void note_write() { is_dirty_ = true; }
  // Something was written that no sync covers yet that has gone well or may still go well.
  bool is_dirty() const { return is_dirty_; }

  // A sync of all that has been written so far. Has ended when has_ended(what this returned).
  uint64_t request() {
    is_wanted_ = true;
    return started_ + 1;
  }
  bool has_ended(uint64_t sync) const { return ended_ >= sync; }

  bool is_running() const { return ended_ != started_; }
  uint64_t failures() const { return failures_; }
  // Of the last that has failed.
  Code failure() const { return failure_; }

  // Begins what is wanted, if none is running.
  void start(DiskRequestQueue& queue) {
    if (!is_wanted_ || is_running()) return;
    is_wanted_ = false;
    is_dirty_ = false;
    ++started_;
    transfer_ = DiskTransfer({.token = token_, .kind = DiskIoKind::kSync, .file = file_});
    queue.push(transfer_.request());
  }

  // True: a sync has ended well.
  bool take(int64_t result, DiskRequestQueue& queue) {
    if (!transfer_.take(result)) {
      queue.push(transfer_.request());
      return false;
    }
    ended_ = started_;
    if (transfer_.code() == Code::kOk) return true;
    ++failures_;
    failure_ = transfer_.code();
    is_dirty_ = true;
    return false;
  }

 private:
  const DiskFile file_;
  const uint64_t token_;
  bool is_dirty_ = false;
  bool is_wanted_ = false;
  uint64_t started_ = 0;
  uint64_t ended_ = 0;
  uint64_t failures_ = 0;
  Code failure_ = Code::kOk;
  DiskTransfer transfer_;
};

}  // namespace tiercel
