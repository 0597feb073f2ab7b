// SPDX-License-Identifier: Apache-2.0
//
// JobTable: the jobs in flight, and the merging of what the ranks answer.
//
// A job's item is *settled* when all ranks have answered for it, or when the deadline of the job
// has passed (then as `timeout`). A settled item may still be *open*: some rank has not let go yet.
// The job lives until no item is open, so that every late answer finds its slot and device block.
// Threads: control thread only. Jobs and their items are reused; nothing is allocated in steady
// state.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/transfer.h"

#include "cache/cost_model.h"
#include "index/block_index.h"

namespace tiercel {

inline constexpr uint32_t kNoRequest = UINT32_MAX;

// Whether an operation of this kind brings a block into the host tier.
constexpr bool fills_host(OpKind kind) {
  return kind == OpKind::kSave || kind == OpKind::kStoreGet || kind == OpKind::kDiskGet;
}

struct JobItem {
  BlockKey key;
  NodeId node = kNoNode;  // held by this item until it is settled; kNoNode for exists and remove
  SlotId slot;            // one reference until the item is closed, if has_slot
  SlotId disk_slot;       // likewise, if has_disk_slot
  DeviceBlockId device_block;       // load and save
  uint32_t position = 0;            // in the request
  uint64_t ranks_open = 0;          // bit per rank that has not answered
  uint16_t only_rank = kEveryRank;  // see BlockOp
  GroupId group;
  Code code = Code::kOk;  // merged so far
  bool has_slot = false;
  bool has_disk_slot = false;
  bool replace = false;  // put: replaces an object that was found bad
  bool moves = false;    // disk put: the block leaves the host tier afterwards
  bool reuses = false;   // disk put: over what an evicted block has left
  bool settled = false;
};

struct Job {
  JobId id;
  OpKind kind = OpKind::kLoad;
  bool live = false;
  TimePoint deadline = kNoDeadline;
  uint32_t request = kNoRequest;  // index in the request table, and the life it belongs to
  uint32_t request_generation = 0;
  RequestId request_id;          // put: whose why-record a failure goes to
  uint32_t prefetch_serial = 0;  // exists: which of the request's prefetches asks
  uint32_t items_open = 0;
  uint32_t items_unsettled = 0;
  // What it says of the speed of its path (cost_model.h).
  CostModel::Transfer transfer;
  uint64_t units_arrived = 0;
  Code outcome = Code::kOk;
  bool is_probe = false;  // of use to no request
  std::vector<JobItem> items;
};

class JobTable {
 public:
  JobTable(uint32_t jobs_max, uint32_t rank_count);

  // A new job without items, or nullptr if jobs_max are in flight.
  Job* start(OpKind kind, TimePoint deadline, uint32_t request, uint32_t request_generation);
  // Takes a job back that was never submitted.
  void cancel(Job& job);
  // Marks all items open on the ranks that carry them out: call when the operations have been
  // submitted.
  void opened(Job& job);

  struct Answer {
    Job* job = nullptr;  // nullptr: a completion for nothing that is open
    JobItem* item = nullptr;
    bool all_ranks = false;  // the item has just been closed
  };
  // Merges one completion: ok < not_found < anything else, the first of equals stays.
  Answer merge(const Completion& completion);

  // What still comes into the host tier will have failed with `code`, whatever is answered from now
  // on.
  void fail_fills(Code code);

  // Ends the job if no item is open; its id is never used again.
  void retire_if_closed(Job& job);

  Job* find(JobId id);
  Job& at(uint32_t index) { return jobs_[index]; }
  static uint32_t index_of(JobId id) { return static_cast<uint32_t>(id.value()); }
  static uint32_t generation_of(JobId id) { return static_cast<uint32_t>(id.value() >> 32); }

  uint32_t in_flight() const { return in_flight_; }
  uint32_t room() const { return jobs_max_ - in_flight_; }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Job& job : jobs_) {
      if (job.live) visit(job);
    }
  }

 private:
  const uint32_t jobs_max_;
  const uint64_t all_ranks_;
  std::deque<Job> jobs_;  // stable addresses
  std::vector<uint32_t> generations_;
  std::vector<uint32_t> free_;
  uint32_t in_flight_ = 0;
};

}  // namespace tiercel
