// SPDX-License-Identifier: Apache-2.0
//
// What PrefixCache says about itself: figures and invariants.
#include <fmt/core.h>

#include "engine/prefix_cache.h"

namespace tiercel {

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = stats_;
  for (const Pool& pool : pools_) {
    stats.free_blocks += static_cast<uint32_t>(pool.free.size());
    for (const DeviceBlock& block : pool.blocks) {
      if (block.references > 0) {
        ++stats.referenced_blocks;
      } else if (block.node != kNoNode) {
        ++stats.cached_blocks;
      }
    }
  }
  return stats;
}

uint64_t PrefixCache::hold_count() const {
  uint64_t holds = 0;
  for (const Pool& pool : pools_) {
    for (const DeviceBlock& block : pool.blocks) {
      if (block.node != kNoNode) holds += block.references;
    }
  }
  return holds;
}

std::string PrefixCache::check() const {
  std::vector<std::vector<uint32_t>> references(pools_.size());
  for (size_t group = 0; group < pools_.size(); ++group) {
    references[group].resize(pools_[group].blocks.size());
  }
  const auto count = [&](const Admitted& admitted) {
    for (uint32_t group = 0; group < groups(); ++group) {
      for (uint32_t position = 0; position < admitted.block_count; ++position) {
        ++references[group][admitted.at(group, position).value()];
      }
    }
    for (const auto& [group, block] : admitted.parked) ++references[group][block.value()];
  };
  for (const auto& [request, admitted] : admitted_) count(admitted);
  uint32_t leaving = 0;
  for (const Leaving& gone : leaving_) {
    count(gone.admitted);
    leaving += gone.admitted.block_count;
  }
  if (leaving != leaving_blocks_) {
    return fmt::format("{} blocks are leaving, counted are {}", leaving, leaving_blocks_);
  }
  for (size_t group = 0; group < pools_.size(); ++group) {
    const Pool& pool = pools_[group];
    std::vector<bool> is_free(pool.blocks.size());
    for (const DeviceBlockId block : pool.free) {
      if (is_free[block.value()]) return fmt::format("block {} is free twice", block.value());
      is_free[block.value()] = true;
    }
    uint32_t cached = 0;
    for (uint32_t i = 0; i < pool.blocks.size(); ++i) {
      const DeviceBlock& block = pool.blocks[i];
      if (block.references != references[group][i]) {
        return fmt::format("block {} of group {} has {} references, its users are {}", i, group,
                           block.references, references[group][i]);
      }
      const bool unused = block.references == 0 && block.node == kNoNode;
      if (is_free[i] != unused) {
        return fmt::format("block {} of group {} is {}free but {}used", i, group,
                           is_free[i] ? "" : "not ", unused ? "not " : "");
      }
      if (block.node != kNoNode && (!index_.is_in(block.node, Tier::kDevice) ||
                                    index_.slot(block.node, Tier::kDevice).value() != i)) {
        return fmt::format("block {} of group {} and its node disagree", i, group);
      }
      if (block.node != kNoNode && block.references == 0) ++cached;
    }
    if (cached != pool.cached) {
      return fmt::format("group {} has {} unused cached blocks, counted are {}", group, cached,
                         pool.cached);
    }
  }
  return {};
}

}  // namespace tiercel
