// SPDX-License-Identifier: Apache-2.0
//
// What may begin: prefetch while waiting, admission, load.
#include <algorithm>

#include "base/assert.h"
#include "engine/resource_manager_impl.h"

namespace tiercel {
namespace {

// Entries at the head of the queue that one step walks over, most of them without a look.
constexpr uint32_t kWalkMax = 64;
// Entries beside those that only wait for what another one loads: a look into a table each.
constexpr uint32_t kWaitersMax = 1024;

}  // namespace

void ResourceManagerImpl::admit_waiting() {
  uint32_t looks = 0;
  uint64_t look_blocks = 0;
  // Whoever is preempted for room would take it right back.
  bool has_room = !is_short_;
  uint32_t walked = 0;
  uint32_t waiters = 0;
  awaits_end_ = kNoDeadline;
  ahead_ = TokensAhead(config_.step_tokens_max, config_.prefill_chunk_tokens_max);
  for (const Entry* entry : running_) {
    if (entry->state == RequestState::kRunning) ahead_.add(entry->pending_tokens());
  }
  auto at = waiting_.begin();
  while (at != waiting_.end() && walked < kWalkMax && waiters < kWaitersMax) {
    Entry& entry = **at++;  // a look may take it out
    if (entry.waits) {
      if (announced_.contains(entry.awaited_key)) {
        ++waiters;
        continue;
      }
      entry.waits = false;
    }
    if (entry.awaits && still_awaits(entry)) {
      ++waiters;
      continue;
    }
    ++walked;
    const bool may_begin = has_room && running_.size() < config_.running_max;
    const bool may_prefetch =
        with_store_ && !entry.looked_at && prefetching_ < config_.prefetching_max;
    if (!may_begin && !may_prefetch) {
      ahead_.add(entry.tokens_to_compute);
      continue;
    }
    if (looks == config_.looks_per_step_max || look_blocks >= config_.look_blocks_per_step_max) {
      has_more_to_look_at_ = true;
      return;
    }
    ++looks;
    look_blocks += entry.tokens.size() / block_tokens_;
    const Look look = look_at(entry, may_begin);
    if (look == Look::kNoRoom) has_room = false;
    // Who loads, waits for the store or for another request is not counted: rather too little.
    if (look == Look::kGone ? entry.state == RequestState::kRunning
                            : !entry.waits && !entry.awaits) {
      ahead_.add(look == Look::kGone ? entry.pending_tokens() : entry.tokens_to_compute);
    }
  }
}

std::span<const BlockKey> ResourceManagerImpl::loadable_keys(const Entry& entry) {
  // At least one token is left to compute, so that there is something to run.
  const auto all = entry.sequence->keys();
  const auto keys =
      all.first(std::min<size_t>(all.size(), (entry.tokens.size() - 1) / block_tokens_));
  const bool ends_at_partial = config_.role == EngineRole::kDecode && entry.partial_key &&
                               entry.tokens.size() > entry.prompt_tokens &&
                               keys.size() == entry.prompt_tokens / block_tokens_ &&
                               window_reaches(entry.prompt_tokens % block_tokens_);
  if (!ends_at_partial) return keys;
  keys_.assign(keys.begin(), keys.end());
  keys_.push_back(*entry.partial_key);
  return keys_;
}

bool ResourceManagerImpl::window_reaches(uint64_t token_count) const {
  for (const GroupSpec& group : cache_.config().spec.groups) {
    if (group.attention != AttentionKind::kWindow) continue;
    // A cut counts whole blocks before it, the partial one among them, which has fewer tokens.
    const uint64_t seen = group.window_tokens - 1;
    const uint64_t blocks = (seen + block_tokens_ - 1) / block_tokens_;
    if (blocks == 0) continue;
    if (token_count + (blocks - 1) * block_tokens_ < seen) return false;
  }
  return true;
}

uint64_t ResourceManagerImpl::tokens_of_blocks(const Entry& entry, uint32_t blocks) const {
  const uint64_t tokens = uint64_t{blocks} * block_tokens_;
  return entry.loads_partial ? std::min(tokens, entry.prompt_tokens) : tokens;
}

ResourceManagerImpl::Look ResourceManagerImpl::look_at(Entry& entry, bool may_begin) {
  if (!entry.sequence) {
    const Status made = make_sequence(entry);
    TIERCEL_ASSERT(made, "its items have been checked when it was added");
  }
  const auto keys = loadable_keys(entry);
  const PrefixCache::DeviceMatch device = prefix_.match(keys);
  const Match match = cache_.match(keys, device.blocks);
  const Found found{device.blocks, device.unused, match.ready_blocks, match.possible_blocks};
  entry.tokens_to_compute = entry.tokens.size() - tokens_of_blocks(entry, found.ready_blocks);
  if (!entry.looked_at && start_prefetch(entry, found)) return Look::kGone;
  if (!may_begin) return Look::kPassed;
  return admit(entry, found);
}

bool ResourceManagerImpl::start_prefetch(Entry& entry, const Found& found) {
  const bool wants = found.possible_blocks > found.ready_blocks;
  // That too many wait for the store decides nothing: if it finds no room now, it asks again.
  if (wants && prefetching_ >= config_.prefetching_max) return false;
  entry.looked_at = true;
  if (!wants) return false;
  entry.in_cache = true;
  const auto started = cache_.prefetch(
      entry.id, loadable_keys(entry).first(found.possible_blocks), found.device_blocks,
      clock_.now() + config_.prefetch_deadline, prefill_time(ahead_.tokens()));
  if (!started || !*started) return false;
  ++stats_.prefetches;
  ++prefetching_;
  waiting_.erase(&entry);
  entry.state = RequestState::kPrefetching;
  return true;
}

uint64_t ResourceManagerImpl::promised_blocks() const {
  // What those who run still need for the tokens that they have, and one block of growth each.
  uint64_t blocks = running_.size();
  for (const Entry* entry : running_) {
    const uint64_t needed = blocks_of(entry->tokens.size());
    if (needed > entry->device_blocks) blocks += needed - entry->device_blocks;
  }
  return blocks;
}

ResourceManagerImpl::Look ResourceManagerImpl::admit(Entry& entry, const Found& found) {
  const auto keys = loadable_keys(entry);
  const uint32_t wanted = found.ready_blocks;
  const bool loads = wanted > found.device_blocks;
  if (!loads && budget_ == 0) return Look::kNoRoom;
  if (loads && announced_.contains(keys[found.device_blocks])) {
    entry.waits = true;
    entry.awaited_key = keys[found.device_blocks];
    ++stats_.shared_waits;
    return Look::kPassed;
  }
  if (begin_await(entry, found)) return Look::kPassed;
  entry.loads_partial = wanted > 0 && entry.partial_key == keys[wanted - 1];
  const uint64_t hit_tokens = tokens_of_blocks(entry, wanted);
  const uint64_t chunk =
      std::min<uint64_t>(entry.tokens.size() - hit_tokens, config_.prefill_chunk_tokens_max);
  const auto blocks = static_cast<uint32_t>(blocks_of(hit_tokens + chunk));
  if (!running_.empty()) {
    // Room for the whole prompt, though it is taken chunk by chunk: whoever begins without it will
    // soon preempt, or be preempted.
    const uint64_t shared = found.device_blocks - found.unused_blocks;
    const uint64_t needed = blocks_of(entry.tokens.size()) - shared;
    if (needed + promised_blocks() > prefix_.available_blocks()) return Look::kNoRoom;
  }
  const auto admission = prefix_.admit(entry.id, keys.first(wanted), blocks);
  if (!admission) return Look::kNoRoom;
  waiting_.erase(&entry);
  running_.insert(std::lower_bound(running_.begin(), running_.end(), &entry, ComesBefore{}),
                  &entry);
  entry.state = RequestState::kRunning;
  entry.in_cache = false;  // PrefixCache ends its life there from now on
  entry.device_blocks = blocks;
  entry.hit_blocks = entry.shared_blocks = admission->device_blocks;
  entry.prefill_blocks = static_cast<uint32_t>(
      std::min<size_t>(entry.sequence->keys().size(), entry.tokens.size() / block_tokens_));
  entry.computed_tokens = uint64_t{admission->device_blocks} * block_tokens_;
  entry.table = admission->block_table;
  ++stats_.admitted;
  stats_.device_hit_tokens += entry.computed_tokens;
  if (entry.finished.preemptions == 0) entry.finished.device_hit_tokens = entry.computed_tokens;
  if (loads) {
    const auto started = prefix_.load(entry.id, clock_.now() + config_.load_deadline);
    if (started && *started > 0) {
      ++stats_.loads;
      entry.state = RequestState::kLoading;
      entry.announces = true;
      entry.announced_key = keys[admission->device_blocks];
      announced_.emplace(entry.announced_key, &entry);
      return Look::kGone;
    }
  }
  if (entry.loads_partial) prefix_.forget_partial(entry.id);
  entry.loads_partial = false;
  tell_computing(entry);
  (void)schedule_one(entry, budget_);
  return Look::kGone;
}

}  // namespace tiercel
