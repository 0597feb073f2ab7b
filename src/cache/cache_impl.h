// SPDX-License-Identifier: Apache-2.0
//
// The state machine behind Cache. Its verbs are spread over files by concern:
//   cache.cc           construction, match, finish/abort, clear, close
//   cache_check.cc     stats, checks
//   cache_load.cc      host tier → device
//   cache_prefetch.cc  store → host tier
//   cache_save.cc      device → host tier → store
//   cache_disk.cc      host tier → disk, and what a restart finds there
//   cache_promote.cc   disk → host tier → device, for a load
//   cache_cost.cc      load or recompute
//   cache_poll.cc      completions, deadlines, pumps
//
// Ownership inside: an unsettled job item holds its node; an open job item (some rank has not let
// go) has a reference on its slot and, for load and save, on its request's device blocks. Threads:
// control thread only.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tiercel/cache.h"

#include "cache/cost_model.h"
#include "cache/disk_parts.h"
#include "cache/existence_table.h"
#include "cache/fill_table.h"
#include "cache/job_table.h"
#include "cache/owned_tier.h"
#include "cache/path_view.h"
#include "cache/protections.h"
#include "cache/request_table.h"
#include "cache/sightings.h"
#include "cache/slot_faults.h"
#include "cache/timers.h"
#include "cache/writer_choice.h"
#include "index/block_index.h"
#include "transfer/fifo.h"

namespace tiercel {

class Cache::Impl {
 public:
  // `disk` may be null.
  Impl(const Protections& protections, const CacheConfig& config, const SlotGeometry& geometry,
       const DiskParts* disk, std::unique_ptr<BlockIndex> index, DataPlane& plane,
       const Clock& clock);

  // The public verbs; see tiercel/cache.h.
  Match match(std::span<const BlockKey> keys, uint32_t computed_blocks,
              std::span<BlockPlace> places);
  Result<bool> prefetch(RequestId id, std::span<const BlockKey> keys, uint32_t computed_blocks,
                        TimePoint deadline, Duration wait);
  Result<uint32_t> load(RequestId id, std::span<const BlockKey> keys, uint32_t computed_blocks,
                        std::span<const DeviceBlockId> device_blocks, TimePoint deadline);
  Status save(RequestId id, std::span<const BlockKey> keys, uint32_t first_block,
              std::span<const DeviceBlockId> device_blocks);
  Status commit(RequestId id, uint64_t token_count);
  Result<Farewell> end(RequestId id, bool aborted);
  size_t poll(std::span<CacheEvent> events);
  TimePoint next_deadline() const {
    const bool clears = disk_clear_owed_ && !disk_clear_open_;
    return clears ? std::min(timers_.next(), disk_clear_at_) : timers_.next();
  }
  bool idle() const;
  bool settled() const;
  const WhyRecord* why(RequestId id) const { return requests_.why(id); }
  CacheStats stats() const;
  void observe_prefill(uint64_t tokens, uint64_t context_tokens, Duration duration) {
    costs_.observe_prefill(tokens, context_tokens, duration, clock_.now());
  }
  LoadEstimates load_estimates() const { return costs_.estimates(); }
  void clear();
  // As clear(), but what is known of the store stays.
  void forget_tiers();
  uint32_t stored_blocks(std::span<const BlockKey> keys) const;
  void device_lost();
  void close(TimePoint deadline);
  bool closed() const;
  std::string check(bool quiet, uint64_t device_holds) const;
  const CacheConfig& config() const { return config_; }
  BlockIndex& index() { return index_; }

 private:
  friend class Cache;

  struct QueuedRequest {
    uint32_t index = 0;
    uint32_t generation = 0;
  };
  struct QueuedPut {
    NodeId node = kNoNode;  // held
    RequestId request_id;   // for its why-record
    uint32_t request = 0;
    uint32_t generation = 0;
    uint32_t position = 0;
  };

  struct ProbeNext {
    uint32_t request = 0;
    uint32_t generation = 0;
    uint32_t group = 0;
    uint32_t position = 0;
  };

  // Shared by all verbs (cache.cc).
  uint32_t groups() const { return view_.group_count(); }
  bool refuses_work() const { return closing_ || clear_pending_; }
  Status check_computed(std::string_view verb, RequestId id, uint32_t computed_blocks,
                        size_t key_count) const;
  Result<Request*> request_for(RequestId id, std::span<const BlockKey> keys);
  // Tells the eviction policy, once per life. `view_is_whole`: view_ shows the path from its first
  // block.
  void visit_path(Request& request, uint32_t known_blocks, bool view_is_whole);
  void count_hit(Request& request, NodeId node, uint32_t position);
  void unhold_node(NodeId node);
  void drop_bad_copy(OwnedTier& tier, NodeId node, SlotId slot);
  // Takes away every place of a block.
  void drop_everywhere(NodeId node);
  void hold_for(Request& request, NodeId node, uint32_t position);
  void release_holds(Request& request);
  // What view_ shows in tiers of ours before `cut` is safe from our own search for room, until
  // unhold_path().
  void hold_path(uint32_t cut);
  void unhold_path(uint32_t cut);
  void add_timer(TimerKind kind, TimePoint at, uint32_t index, uint32_t generation);
  void emit(const CacheEvent& event) { events_.push(event); }
  void explain_unserved(Request& request, uint32_t from, WhyReason behind_ready);
  void recycle_if_done(Request& request);

  // Jobs (cache_poll.cc). Items are added while the caller knows that the plane has room.
  size_t room(uint32_t reserved_share) const;
  JobItem& add_item(Job& job, NodeId node, const BlockKey& key, GroupId group, uint32_t position);
  uint16_t who_carries_out(OpKind kind, const BlockKey& key);
  void submit(Job& job);
  // The same, or takes the job back if nothing came into it; null: nothing.
  void submit_or_cancel(Job* job);
  void take_completions();
  void notice_memory_losses();
  void close_item(Job& job, JobItem& item);
  void settle(Job& job, JobItem& item, Code code);
  void expire(Job& job);
  void run_timers();
  void on_timer(const Timer& timer);
  void sweep();
  uint64_t expected_holds() const;
  std::string check_disk(uint64_t references, uint64_t filling) const;

  // cache_load.cc
  uint32_t start_load(Request& request, uint32_t cut, std::span<const DeviceBlockId> device_blocks,
                      uint32_t offered, TimePoint deadline);
  LoadState& load_state(Request& request, GroupId group, uint32_t position);
  // One block of the load has ended; the last one ends the load.
  void end_load_entry(Request& request, LoadState& state, Code code);
  void settle_load(Job& job, JobItem& item, Code code);
  void finish_load(Request& request);
  uint32_t loaded_cut(const Request& request) const;

  // cache_prefetch.cc
  void advance_prefetch(Request& request);
  uint32_t ask_store(Request& request, uint32_t cut, bool* no_room);
  uint32_t fetch(Request& request, uint32_t cut, bool* no_room);
  NodeId node_for_fill(std::span<const BlockKey> keys, GroupId group, uint32_t position);
  void finish_prefetch(Request& request, Code code);
  void queue_prefetch(Request& request);
  void pump_prefetches();
  void settle_exists(Job& job, JobItem& item, Code code);
  void settle_get(Job& job, JobItem& item, Code code);

  // cache_save.cc
  uint32_t save_end(const Request& request) const;
  void queue_save(Request& request);
  void pump_saves();
  // One walk over the positions of a request.
  struct SaveRun {
    Job* job = nullptr;
    std::array<NodeId, kGroupCountMax> before{};  // node of the position before, if it was met
  };
  bool pump_save(Request& request);
  bool wants_save(Request& request, uint32_t position);
  bool start_save(Request& request, uint32_t position, SaveRun& run);
  void drop_saves(Request& request, WhyReason reason);
  void settle_save(Job& job, JobItem& item, Code code);
  // Room for a block that is to be filled, and the item that fills it. Without room the node is
  // given back unless something else needs it.
  std::optional<SlotId> acquire_for(NodeId node);
  JobItem& begin_fill(Job& job, NodeId node, SlotId slot, const BlockKey& key, GroupId group,
                      uint32_t position);
  void end_fill(NodeId node, uint32_t position, Code code);
  static QueuedPut queued_put(NodeId node, const Request* request, uint32_t position);
  void queue_put(NodeId node, Request* request, uint32_t position);
  void pump_puts();
  void settle_put(Job& job, JobItem& item, Code code);
  // Of the rank whose store is least healthy.
  ReasonText store_reason() const;
  void add_why(const Job& job, uint32_t position, WhyReason reason, Code code);

  // cache_disk.cc
  void adopt(const DiskContents& contents);
  bool adopt(const DiskBlock& block, std::vector<uint32_t>& depths);
  void note_disk_health();
  bool wants_disk_put(NodeId node) const;
  uint64_t write_back_free_slots() const;
  void queue_disk_put(NodeId node, Request* request, uint32_t position);
  // What waits is of before a clear(), and would hold it up for as long as the disks are away.
  void drop_disk_puts();
  void pump_disk();
  void pump_disk_clear();
  void pump_disk_puts();
  void pump_moves();
  // moved_path_: what stands before `node` and is not on disk, nearest first. Without it a restart
  // could not reach the node.
  void find_ancestors_to_put(NodeId node);
  bool is_stuck(NodeId node);
  std::optional<SlotId> acquire_at_cost_of_disk(GroupId group);
  bool add_disk_put(Job& job, NodeId node, uint32_t position, bool moves);
  // Whether the disk takes puts now; the code says why not.
  Code disk_put_refusal() const;
  void settle_disk_put(Job& job, JobItem& item, Code code);
  void fail_disk_put(const Job& job, const JobItem& item, Code code);
  // The slot does not hold the block, or could not be read.
  void fail_disk_get(NodeId node, SlotId slot, Code code);
  void settle_disk_clear(Code code);

  // cache_promote.cc
  void promote_for_load(Request& request, uint32_t cut);
  void end_fill_for_load(Request& request, NodeId node, uint32_t entry, bool arrived, Code code);
  void fail_fills_of_load(Request& request, Code code);
  void queue_load(Request& request);
  void pump_loads();
  bool pump_load(Request& request);

  // cache_cost.cc
  uint64_t units_of_item(OpKind kind, GroupId group) const;
  // What has to be moved for one block that view_ shows.
  CutWork work_of(uint32_t group, uint32_t position) const;
  // works_: for every cut that view_ shows up to `cut`.
  void collect_works(uint32_t cut);
  // How much of `cut` is worth loading; all of it where nobody is asked.
  uint32_t choose_cut(Request& request, uint32_t cut, bool staged, TimePoint deadline,
                      Duration wait, LoadChoice& choice);
  // When waiting for what was chosen is given up.
  TimePoint patience(const LoadChoice& choice, TimePoint deadline, Duration wait) const;
  void note_poll();
  void note_submitted(Job& job);
  void note_settled(Job& job, const JobItem& item, Code code);
  // Finds out, if it is time to, how fast the path is on which the block at `from` lies. Looks
  // anew.
  void probe_behind(Request& request, uint32_t computed, uint32_t from);
  bool probe(Request& request, uint32_t group, uint32_t from, OpKind kind);
  // A probe has found that the store has a block: the next one may fetch it.
  void note_probe_answer(const Job& job, const JobItem& item);
  void pump_probe();
  // Whether a request should find out how fast the way to the device is: there a probe needs device
  // blocks, so a request has to pay for it. view_ shows its path.
  bool probes_device(uint32_t cut);

  // Constant after construction.
  const Protections protections_;
  const CacheConfig config_;
  DataPlane& plane_;
  const Clock& clock_;
  const size_t plane_capacity_;
  const uint64_t quarantine_slots_max_;
  const uint32_t put_queue_max_;
  const uint32_t disk_put_queue_max_;
  const std::vector<uint64_t> block_bytes_;  // by group, of the rank with the largest slice

  const std::unique_ptr<BlockIndex> index_owner_;
  BlockIndex& index_;
  OwnedTier host_;
  const std::unique_ptr<OwnedTier> disk_;  // null: there is no disk tier
  FillTable fills_;
  ExistenceTable existence_;
  Sightings sightings_;
  JobTable jobs_;
  RequestTable requests_;
  WriterChoice writers_;
  Timers timers_;
  CostModel costs_;
  TimePoint settle_time_;      // of what is being settled: the clock is read once for many
  TimePoint last_poll_;        // what is completed now was not by then
  Duration poll_interval_{0};  // mean of the last few
  std::optional<ProbeNext> probe_next_;
  PathView view_;

  Fifo<QueuedRequest> save_queue_;
  Fifo<QueuedRequest> prefetch_queue_;
  Fifo<QueuedRequest> load_queue_;
  Fifo<QueuedPut> put_queue_;
  uint32_t puts_open_ = 0;  // blocks that some rank still puts; bounded together with the queue
  Fifo<QueuedPut> disk_put_queue_;
  uint32_t disk_puts_open_ = 0;  // likewise
  // [node], empty without a disk tier: a put to disk is queued or has not been settled; its node is
  // held. Not of the host tier's copy, which may go and come back meanwhile: two puts of one block
  // that both end well leave two records, and a restart would take the one that we do not know of.
  std::vector<bool> is_put_to_disk_;
  SlotFaults disk_faults_;
  // Until then free slots have no space in the file system, and blocks are written over others.
  TimePoint disk_full_until_{};
  TimePoint disk_puts_at_{};      // not before: writing over others failed for want of space too
  uint32_t moves_open_ = 0;       // of these, those that leave the host tier afterwards
  TimePoint moves_at_;            // not before
  bool host_was_short_ = false;   // somebody found no slot since the last moves
  bool disk_usable_ = true;       // no rank has given its disk up
  bool disk_clear_owed_ = false;  // a clear() is not through on every rank; no puts meanwhile
  bool disk_clear_open_ = false;  // the ranks are at it
  TimePoint disk_clear_at_;       // not before
  Fifo<CacheEvent> events_;
  std::vector<BlockOp> ops_;             // scratch of submit()
  std::vector<Completion> completions_;  // scratch of take_completions()
  std::vector<NodeId> moved_path_;       // scratch of pump_moves()
  std::vector<CutWork> works_;           // scratch of choose_cut()

  std::vector<uint64_t> memory_epochs_;  // [rank], as last seen
  bool clear_pending_ = false;
  bool closing_ = false;
  TimePoint close_deadline_ = kNoDeadline;
  CacheStats stats_;
};

}  // namespace tiercel
