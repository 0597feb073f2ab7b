// SPDX-License-Identifier: Apache-2.0
//
// Two requests with one prefix that is nowhere: the second one leaves it to the first one to
// compute it, and finds it on the device afterwards. It waits in the queue, holds nothing and
// stands in nobody's way. It never waits longer than it would have taken to compute the same
// itself; whoever is waited for comes before it, so that no two wait for each other.
#include <algorithm>

#include "engine/resource_manager_impl.h"

namespace tiercel {

Duration ResourceManagerImpl::prefill_time(uint64_t tokens) const {
  const double rate = cache_.load_estimates().prefill.tokens_per_second;
  // Nothing is planned for longer, and a sum with the present time must not overflow.
  constexpr double kSecondsMax = 86400;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(static_cast<double>(tokens) / rate, kSecondsMax)));
}

void ResourceManagerImpl::stop_computing(Entry& entry) {
  if (!entry.computes) return;
  entry.computes = false;
  computing_.erase(entry.computing_key);
}

void ResourceManagerImpl::tell_computing(Entry& entry) {
  stop_computing(entry);
  if (config_.await_tokens_min == 0 || entry.state != RequestState::kRunning || entry.is_private ||
      entry.shared_blocks >= entry.prefill_blocks) {
    return;
  }
  entry.computing_key = entry.sequence->keys()[entry.shared_blocks];
  entry.computes = computing_.try_emplace(entry.computing_key, &entry).second;
}

bool ResourceManagerImpl::begin_await(Entry& entry, const Found& found) {
  if (entry.awaited_blocks > 0) {
    if (found.ready_blocks >= entry.awaited_blocks) {
      entry.awaits_until.reset();
    } else {
      ++stats_.computed_waits_vain;
    }
    entry.awaited_blocks = 0;
  }
  const auto keys = loadable_keys(entry);
  if (computing_.empty() || found.ready_blocks >= keys.size()) return false;
  const auto computing = computing_.find(keys[found.ready_blocks]);
  if (computing == computing_.end()) return false;
  const Entry& other = *computing->second;
  if (!ComesBefore{}(&other, &entry)) return false;
  const auto others = other.sequence->keys().first(other.prefill_blocks);
  const auto mine_end = std::mismatch(keys.begin() + found.ready_blocks, keys.end(),
                                      others.begin() + found.ready_blocks, others.end())
                            .first;
  const auto common = static_cast<uint32_t>(mine_end - keys.begin());
  const uint64_t tokens = uint64_t{common - found.ready_blocks} * block_tokens_;
  if (tokens < config_.await_tokens_min) return false;
  const TimePoint now = clock_.now();
  if (!entry.awaits_until) entry.awaits_until = now + prefill_time(ahead_.tokens() + tokens);
  if (now >= *entry.awaits_until) return false;
  entry.awaits = true;
  entry.awaited = other.id;
  entry.awaited_arrival = other.arrival;
  entry.awaited_blocks = common;
  awaits_end_ = std::min(awaits_end_, *entry.awaits_until);
  ++stats_.computed_waits;
  return true;
}

bool ResourceManagerImpl::still_awaits(Entry& entry) {
  const auto found = entries_.find(entry.awaited);
  if (found != entries_.end()) {
    const Entry& other = *found->second;
    if (other.arrival == entry.awaited_arrival && other.state == RequestState::kRunning &&
        !other.is_private && other.shared_blocks < entry.awaited_blocks &&
        clock_.now() < *entry.awaits_until) {
      awaits_end_ = std::min(awaits_end_, *entry.awaits_until);
      return true;
    }
  }
  entry.awaits = false;
  return false;
}

void ResourceManagerImpl::forget_await(Entry& entry) {
  entry.awaits = false;
  entry.awaited_blocks = 0;
  entry.awaits_until.reset();
}

}  // namespace tiercel
