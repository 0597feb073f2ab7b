// SPDX-License-Identifier: Apache-2.0
//
// What runs in the next step.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/resource_manager_impl.h"

namespace tiercel {
namespace {

// How long a request that finds no room waits for blocks that transfers still touch before another
// one is preempted for it: many times what a copy takes, and little beside a request's life.
constexpr Duration kLeavingWait = std::chrono::milliseconds(100);

}  // namespace

const Batch& ResourceManagerImpl::schedule() {
  if (is_open_) return batch_;
  poll_cache();
  // Whoever waited for them may have gone, and they have come.
  if (prefix_.leaving_blocks() == 0) wait_for_leaving_until_.reset();
  poll_hand_overs();
  scheduled_.clear();
  preempted_.clear();
  std::swap(preempted_, preempted_next_);
  budget_ = config_.step_tokens_max;
  is_short_ = has_more_to_look_at_ = false;
  schedule_running();
  admit_waiting();
  batch_.requests = scheduled_;
  batch_.preempted = preempted_;
  batch_.token_count = config_.step_tokens_max - budget_;
  is_open_ = !scheduled_.empty();
  if (is_open_) {
    batch_.step = ++last_step_;
    ++stats_.steps;
    stats_.scheduled_tokens += batch_.token_count;
  }
  return batch_;
}

void ResourceManagerImpl::poll_cache() {
  size_t count = 0;
  do {
    count = prefix_.poll(events_);
    for (const CacheEvent& event : std::span(events_).first(count)) on_event(event);
  } while (count == events_.size());
}

void ResourceManagerImpl::on_event(const CacheEvent& event) {
  // What was said of a life that has ended never comes (Cache::finish), except kDeviceReleased,
  // which PrefixCache tells apart.
  const auto found = entries_.find(event.request);
  if (found == entries_.end()) return;
  Entry& entry = *found->second;
  switch (event.kind) {
    case EventKind::kPrefetchDone:
      if (entry.state != RequestState::kPrefetching) return;
      if (event.code != Code::kOk) ++stats_.prefetches_late;
      --prefetching_;
      entry.state = RequestState::kWaiting;
      waiting_.insert(&entry);
      return;
    case EventKind::kLoadDone:
      if (entry.state == RequestState::kLoading) on_load_done(entry, event);
      return;
    case EventKind::kDeviceReleased:
      return;  // PrefixCache's business
  }
}

void ResourceManagerImpl::on_load_done(Entry& entry, const CacheEvent& event) {
  unannounce(entry);
  if (event.code != Code::kOk) ++stats_.loads_short;
  entry.computed_tokens = tokens_of_blocks(entry, event.blocks);
  const uint64_t loaded = entry.computed_tokens - uint64_t{entry.hit_blocks} * block_tokens_;
  stats_.loaded_tokens += loaded;
  if (entry.finished.preemptions == 0) entry.finished.loaded_tokens = loaded;
  if (event.device_busy && protections_.late_loads) {
    stats_.blocks_parted += prefix_.part_from_busy(entry.id);
    entry.table = prefix_.block_table(entry.id);
    entry.device_blocks = entry.table.block_count;
  }
  if (entry.loads_partial) prefix_.forget_partial(entry.id);
  entry.loads_partial = false;
  entry.state = RequestState::kRunning;
  share(entry);  // others wait for what it has loaded
  tell_computing(entry);
}

void ResourceManagerImpl::schedule_running() {
  decodes_left_ = 0;
  for (Entry* entry : running_) {
    if (entry->state == RequestState::kRunning && entry->pending_tokens() == 1) ++decodes_left_;
  }
  for (size_t i = 0; i < running_.size();) {
    Entry& entry = *running_[i];
    if (entry.state == RequestState::kRunning) {
      const bool decodes = entry.pending_tokens() == 1;
      if (decodes) --decodes_left_;
      // A prompt leaves a token to everyone behind it who wants just one.
      const uint32_t budget = budget_ - std::min(budget_, decodes_left_);
      if (schedule_one(entry, budget) == Room::kPreempted)
        continue;  // another stands here, or none
    }
    ++i;
  }
}

ResourceManagerImpl::Room ResourceManagerImpl::schedule_one(Entry& entry, uint32_t budget) {
  uint64_t count =
      std::min<uint64_t>({entry.pending_tokens(), budget, config_.prefill_chunk_tokens_max});
  if (count == 0) return Room::kNotNow;
  // A shorter chunk, rather than that another request is preempted for a longer one.
  const uint64_t room_tokens =
      (uint64_t{entry.device_blocks} + prefix_.available_blocks()) * block_tokens_;
  if (room_tokens > entry.computed_tokens) {
    count = std::min(count, room_tokens - entry.computed_tokens);
  }
  const uint64_t end = entry.computed_tokens + count;
  const Room room = make_room(entry, end);
  if (room != Room::kGiven) return room;
  entry.in_batch = true;
  entry.batch_tokens = static_cast<uint32_t>(count);
  budget_ -= entry.batch_tokens;
  if (!std::exchange(entry.was_scheduled, true)) entry.finished.first_scheduled = clock_.now();
  ScheduledRequest& scheduled = scheduled_.emplace_back();
  scheduled.id = entry.id;
  scheduled.first_token = entry.computed_tokens;
  scheduled.tokens = std::span(entry.tokens).subspan(entry.computed_tokens, count);
  scheduled.block_table = entry.table;
  scheduled.samples = end == entry.tokens.size();
  if (!protections_.computed_only) share(entry);
  return Room::kGiven;
}

ResourceManagerImpl::Room ResourceManagerImpl::make_room(Entry& entry, uint64_t token_count) {
  const auto blocks = static_cast<uint32_t>(blocks_of(token_count));
  if (blocks <= entry.device_blocks) return Room::kGiven;
  while (true) {
    const auto table = prefix_.extend(entry.id, shared_keys(entry), blocks);
    if (table) {
      entry.device_blocks = blocks;
      entry.table = *table;
      wait_for_leaving_until_.reset();
      return Room::kGiven;
    }
    entry.table = prefix_.block_table(entry.id);  // may have moved
    is_short_ = true;
    const TimePoint now = clock_.now();
    if (prefix_.leaving_blocks() > 0) {
      if (!wait_for_leaving_until_) wait_for_leaving_until_ = now + kLeavingWait;
      if (now < *wait_for_leaving_until_) return Room::kNotNow;
    }
    Entry& victim = *running_.back();
    if (&victim == &entry && running_.size() == 1) {
      return Room::kNotNow;  // what is missing is in the hands of transfers
    }
    preempt(victim);
    wait_for_leaving_until_.reset();
    if (&victim == &entry) return Room::kPreempted;
  }
}

void ResourceManagerImpl::preempt(Entry& entry) {
  // It stands behind whoever is being scheduled, or is the one: it is not in the batch.
  TIERCEL_ASSERT(!entry.in_batch, "what is in the batch keeps its blocks");
  if (entry.state == RequestState::kRunning && entry.pending_tokens() == 1 && decodes_left_ > 0) {
    --decodes_left_;
  }
  count_preemption(entry, preempted_);
  send_back(entry, !config_.save_preempted);
}

TimePoint ResourceManagerImpl::next_deadline() const {
  TimePoint next = cache_.next_deadline();
  if (has_more_to_look_at_) next = std::min(next, clock_.now());
  for (const Entry* entry : handing_over_) {
    next = std::min(next, entry->finished.ended + config_.hand_over_deadline);
  }
  if (wait_for_leaving_until_) next = std::min(next, *wait_for_leaving_until_);
  next = std::min(next, awaits_end_);
  return next;
}

}  // namespace tiercel
