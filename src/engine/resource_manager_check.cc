// SPDX-License-Identifier: Apache-2.0
//
// What ResourceManager says about itself: figures and invariants.
#include <algorithm>

#include <fmt/core.h>

#include "engine/resource_manager_impl.h"

namespace tiercel {

std::optional<RequestState> ResourceManagerImpl::state(RequestId request) const {
  const auto found = entries_.find(request);
  if (found == entries_.end()) return std::nullopt;
  return found->second->state;
}

ResourceManagerStats ResourceManagerImpl::stats() const {
  ResourceManagerStats stats = stats_;
  stats.waiting = waiting_.size();
  stats.prefetching = prefetching_;
  stats.handing_over = handing_over_.size();
  for (const Entry* entry : running_) {
    ++(entry->state == RequestState::kLoading ? stats.loading : stats.running);
  }
  return stats;
}

std::string ResourceManagerImpl::check() const {
  if (!std::is_sorted(running_.begin(), running_.end(), ComesBefore{})) {
    return "those with device blocks are out of order";
  }
  if (running_.size() > config_.running_max) {
    return fmt::format("{} requests have device blocks, running_max is {}", running_.size(),
                       config_.running_max);
  }
  uint64_t prefetching = 0, handing_over = 0, with_blocks = 0, waiting = 0, announcing = 0,
           computing = 0;
  for (const auto& [id, owned] : entries_) {
    const Entry& entry = *owned;
    const auto wrong = [&](std::string_view what) {
      return fmt::format("request {}, {}: {}", id.value(), to_string(entry.state), what);
    };
    if (entry.id != id) return wrong("stands under another id");
    if (entry.in_batch && !is_open_) return wrong("is in a batch, but none is open");
    if (entry.announces) {
      ++announcing;
      const auto announced = announced_.find(entry.announced_key);
      if (announced == announced_.end() || announced->second != &entry) {
        return wrong("does not announce what it says");
      }
      if (entry.state != RequestState::kLoading) return wrong("announces a load that has ended");
    }
    if (entry.computes) {
      ++computing;
      const auto found = computing_.find(entry.computing_key);
      if (found == computing_.end() || found->second != &entry) {
        return wrong("does not compute what it says");
      }
      if (entry.state != RequestState::kRunning || entry.is_private) {
        return wrong("says that it computes something for others");
      }
    }
    if (entry.awaits && entry.state != RequestState::kWaiting) return wrong("awaits another one");
    if (entry.computed_tokens >= entry.tokens.size()) return wrong("has nothing left to compute");
    switch (entry.state) {
      case RequestState::kWaiting:
        ++waiting;
        if (!waiting_.contains(owned.get())) return wrong("does not stand in the queue");
        break;
      case RequestState::kPrefetching:
        ++prefetching;
        break;
      case RequestState::kHandingOver:
        ++handing_over;
        if (std::find(handing_over_.begin(), handing_over_.end(), owned.get()) ==
            handing_over_.end()) {
          return wrong("is not watched");
        }
        continue;
      case RequestState::kLoading:
      case RequestState::kRunning: {
        ++with_blocks;
        if (!std::binary_search(running_.begin(), running_.end(), owned.get(), ComesBefore{})) {
          return wrong("does not stand among those with device blocks");
        }
        const BlockTable table = prefix_.block_table(id);
        if (table.block_count != entry.device_blocks || table.blocks != entry.table.blocks) {
          return wrong("has another block table than PrefixCache");
        }
        const uint64_t end = entry.computed_tokens + entry.batch_tokens;
        if (end > uint64_t{entry.device_blocks} * block_tokens_) {
          return wrong("has computed more than its blocks hold");
        }
        continue;
      }
    }
    if (prefix_.block_table(id).block_count != 0 && !is_ending(id)) {
      return wrong("has device blocks");
    }
    if (entry.in_batch || entry.computed_tokens != 0 || entry.device_blocks != 0) {
      return wrong("has computed something without device blocks");
    }
  }
  if (prefetching != prefetching_ || handing_over != handing_over_.size() ||
      with_blocks != running_.size() || waiting != waiting_.size() ||
      announcing != announced_.size() || computing != computing_.size()) {
    return fmt::format(
        "counted are {} waiting, {} prefetching, {} with blocks, {} handing over, {} announcing, "
        "{} computing; there are {}, {}, {}, {}, {}, {}",
        waiting_.size(), prefetching_, running_.size(), handing_over_.size(), announced_.size(),
        computing_.size(), waiting, prefetching, with_blocks, handing_over, announcing, computing);
  }
  if (!ending_.empty() && !is_open_) return "requests wait for the end of a step that is not open";
  return {};
}

}  // namespace tiercel
