// SPDX-License-Identifier: Apache-2.0
//
// RequestTable: what the control plane knows of each request, from the first call that names it
// until no transfer touches its device blocks any more.
//
// A request *lives* until finish() or abort(); then its id may be used again, while the old life
// goes on under its own generation until its transfers have let go. Threads: control thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/ids.h"
#include "tiercel/why.h"

#include "index/block_index.h"

namespace tiercel {

// Marks a position for which no device block was named, or (in load) that the engine has already.
inline constexpr DeviceBlockId kNoDeviceBlock{UINT32_MAX};

// kFilling: waits for the block to come from disk into the host tier.
enum class LoadState : uint8_t { kNotNeeded, kFilling, kPending, kOk, kFailed };

struct Request {
  RequestId id;
  uint32_t index = 0;       // in the table
  uint32_t generation = 0;  // no two lives share one, whatever their ids
  bool in_use = false;
  bool living = false;   // until finish or abort
  bool visited = false;  // the eviction policy has been told

  std::vector<BlockKey> keys;
  // Blocks held for the request, at most one per position and group (position × groups + group).
  std::vector<NodeId> holds;  // kNoNode: none
  uint32_t hold_count = 0;
  TimePoint last_call;

  // The load in progress, if load_open > 0 or load_unsettled > 0.
  bool loading = false;
  uint32_t load_first = 0;             // position of the first block offered
  uint32_t load_count = 0;             // positions
  uint32_t load_unsettled = 0;         // items
  Code load_code = Code::kOk;          // of the first failure
  std::vector<LoadState> load_states;  // group-major, load_count each
  uint32_t load_serial = 0;            // tells the fills of this load from those of earlier ones
  TimePoint load_deadline = kNoDeadline;
  TimePoint load_start;
  bool load_is_probe = false;
  std::vector<DeviceBlockId> load_blocks;  // as load_states; of those that come from disk
  std::vector<uint32_t> load_ready;        // entries that have come from disk and can go on
  bool load_queued = false;                // waits in the list of loads to go on with

  // The prefetch in progress.
  bool prefetching = false;
  bool prefetch_queued = false;  // waits in the list of prefetches to go on with
  uint32_t prefetch_computed = 0;
  uint32_t prefetch_bound = 0;    // blocks asked for; the request may have more
  uint32_t prefetch_pending = 0;  // answers and blocks waited for
  uint32_t prefetch_serial = 0;   // tells answers for this prefetch from those for earlier ones
  uint32_t prefetch_rounds = 0;   // bounded, so that a forgetful table cannot make it ask for ever
  TimePoint prefetch_deadline = kNoDeadline;
  TimePoint prefetch_start;
  TimePoint prefetch_wait_end;   // until then the request waits anyway
  uint32_t prefetch_chosen = 0;  // the cut that is worth it
  Code prefetch_code = Code::kOk;

  // Saving: device blocks as declared, position-major (position × groups + group).
  std::vector<DeviceBlockId> save_blocks;
  uint32_t committed_blocks = 0;    // full blocks that have KV
  uint32_t save_cursor = 0;         // positions before it are done with
  bool save_queued = false;         // waits in the list of saves
  TimePoint save_by = kNoDeadline;  // queued saves are dropped then

  uint32_t device_references = 0;  // operations in flight that touch device blocks of this request
  bool device_notice = false;      // kDeviceReleased is owed

  WhyRecord why;
};

class RequestTable {
 public:
  RequestTable(uint32_t requests_max, uint32_t why_requests);

  // The living request of this id, or nullptr.
  Request* find(RequestId id);
  // The same, made if there is none; nullptr if requests_max are in use.
  Request* find_or_create(RequestId id, TimePoint now);

  Request& at(uint32_t index) { return requests_[index]; }
  // nullptr if that life has been recycled.
  Request* at(uint32_t index, uint32_t generation);

  // Ends the life: the id is free for another. The record stays until recycle().
  void end_life(Request& request);
  // Forgets an ended life and keeps its why-record for a while.
  void recycle(Request& request);

  // Of the latest life of this id that is still known.
  const WhyRecord* why(RequestId id) const;
  // Of one life, to add to; nullptr if no longer kept.
  WhyRecord* why_of_life(RequestId id, uint32_t index, uint32_t generation);
  uint32_t living() const { return static_cast<uint32_t>(by_id_.size()); }
  uint32_t in_use() const { return in_use_; }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Request& request : requests_) {
      if (request.in_use) visit(request);
    }
  }

 private:
  const uint32_t requests_max_;
  std::deque<Request> requests_;  // stable addresses
  std::vector<uint32_t> indexes_free_;
  std::unordered_map<RequestId, uint32_t> by_id_;
  std::vector<WhyRecord> ended_;  // ring
  size_t ended_next_ = 0;
  std::unordered_map<RequestId, uint32_t> ended_by_id_;
  uint32_t in_use_ = 0;
  uint32_t last_generation_ = 0;
};

}  // namespace tiercel
