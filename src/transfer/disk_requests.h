// SPDX-License-Identifier: Apache-2.0
//
// DiskRequests: the disk operations of one rank worker while they are with its disk.
//
// Ownership: owns the disk. Threads: one. Allocates nothing in steady state.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/transfer.h"

#include "tier/disk/rank_disk.h"
#include "transfer/op_queue.h"

namespace tiercel {

class DiskRequests {
 public:
  // `disk` may be null: then nothing may be started.
  explicit DiskRequests(std::unique_ptr<RankDisk> disk) : disk_(std::move(disk)) {}

  bool exists() const { return disk_ != nullptr; }
  RankDisk& disk() { return *disk_; }
  const RankDisk& disk() const { return *disk_; }
  int completion_fd() const { return disk_ ? disk_->completion_fd() : -1; }
  size_t in_flight() const { return disk_ ? disk_->in_flight() : 0; }
  // Of the kind, taken by the disk and not yet ended.
  size_t in_flight(OpKind kind) const { return paths_[static_cast<size_t>(kind)].open; }

  // Hands `op` to the disk; `memory` is its host slot, empty for a clear. kOk: it ends through
  // collect(); kBusy: ask again later; else it has ended so.
  Code start(const BlockOp& op, std::span<std::byte> memory, TimePoint now) {
    const uint64_t token = next_token();
    const Code code = start(token, op, memory);
    if (code != Code::kOk) return code;
    entries_[token] = op;
    free_.pop_back();
    Path& path = paths_[static_cast<size_t>(op.kind)];
    if (path.open++ == 0) path.busy_since = now;
    return Code::kOk;
  }

  // Takes in what the disk has done and calls ended(op, code, busy) for each; true if there was
  // any. `busy` is not zero for the last of its kind: since when operations of the kind were with
  // the disk without a pause.
  template <typename Ended>
  bool collect(TimePoint now, Ended&& ended) {
    if (!disk_) return false;
    bool any = false;
    std::array<DiskDone, 64> done;
    while (true) {
      const size_t count = disk_->poll(done);
      for (const DiskDone& one : std::span(done).first(count)) {
        const BlockOp op = entries_[one.token];
        free_.push_back(one.token);
        Path& path = paths_[static_cast<size_t>(op.kind)];
        ended(op, one.code, --path.open == 0 ? now - path.busy_since : Duration::zero());
      }
      any |= count > 0;
      if (count < done.size()) return any;
    }
  }

 private:
  struct Path {
    size_t open = 0;
    TimePoint busy_since;
  };

  uint64_t next_token() {
    if (!free_.empty()) return free_.back();
    entries_.emplace_back();
    free_.push_back(entries_.size() - 1);
    return free_.back();
  }

  Code start(uint64_t token, const BlockOp& op, std::span<std::byte> memory) {
    switch (op.kind) {
      case OpKind::kDiskGet:
        return disk_->start(DiskGet{token, op.disk_slot, op.group, memory});
      case OpKind::kDiskPut:
        return disk_->start(DiskPut{token, op.disk_slot, op.group, memory,
                                    op.has_parent == 1 ? std::optional(op.parent) : std::nullopt});
      default:
        return disk_->start_clear(token);
    }
  }

  const std::unique_ptr<RankDisk> disk_;
  std::vector<BlockOp> entries_;  // by token
  std::vector<uint64_t> free_;    // tokens
  std::array<Path, kOpKindCount> paths_{};
};

}  // namespace tiercel
