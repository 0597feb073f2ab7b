// SPDX-License-Identifier: Apache-2.0
//
// What poll() does: completions, deadlines, and starting what waits.
#include <algorithm>
#include <utility>

#include "cache/cache_impl.h"

namespace tiercel {
namespace {

constexpr uint16_t kDiskRankOfReplicas = 0;

}  // namespace

size_t Cache::Impl::poll(std::span<CacheEvent> events) {
  note_disk_health();
  take_completions();
  run_timers();
  sweep();
  pump_loads();
  pump_prefetches();
  pump_probe();
  pump_saves();
  pump_puts();
  pump_disk();
  note_poll();
  return events_.take(events);
}

size_t Cache::Impl::room(uint32_t reserved_share) const {
  // Optional work leaves a share of the rings to what is worth more: loads before prefetches before
  // saves.
  const size_t reserved = reserved_share == 0 ? 0 : plane_capacity_ / reserved_share;
  const size_t capacity = plane_.submit_capacity();
  if (capacity <= reserved || jobs_.room() == 0) return 0;
  return std::min(capacity - reserved, static_cast<size_t>(jobs_.room()) * config_.job_blocks_max);
}

JobItem& Cache::Impl::add_item(Job& job, NodeId node, const BlockKey& key, GroupId group,
                               uint32_t position) {
  JobItem& item = job.items.emplace_back();
  item.node = node;
  item.key = key;
  item.group = group;
  item.position = position;
  if (node != kNoNode && (job.kind != OpKind::kLoad || protections_.load_holds)) {
    index_.hold(node);
  }
  return item;
}

uint16_t Cache::Impl::who_carries_out(OpKind kind, const BlockKey& key) {
  if (!config_.replicated_slices || kind == OpKind::kLoad) return kEveryRank;
  // One rank's files hold what is equal on all of them.
  if (uses_disk(kind)) return kDiskRankOfReplicas;
  return writers_.choose(key, clock_.now());
}

void Cache::Impl::submit(Job& job) {
  ops_.clear();
  for (uint32_t i = 0; i < job.items.size(); ++i) {
    JobItem& item = job.items[i];
    if (item.has_slot) host_.add_reference(item.slot);
    if (item.has_disk_slot) disk_->add_reference(item.disk_slot);
    item.only_rank = who_carries_out(job.kind, item.key);
    BlockOp& op = ops_.emplace_back();
    op.job = job.id;
    op.key = item.key;
    op.deadline_ns = job.deadline.time_since_epoch().count();
    op.item = i;
    op.slot = item.slot;
    op.device_block = item.device_block;
    op.token_count = config_.spec.block_tokens;
    op.kind = job.kind;
    op.group = item.group;
    op.replace = item.replace ? 1 : 0;
    op.only_rank = item.only_rank;
    op.disk_slot = item.disk_slot;
    if (job.kind != OpKind::kDiskPut) continue;
    const NodeId parent = index_.parent(item.node);
    if (parent == kNoNode) continue;
    op.has_parent = 1;
    op.parent = index_.key(parent);
  }
  jobs_.opened(job);
  note_submitted(job);
  if (plane_.submit(ops_)) {
    add_timer(TimerKind::kJob, job.deadline, JobTable::index_of(job.id),
              JobTable::generation_of(job.id));
    return;
  }
  // The plane said that it had room and now has not: it is closing. Nothing was started.
  settle_time_ = clock_.now();
  for (JobItem& item : job.items) {
    item.ranks_open = 0;
    --job.items_open;
    close_item(job, item);
    settle(job, item, Code::kUnavailable);
  }
  jobs_.retire_if_closed(job);
}

void Cache::Impl::submit_or_cancel(Job* job) {
  if (job == nullptr) return;
  if (job->items.empty()) {
    jobs_.cancel(*job);
  } else {
    submit(*job);
  }
}

void Cache::Impl::take_completions() {
  for (uint32_t taken = 0; taken < config_.completions_per_poll_max;) {
    const size_t count = plane_.poll(completions_);
    notice_memory_losses();
    if (count == 0) return;
    settle_time_ = clock_.now();
    taken += static_cast<uint32_t>(count);
    for (const Completion& completion : std::span(completions_).first(count)) {
      const JobTable::Answer answer = jobs_.merge(completion);
      if (answer.job == nullptr) {
        ++stats_.stale_completions;
        continue;
      }
      Job& job = *answer.job;
      JobItem& item = *answer.item;
      if (answer.all_ranks) close_item(job, item);
      if (!item.settled && (answer.all_ranks || !protections_.all_ranks)) {
        settle(job, item, item.code);
      } else if (item.settled && answer.all_ranks) {
        ++stats_.stale_completions;  // after its deadline: what it held is free now
      }
      if (answer.all_ranks) jobs_.retire_if_closed(job);
    }
  }
}

void Cache::Impl::notice_memory_losses() {
  bool lost = false;
  for (uint32_t rank = 0; rank < memory_epochs_.size(); ++rank) {
    const uint64_t epoch = plane_.memory_epoch(rank);
    if (std::exchange(memory_epochs_[rank], epoch) == epoch) continue;
    ++stats_.memory_losses;
    lost = true;
  }
  // A block counts only where every rank has it, so what one rank has lost is lost. What the other
  // ranks still have of it goes with the sweep.
  if (!lost || !protections_.memory_loss) return;
  if (disk_ != nullptr) {
    host_.drop_all();  // what lies on disk is still there
    // The rank may have answered before it lost what it had brought.
    jobs_.fail_fills(Code::kUnavailable);
  } else {
    forget_tiers();
  }
}

void Cache::Impl::close_item(Job& job, JobItem& item) {
  if (item.has_slot) host_.drop_reference(item.slot);
  if (item.has_disk_slot) disk_->drop_reference(item.disk_slot);
  if (job.kind == OpKind::kStorePut) --puts_open_;
  if (job.kind == OpKind::kDiskPut) --disk_puts_open_;
  if (!uses_device(job.kind)) return;
  Request* request = requests_.at(job.request, job.request_generation);
  TIERCEL_ASSERT(request != nullptr, "a request outlives the transfers that touch its blocks");
  --request->device_references;
  if (request->device_references == 0 && item.settled) recycle_if_done(*request);
}

void Cache::Impl::settle(Job& job, JobItem& item, Code code) {
  item.settled = true;
  --job.items_unsettled;
  note_settled(job, item, code);
  if (item.only_rank != kEveryRank && !uses_disk(job.kind)) {
    writers_.note(item.only_rank, code, clock_.now());
  }
  switch (job.kind) {
    case OpKind::kLoad:
      settle_load(job, item, code);
      break;
    case OpKind::kSave:
      settle_save(job, item, code);
      break;
    case OpKind::kStoreGet:
    case OpKind::kDiskGet:
      settle_get(job, item, code);
      break;
    case OpKind::kDiskPut:
      settle_disk_put(job, item, code);
      break;
    case OpKind::kDiskClear:
      settle_disk_clear(code);
      break;
    case OpKind::kStorePut:
      settle_put(job, item, code);
      break;
    case OpKind::kStoreExists:
      settle_exists(job, item, code);
      break;
    case OpKind::kStoreRemove:
      break;
  }
  if (item.ranks_open != 0) return;
  if (!uses_device(job.kind)) return;
  Request* request = requests_.at(job.request, job.request_generation);
  if (request != nullptr && request->device_references == 0) recycle_if_done(*request);
}

void Cache::Impl::expire(Job& job) {
  settle_time_ = clock_.now();
  for (JobItem& item : job.items) {
    if (!item.settled) settle(job, item, Code::kTimeout);
  }
}

void Cache::Impl::run_timers() {
  Timer timer;
  if (!protections_.deadlines) return;
  while (timers_.take_due(clock_.now(), &timer)) on_timer(timer);
}

void Cache::Impl::on_timer(const Timer& timer) {
  if (timer.kind == TimerKind::kJob) {
    Job& job = jobs_.at(timer.index);
    if (job.live && JobTable::generation_of(job.id) == timer.generation) expire(job);
    return;
  }
  Request* request = requests_.at(timer.index, timer.generation);
  if (request == nullptr) return;
  switch (timer.kind) {
    case TimerKind::kPrefetch:
      if (request->prefetching && request->prefetch_deadline <= clock_.now()) {
        finish_prefetch(*request, Code::kTimeout);
      }
      break;
    case TimerKind::kLoad:
      if (request->loading && request->load_deadline <= clock_.now()) {
        fail_fills_of_load(*request, Code::kTimeout);
      }
      break;
    case TimerKind::kSave:
      if (request->save_queued && request->save_by <= clock_.now()) {
        drop_saves(*request, WhyReason::kSaveDropped);
      }
      break;
    case TimerKind::kHold:
      if (!request->living) break;
      if (request->last_call + config_.hold_limit <= clock_.now()) {
        if (request->hold_count > 0) ++stats_.hold_limit_hits;
        release_holds(*request);
        request->last_call = clock_.now();
      }
      add_timer(TimerKind::kHold, request->last_call + config_.hold_limit, timer.index,
                timer.generation);
      break;
    case TimerKind::kJob:
      break;
  }
}

void Cache::Impl::sweep() {
  uint32_t left = config_.sweep_nodes_per_poll;
  // A clear() that waits for stale nodes looks for them again: the engine's device tier may have
  // held one when the last pass met it, and takes away only its own place.
  while (left > 0 && (!index_.sweep_done() || clear_pending_)) {
    const NodeId node = index_.next_stale(left);
    if (node == kNoNode) break;
    --left;
    // What is held is dropped by unhold_node; what has neither place is not ours to drop.
    if (index_.hold_count(node) == 0) drop_everywhere(node);
  }
  if (clear_pending_ && index_.sweep_done()) {
    clear_pending_ = false;
    forget_tiers();
  }
}

}  // namespace tiercel
