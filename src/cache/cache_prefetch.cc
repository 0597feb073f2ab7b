// SPDX-License-Identifier: Apache-2.0
//
// Store or disk → host tier, for a request that waits to be scheduled. A prefetch goes in rounds:
// it asks the store about what is unknown, then fetches what store and disk have, each time up to
// the deepest cut that is still possible, until nothing is left to ask or fetch.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "cache/cache_impl.h"

namespace tiercel {
namespace {

// More rounds than any path needs: each asks or fetches at least one more batch.
uint32_t rounds_max(const CacheConfig& config, size_t blocks, uint32_t groups) {
  const size_t batch = std::min(config.exists_blocks_max, config.prefetch_blocks_max);
  return static_cast<uint32_t>(8 + 4 * (blocks * groups / batch + 1));
}

}  // namespace

Result<bool> Cache::Impl::prefetch(RequestId id, std::span<const BlockKey> keys,
                                   uint32_t computed_blocks, TimePoint deadline, Duration wait) {
  TIERCEL_TRY(check_computed("prefetch", id, computed_blocks, keys.size()));
  TIERCEL_TRY_ASSIGN(Request* const found, request_for(id, keys));
  Request& request = *found;
  if (request.prefetching) {
    return Error(Code::kBusy, fmt::format("request {} is being prefetched already", id.value()));
  }
  if (refuses_work() || (!config_.with_store && disk_ == nullptr)) return false;
  view_.look(request.keys, computed_blocks, clock_.now());
  // The request may have more keys from an earlier call than are asked for now.
  const auto bound = static_cast<uint32_t>(std::min<size_t>(view_.block_count(), keys.size()));
  const uint32_t there = view_.usable_cut(BlockPlace::kUnknown, bound);
  const uint32_t at_hand = view_.usable_cut(BlockPlace::kHost, bound);
  if (there <= at_hand) return false;
  LoadChoice& choice = request.why.prefetch_choice;
  wait = std::max(wait, Duration::zero());
  const uint32_t chosen = choose_cut(request, there, true, deadline, wait, choice);
  if (chosen < there && view_.usable_cut(BlockPlace::kUnknown, chosen) <= at_hand) {
    explain_unserved(request, at_hand, WhyReason::kNotWorthLoading);
    probe_behind(request, computed_blocks, at_hand);
    return false;
  }
  request.prefetching = true;
  ++request.prefetch_serial;
  request.prefetch_rounds = 0;
  request.prefetch_pending = 0;
  request.prefetch_computed = computed_blocks;
  request.prefetch_bound = bound;
  request.prefetch_start = clock_.now();
  request.prefetch_wait_end = request.prefetch_start + wait;
  request.prefetch_chosen = chosen;
  request.prefetch_deadline = patience(choice, deadline, wait);
  request.prefetch_code = Code::kOk;
  add_timer(TimerKind::kPrefetch, request.prefetch_deadline, request.index, request.generation);
  advance_prefetch(request);
  if (chosen < there) probe_behind(request, computed_blocks, chosen);
  return true;
}

void Cache::Impl::advance_prefetch(Request& request) {
  if (request.prefetch_code != Code::kOk || refuses_work()) {
    finish_prefetch(request, refuses_work() ? Code::kCancelled : request.prefetch_code);
    return;
  }
  if (request.prefetch_deadline <= clock_.now()) {
    finish_prefetch(request, Code::kTimeout);
    return;
  }
  if (++request.prefetch_rounds > rounds_max(config_, request.keys.size(), groups())) {
    finish_prefetch(request, Code::kUnavailable);
    return;
  }
  view_.look(request.keys, request.prefetch_computed, clock_.now());
  const uint32_t there = view_.usable_cut(BlockPlace::kUnknown, request.prefetch_bound);
  if (request.prefetch_rounds > 1) {
    // What the store has, and how fast it answers, is known better now.
    const TimePoint now = clock_.now();
    request.prefetch_chosen = choose_cut(
        request, there, true, request.prefetch_deadline,
        std::max(Duration::zero(), request.prefetch_wait_end - now), request.why.prefetch_choice);
  }
  const uint32_t cut = request.prefetch_chosen < there
                           ? view_.usable_cut(BlockPlace::kUnknown, request.prefetch_chosen)
                           : there;
  bool no_room = false;
  request.prefetch_pending = ask_store(request, cut, &no_room);
  if (request.prefetch_pending == 0 && !no_room) {
    // Else room for one of its blocks could be made by evicting another.
    hold_path(cut);
    request.prefetch_pending = fetch(request, cut, &no_room);
    unhold_path(cut);
  }
  if (request.prefetch_pending > 0) return;
  if (no_room) {
    --request.prefetch_rounds;  // nothing was tried
    queue_prefetch(request);
    return;
  }
  finish_prefetch(request, request.prefetch_code);
}

uint32_t Cache::Impl::ask_store(Request& request, uint32_t cut, bool* no_room) {
  const auto wanted = [&](uint32_t group, uint32_t position) {
    return view_.needed(group, position, cut) &&
           view_.place(group, position) == BlockPlace::kUnknown;
  };
  uint32_t asked = 0;
  Job* job = nullptr;
  const size_t capacity = std::min<size_t>(room(8), config_.exists_blocks_max);
  for (uint32_t position = view_.first_uncomputed(); position < cut; ++position) {
    for (uint32_t group = 0; group < groups(); ++group) {
      if (!wanted(group, position)) continue;
      if (asked == capacity) {
        *no_room = asked == 0;
        if (job != nullptr) submit(*job);
        return asked;
      }
      if (job == nullptr) {
        job = jobs_.start(OpKind::kStoreExists, request.prefetch_deadline, request.index,
                          request.generation);
        if (job == nullptr) {
          *no_room = true;
          return asked;
        }
        job->prefetch_serial = request.prefetch_serial;
      }
      add_item(*job, kNoNode, request.keys[position], GroupId(static_cast<uint8_t>(group)),
               position);
      ++asked;
    }
  }
  if (job != nullptr) submit(*job);
  return asked;
}

NodeId Cache::Impl::node_for_fill(std::span<const BlockKey> keys, GroupId group,
                                  uint32_t position) {
  // Finds the deepest ancestor that has a node, then makes nodes without a place down to the block:
  // what the engine has itself, or what lies before a window, need not be in any tier of ours.
  uint32_t depth = position;
  NodeId node = index_.find(keys[depth], group);
  while (node == kNoNode && depth > 0) node = index_.find(keys[--depth], group);
  if (node != kNoNode) ++depth;
  NodeId first_made = kNoNode;
  for (; depth <= position; ++depth) {
    const NodeId made = index_.insert(keys[depth], group, node);
    if (made == kNoNode) {
      if (first_made != kNoNode) index_.release_if_unused(node);
      return kNoNode;
    }
    if (first_made == kNoNode) first_made = made;
    node = made;
  }
  return node;
}

uint32_t Cache::Impl::fetch(Request& request, uint32_t cut, bool* no_room) {
  uint32_t waited = 0;
  std::array<Job*, 2> jobs{};  // from the store, from disk
  size_t capacity = room(8);
  const auto flush = [&] {
    for (Job*& job : jobs) submit_or_cancel(std::exchange(job, nullptr));
  };
  for (uint32_t position = view_.first_uncomputed(); position < cut; ++position) {
    for (uint32_t group = 0; group < groups(); ++group) {
      if (!view_.needed(group, position, cut)) continue;
      const BlockPlace place = view_.place(group, position);
      const bool from_disk = place == BlockPlace::kDisk;
      if (place != BlockPlace::kStore && place != BlockPlace::kInFlight && !from_disk) continue;
      if (waited == config_.prefetch_blocks_max) {
        flush();
        return waited;
      }
      if (place == BlockPlace::kInFlight) {
        fills_.wait(view_.node(group, position),
                    {request.index, request.generation, request.prefetch_serial});
        ++stats_.get_shared;
        ++waited;
        continue;
      }
      Job*& job = jobs[from_disk ? 1 : 0];
      if (job == nullptr && capacity > 0) {
        job = jobs_.start(from_disk ? OpKind::kDiskGet : OpKind::kStoreGet,
                          request.prefetch_deadline, request.index, request.generation);
      }
      if (job == nullptr) {
        flush();
        *no_room = waited == 0;
        return waited;
      }
      const GroupId group_id(static_cast<uint8_t>(group));
      const NodeId node =
          from_disk ? view_.node(group, position) : node_for_fill(request.keys, group_id, position);
      if (node != kNoNode && fills_.is_filling(node)) {
        // The same key for the second time: such a list is no path, but it comes from outside.
        fills_.wait(node, {request.index, request.generation, request.prefetch_serial});
        ++waited;
        continue;
      }
      const std::optional<SlotId> slot = acquire_for(node);
      if (!slot) {
        // The tier has no room that may be taken: what we have is what the request gets.
        if (request.prefetch_code == Code::kOk) request.prefetch_code = Code::kNoSpace;
        flush();
        return waited;
      }
      begin_fill(*job, node, *slot, request.keys[position], group_id, position);
      fills_.wait(node, {request.index, request.generation, request.prefetch_serial});
      ++waited;
      --capacity;
      if (job->items.size() == config_.job_blocks_max) flush();
      if (capacity == 0) flush();
    }
  }
  flush();
  return waited;
}

void Cache::Impl::finish_prefetch(Request& request, Code code) {
  request.prefetching = false;
  ++request.prefetch_serial;  // what still comes is for nobody
  CacheEvent event;
  event.kind = EventKind::kPrefetchDone;
  event.code = code;
  event.request = request.id;
  event.generation = request.generation;
  event.blocks = request.prefetch_computed;
  if (!refuses_work()) {
    view_.look(request.keys, request.prefetch_computed, clock_.now());
    event.blocks = view_.usable_cut(BlockPlace::kDisk, request.prefetch_bound);
    LoadChoice& choice = request.why.prefetch_choice;
    choice.measured = choice.made;
    choice.load_measured = clock_.now() - request.prefetch_start;
    if (code == Code::kOk) {
      explain_unserved(request, event.blocks,
                       choice.blocks_chosen < choice.blocks_there ? WhyReason::kNotWorthLoading
                                                                  : WhyReason::kBehindGap);
    } else {
      const auto count = static_cast<uint32_t>(request.keys.size());
      const WhyReason reason =
          code == Code::kNoSpace ? WhyReason::kNoHostSpace : WhyReason::kStoreFailed;
      request.why.start(event.blocks);
      request.why.add(WhySpan{event.blocks, count - event.blocks, reason, code});
      if (reason == WhyReason::kStoreFailed) request.why.store_reason = store_reason();
    }
  }
  emit(event);
}

void Cache::Impl::queue_prefetch(Request& request) {
  if (request.prefetch_queued) return;
  request.prefetch_queued = true;
  prefetch_queue_.push(QueuedRequest{request.index, request.generation});
}

void Cache::Impl::pump_prefetches() {
  for (size_t left = prefetch_queue_.size(); left > 0; --left) {
    const QueuedRequest queued = prefetch_queue_[0];
    prefetch_queue_.pop(1);
    Request* request = requests_.at(queued.index, queued.generation);
    if (request == nullptr) continue;
    request->prefetch_queued = false;
    if (request->prefetching && request->prefetch_pending == 0) advance_prefetch(*request);
  }
}

void Cache::Impl::settle_exists(Job& job, JobItem& item, Code code) {
  ++stats_.exists_asked;
  if (code == Code::kOk) {
    ++stats_.exists_found;
    existence_.set_answer(item.key, item.group, Existence::kPresent, clock_.now(),
                          clock_.now() + config_.existence_ttl);
  } else if (code == Code::kNotFound) {
    existence_.set_answer(item.key, item.group, Existence::kAbsent, clock_.now(),
                          clock_.now() + config_.absence_ttl);
  } else {
    ++stats_.exists_failed;
  }
  if (job.is_probe) {
    if (code == Code::kOk) note_probe_answer(job, item);
    return;
  }
  Request* request = requests_.at(job.request, job.request_generation);
  if (request == nullptr || !request->prefetching ||
      request->prefetch_serial != job.prefetch_serial) {
    return;
  }
  if (code != Code::kOk && code != Code::kNotFound && request->prefetch_code == Code::kOk) {
    request->prefetch_code = code;
  }
  if (--request->prefetch_pending == 0) queue_prefetch(*request);
}

void Cache::Impl::settle_get(Job& job, JobItem& item, Code code) {
  const NodeId node = item.node;
  const bool from_disk = job.kind == OpKind::kDiskGet;
  const bool wanted = index_.is_current(node) && protections_.publish_when_done;
  if (code == Code::kOk && wanted) {
    ++(from_disk ? stats_.disk_get_blocks : stats_.get_blocks);
    if (from_disk) disk_faults_.read(item.disk_slot);
    BlockPosition position;
    position.visit.now = settle_time_;
    position.position = item.position;
    host_.publish(node, item.slot, position);
    if (!from_disk) {
      existence_.set(item.key, item.group, Existence::kPresent,
                     clock_.now() + config_.existence_ttl);
      if (wants_disk_put(node)) queue_disk_put(node, nullptr, item.position);
    }
  } else {
    if (protections_.publish_when_done) host_.retire(item.slot);
    if (code != Code::kOk && from_disk) {
      ++stats_.disk_get_failed;
      if (code == Code::kTimeout) ++stats_.disk_get_timeout;
      if (code == Code::kCorrupt) ++stats_.disk_get_corrupt;
      if (code == Code::kCorrupt || code == Code::kUnavailable) {
        fail_disk_get(node, item.disk_slot, code);
      }
    } else if (code != Code::kOk) {
      ++stats_.get_failed;
      if (code == Code::kTimeout) ++stats_.get_timeout;
      if (code == Code::kNotFound) {
        existence_.set(item.key, item.group, Existence::kAbsent,
                       clock_.now() + config_.absence_ttl);
      } else if (code == Code::kCorrupt || code == Code::kInvalid) {
        if (code == Code::kCorrupt) ++stats_.get_corrupt;
        // Remembered long enough for the block to be computed and saved again.
        existence_.set_bad(item.key, item.group, clock_.now() + 10 * config_.existence_ttl);
      }
    }
  }
  end_fill(node, item.position, code);
  unhold_node(node);
}

std::optional<SlotId> Cache::Impl::acquire_for(NodeId node) {
  if (node == kNoNode) return std::nullopt;
  std::optional<SlotId> slot;
  if (host_.counts().quarantined < quarantine_slots_max_) {
    index_.hold(node);  // against our own search for room
    slot = host_.acquire(index_.group(node));
    if (!slot && disk_ != nullptr) {
      host_was_short_ = true;
      slot = acquire_at_cost_of_disk(index_.group(node));
    }
    index_.unhold(node);
  }
  if (!slot) index_.release_if_unused(node);
  return slot;
}

JobItem& Cache::Impl::begin_fill(Job& job, NodeId node, SlotId slot, const BlockKey& key,
                                 GroupId group, uint32_t position) {
  JobItem& item = add_item(job, node, key, group, position);
  item.slot = slot;
  item.has_slot = true;
  if (job.kind == OpKind::kDiskGet) {
    item.disk_slot = disk_->slot(node);
    item.has_disk_slot = true;
  }
  fills_.begin(node);
  if (!protections_.publish_when_done) host_.publish(node, slot, BlockPosition{});
  return item;
}

void Cache::Impl::end_fill(NodeId node, uint32_t position, Code code) {
  // A key has everything before it in it, so a block stands at the same position in every request.
  const bool arrived = index_.is_in(node, Tier::kHost);
  fills_.end(node, [&](const FillTable::Waiter& waiter) {
    Request* request = requests_.at(waiter.request, waiter.generation);
    if (request == nullptr) return;
    if (waiter.is_load) {
      if (request->loading && request->load_serial == waiter.serial) {
        end_fill_for_load(*request, node, waiter.entry, arrived, code);
      }
      return;
    }
    if (!request->prefetching || request->prefetch_serial != waiter.serial) return;
    if (arrived) {
      hold_for(*request, node, position);  // until it ends: it has been promised this block
    } else if (request->prefetch_code == Code::kOk && code != Code::kOk &&
               code != Code::kNotFound && code != Code::kCorrupt && code != Code::kInvalid &&
               (code != Code::kTimeout || request->prefetch_deadline <= clock_.now())) {
      // The store is in trouble. A block that is absent or bad only makes the cut shorter, and the
      // deadline of whoever started the transfer is not that of all who wait: they try again.
      request->prefetch_code = code;
    }
    if (--request->prefetch_pending == 0) queue_prefetch(*request);
  });
}

}  // namespace tiercel
