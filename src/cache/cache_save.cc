// SPDX-License-Identifier: Apache-2.0
//
// Device → host tier → store, by write policy and in prefix order.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "cache/cache_impl.h"

namespace tiercel {
namespace {

// New blocks lie all over the index: their places are asked for some steps ahead.
constexpr uint32_t kLookAhead = 8;

}  // namespace

Status Cache::Impl::save(RequestId id, std::span<const BlockKey> keys, uint32_t first_block,
                         std::span<const DeviceBlockId> device_blocks) {
  const size_t count = device_blocks.size() / groups();
  if (device_blocks.size() % groups() != 0 || first_block > keys.size() ||
      count > keys.size() - first_block) {
    return Error(Code::kInvalid,
                 fmt::format("save of request {} names {} device blocks from position {}; must be "
                             "{} (groups) for each of at most {} positions",
                             id.value(), device_blocks.size(), first_block, groups(),
                             keys.size() - std::min<size_t>(first_block, keys.size())));
  }
  TIERCEL_TRY_ASSIGN(Request* const found, request_for(id, keys));
  Request& request = *found;
  const size_t end = std::min<size_t>(first_block + count, request.keys.size());
  if (request.save_blocks.size() < end * groups()) {
    request.save_blocks.resize(end * groups(), kNoDeviceBlock);
  }
  for (size_t position = first_block; position < end; ++position) {
    for (uint32_t group = 0; group < groups(); ++group) {
      DeviceBlockId& declared = request.save_blocks[position * groups() + group];
      if (declared == kNoDeviceBlock) {
        declared = device_blocks[group * count + position - first_block];
      }
    }
  }
  request.save_cursor = std::min(request.save_cursor, first_block);
  if (!protections_.commit_gate) {
    request.committed_blocks =
        static_cast<uint32_t>(std::max<size_t>(request.committed_blocks, end));
  }
  queue_save(request);
  pump_saves();
  return {};
}

Status Cache::Impl::commit(RequestId id, uint64_t token_count) {
  TIERCEL_TRY(plane_.usable());
  Request* request = requests_.find(id);
  if (request == nullptr) {
    ++stats_.unknown_requests;
    return Error(Code::kNotFound, fmt::format("request {} does not live", id.value()));
  }
  request->last_call = clock_.now();
  const auto blocks = static_cast<uint32_t>(
      std::min<uint64_t>(token_count / config_.spec.block_tokens, config_.request_blocks_max));
  if (blocks <= request->committed_blocks) return {};
  request->committed_blocks = blocks;
  visit_path(*request, request->why.served_blocks, false);
  queue_save(*request);
  pump_saves();
  return {};
}

// Positions before it may be saved now: they were declared and have KV.
uint32_t Cache::Impl::save_end(const Request& request) const {
  return static_cast<uint32_t>(
      std::min<size_t>(request.save_blocks.size() / groups(), request.committed_blocks));
}

void Cache::Impl::queue_save(Request& request) {
  if (request.save_queued || request.save_cursor >= save_end(request)) return;
  request.save_queued = true;
  request.save_by = clock_.now() + config_.save_deadline;
  save_queue_.push(QueuedRequest{request.index, request.generation});
  add_timer(TimerKind::kSave, request.save_by, request.index, request.generation);
}

void Cache::Impl::pump_saves() {
  while (!save_queue_.empty()) {
    const QueuedRequest queued = save_queue_[0];
    Request* request = requests_.at(queued.index, queued.generation);
    if (request != nullptr && request->save_queued) {
      if (!pump_save(*request)) return;  // no room: stays first in the queue
      request->save_queued = false;
    }
    save_queue_.pop(1);
    if (request != nullptr) recycle_if_done(*request);
  }
}

bool Cache::Impl::pump_save(Request& request) {
  const uint32_t end = save_end(request);
  SaveRun run;
  run.before.fill(kNoNode);
  bool done = true;
  size_t capacity = room(4);
  for (; request.save_cursor < end; ++request.save_cursor) {
    const uint32_t position = request.save_cursor;
    if (position + kLookAhead < request.keys.size()) {
      for (uint32_t group = 0; group < groups(); ++group) {
        index_.prefetch(request.keys[position + kLookAhead], GroupId(static_cast<uint8_t>(group)));
      }
    }
    const auto declared =
        request.save_blocks.begin() + static_cast<ptrdiff_t>(size_t{position} * groups());
    if (std::all_of(declared, declared + groups(),
                    [](DeviceBlockId block) { return block == kNoDeviceBlock; })) {
      continue;
    }
    if (capacity < groups() || (run.job == nullptr && jobs_.room() == 0)) {
      done = false;
      break;
    }
    if (!wants_save(request, position)) continue;
    const size_t before = run.job == nullptr ? 0 : run.job->items.size();
    const bool goes_on = start_save(request, position, run);
    if (run.job != nullptr) {
      capacity -= run.job->items.size() - before;
      if (run.job->items.size() + groups() > config_.job_blocks_max) {
        submit_or_cancel(std::exchange(run.job, nullptr));
      }
    }
    if (!goes_on) {
      // Nothing behind a block that is not stored could ever be found.
      request.save_cursor = end;
      break;
    }
  }
  submit_or_cancel(run.job);
  return done;
}

bool Cache::Impl::wants_save(Request& request, uint32_t position) {
  WhyReason reason = WhyReason::kSaveDropped;
  if (config_.device_to_host == WritePolicy::kNone) {
    reason = WhyReason::kSaveFiltered;
  } else if (refuses_work()) {
    reason = closing_ ? WhyReason::kClosed : WhyReason::kCleared;
    ++stats_.save_dropped;
  } else if (config_.device_to_host == WritePolicy::kWriteThroughSelective &&
             sightings_.count(request.keys[position]) < config_.selective_hits) {
    reason = WhyReason::kSaveFiltered;
  } else {
    return true;
  }
  request.why.add(WhySpan{position, 1, reason, Code::kOk});
  return false;
}

bool Cache::Impl::start_save(Request& request, uint32_t position, SaveRun& run) {
  for (uint32_t group = 0; group < groups(); ++group) {
    const DeviceBlockId device = request.save_blocks[size_t{position} * groups() + group];
    if (device == kNoDeviceBlock) continue;
    const GroupId group_id(static_cast<uint8_t>(group));
    const BlockKey& key = request.keys[position];
    NodeId node = index_.find(key, group_id);
    const NodeId before = std::exchange(run.before[group], node);
    if (node != kNoNode && (index_.is_in(node, Tier::kHost) || fills_.is_filling(node))) {
      ++stats_.save_skipped;
      continue;
    }
    NodeId parent = kNoNode;
    if (position > 0) {
      parent = index_.find(request.keys[position - 1], group_id, before);
      if (parent == kNoNode && node == kNoNode && !index_.is_window_group(group_id)) {
        ++stats_.save_dropped;
        request.why.add(WhySpan{position, 1, WhyReason::kSaveParentGone, Code::kOk});
        return false;
      }
    }
    if (run.job == nullptr) {
      run.job = jobs_.start(OpKind::kSave, clock_.now() + config_.save_deadline, request.index,
                            request.generation);
      TIERCEL_ASSERT(run.job != nullptr, "the caller has seen that there is room for a job");
    }
    if (node == kNoNode) node = index_.insert(key, group_id, parent);
    run.before[group] = node;
    const std::optional<SlotId> slot = acquire_for(node);
    if (!slot) {
      ++stats_.save_no_space;
      request.why.add(WhySpan{position, 1, WhyReason::kSaveNoSpace, Code::kNoSpace});
      return false;
    }
    begin_fill(*run.job, node, *slot, key, group_id, position).device_block = device;
    ++request.device_references;
  }
  return true;
}

void Cache::Impl::drop_saves(Request& request, WhyReason reason) {
  const uint32_t end = save_end(request);
  if (request.save_cursor < end) {
    stats_.save_dropped += end - request.save_cursor;
    request.why.add(WhySpan{request.save_cursor, end - request.save_cursor, reason, Code::kOk});
  }
  request.save_cursor = end;  // the queue finds nothing left and lets go of the request
}

void Cache::Impl::device_lost() {
  for (size_t i = 0; i < save_queue_.size(); ++i) {
    Request* request = requests_.at(save_queue_[i].index, save_queue_[i].generation);
    if (request != nullptr && request->save_queued) {
      drop_saves(*request, WhyReason::kSaveDropped);
    }
  }
  pump_saves();
}

void Cache::Impl::settle_save(Job& job, JobItem& item, Code code) {
  const NodeId node = item.node;
  if (code == Code::kOk && index_.is_current(node)) {
    ++stats_.save_blocks;
    if (protections_.publish_when_done) {
      BlockPosition position;
      position.visit.now = settle_time_;
      position.position = item.position;
      if (const Request* request = requests_.at(job.request, job.request_generation)) {
        position.visit.block_count = static_cast<uint32_t>(request->keys.size());
        position.visit.known_count = request->why.served_blocks;
      }
      host_.publish(node, item.slot, position);
    }
    if (config_.with_store && config_.host_to_store == WritePolicy::kWriteThrough) {
      queue_put(node, requests_.at(job.request, job.request_generation), item.position);
    }
    if (wants_disk_put(node)) {
      queue_disk_put(node, requests_.at(job.request, job.request_generation), item.position);
    }
  } else {
    if (protections_.publish_when_done) host_.retire(item.slot);
    if (code != Code::kOk) {
      ++stats_.save_failed;
      add_why(job, item.position, WhyReason::kSaveFailed, code);
    }
  }
  end_fill(node, item.position, code);
  unhold_node(node);
}

void Cache::Impl::queue_put(NodeId node, Request* request, uint32_t position) {
  const BlockKey& key = index_.key(node);
  const SlotId slot = index_.slot(node, Tier::kHost);
  host_.set_mark(slot, OwnedTier::Mark::kPutOwed, false);
  if (existence_.find(key, index_.group(node), clock_.now()) == Existence::kPresent) return;
  if (put_queue_.size() + puts_open_ >= put_queue_max_) {
    host_.set_mark(slot, OwnedTier::Mark::kPutOwed, true);
    ++stats_.put_dropped;
    if (request != nullptr) {
      request->why.add(WhySpan{position, 1, WhyReason::kPutDropped, Code::kBusy});
    }
    return;
  }
  index_.hold(node);
  put_queue_.push(queued_put(node, request, position));
}

Cache::Impl::QueuedPut Cache::Impl::queued_put(NodeId node, const Request* request,
                                               uint32_t position) {
  QueuedPut put;
  put.node = node;
  put.position = position;
  if (request != nullptr) {
    put.request_id = request->id;
    put.request = request->index;
    put.generation = request->generation;
  }
  return put;
}

void Cache::Impl::pump_puts() {
  size_t capacity = room(4);
  while (!put_queue_.empty() && capacity > 0) {
    const QueuedPut first = put_queue_[0];
    Job* job = jobs_.start(OpKind::kStorePut, clock_.now() + config_.save_deadline, first.request,
                           first.generation);
    if (job == nullptr) return;
    job->request_id = first.request_id;
    const uint32_t request = first.request;
    const uint32_t generation = first.generation;
    // One job for blocks of one request, so that a failure finds its why-record.
    while (!put_queue_.empty() && capacity > 0 && job->items.size() < config_.job_blocks_max &&
           put_queue_[0].request == request && put_queue_[0].generation == generation) {
      const QueuedPut put = put_queue_[0];
      put_queue_.pop(1);
      if (!clear_pending_ && index_.is_in(put.node, Tier::kHost) && index_.is_current(put.node)) {
        const BlockKey& key = index_.key(put.node);
        const GroupId group = index_.group(put.node);
        JobItem& item = add_item(*job, put.node, key, group, put.position);
        item.slot = index_.slot(put.node, Tier::kHost);
        item.has_slot = true;
        item.replace = existence_.take_replacement(key, group, clock_.now());
        ++puts_open_;
        --capacity;
      }
      unhold_node(put.node);
    }
    submit_or_cancel(job);
  }
}

void Cache::Impl::settle_put(Job& job, JobItem& item, Code code) {
  if (code == Code::kOk) {
    ++stats_.put_blocks;
    if (item.replace) ++stats_.put_replaced;
    existence_.set(item.key, item.group, Existence::kPresent, clock_.now() + config_.existence_ttl);
  } else {
    ++stats_.put_failed;
    if (code == Code::kCorrupt) {
      drop_bad_copy(host_, item.node, item.slot);
    } else if (code != Code::kInvalid && host_.has(item.node, item.slot)) {
      host_.set_mark(item.slot, OwnedTier::Mark::kPutOwed, true);
    }
    add_why(job, item.position, WhyReason::kPutFailed, code);
  }
  unhold_node(item.node);
}

void Cache::Impl::add_why(const Job& job, uint32_t position, WhyReason reason, Code code) {
  Request* request = requests_.at(job.request, job.request_generation);
  const RequestId id = request != nullptr ? request->id : job.request_id;
  if (WhyRecord* why = requests_.why_of_life(id, job.request, job.request_generation)) {
    why->add(WhySpan{position, 1, reason, code});
    // Once: there may be a failed put for each block.
    if (reason == WhyReason::kPutFailed && why->store_reason.empty()) {
      why->store_reason = store_reason();
    }
  }
}

}  // namespace tiercel
