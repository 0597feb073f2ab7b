// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "base/assert.h"

namespace tiercel {
namespace {

constexpr uint8_t kDeviceMask = tier_bit(Tier::kDevice);

}  // namespace

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheConfig& config, Cache& cache) {
  if (config.device_blocks == 0) {
    return Error(Code::kInvalid, "device_blocks is 0; allowed: at least 1 for a device tier");
  }
  const auto groups = static_cast<uint32_t>(config.spec.groups.size());
  TIERCEL_TRY_ASSIGN(auto policy,
                     make_eviction_policy(config.eviction_policy,
                                          EvictionPolicyContext{cache.index(), Tier::kDevice,
                                                                config.device_blocks * groups}));
  return std::unique_ptr<PrefixCache>(new PrefixCache(config, cache, std::move(policy)));
}

PrefixCache::PrefixCache(const CacheConfig& config, Cache& cache,
                         std::unique_ptr<EvictionPolicy> policy)
    : block_tokens_(config.spec.block_tokens),
      cache_(cache),
      index_(cache.index()),
      policy_(std::move(policy)),
      pools_(config.spec.groups.size()) {
  for (Pool& pool : pools_) {
    pool.blocks.resize(config.device_blocks);
    pool.free.reserve(config.device_blocks);
    for (uint32_t block = config.device_blocks; block > 0; --block) {
      pool.free.emplace_back(block - 1);
    }
  }
}

uint32_t PrefixCache::leading_device_blocks(std::span<const BlockKey> keys) {
  auto run = static_cast<uint32_t>(keys.size());
  path_.resize(keys.size());
  for (uint32_t group = 0; group < groups(); ++group) {
    run = std::min(run, index_.find_all(keys.first(run), GroupId(static_cast<uint8_t>(group)),
                                        kDeviceMask, false, path_));
  }
  return run;
}

Result<PrefixCache::Admission> PrefixCache::admit(RequestId request, std::span<const BlockKey> keys,
                                                  uint32_t block_count) {
  const auto pool_blocks = static_cast<uint32_t>(pools_.front().blocks.size());
  if (block_count > pool_blocks || keys.size() > block_count) {
    return Error(Code::kInvalid,
                 fmt::format("request {} asks for {} device blocks with {} keys; allowed: at least "
                             "one block per key, at most {} (device_blocks)",
                             request.value(), block_count, keys.size(), pool_blocks));
  }
  const auto [found, inserted] = admitted_.try_emplace(request);
  if (!inserted) {
    return Error(Code::kInvalid, fmt::format("request {} is admitted already", request.value()));
  }
  Admitted& admitted = found->second;
  admitted.keys.assign(keys.begin(), keys.end());
  admitted.block_count = block_count;
  admitted.table.assign(size_t{block_count} * groups(), DeviceBlockId(UINT32_MAX));
  const uint32_t shared = leading_device_blocks(keys);
  admitted.device_blocks = admitted.published = shared;

  RequestVisit visit;
  visit.block_count = static_cast<uint32_t>(keys.size());
  visit.known_count = shared;
  for (uint32_t group = 0; group < groups(); ++group) {
    const GroupId id(static_cast<uint8_t>(group));
    path_.clear();
    for (uint32_t position = 0; position < shared; ++position) {
      const NodeId node = index_.find(keys[position], id);
      const DeviceBlockId block(index_.slot(node, Tier::kDevice).value());
      admitted.table[size_t{group} * block_count + position] = block;
      reference(group, block);
      path_.push_back(node);
    }
    positions_.resize(shared);
    std::iota(positions_.begin(), positions_.end(), 0u);
    if (shared > 0) policy_->visit(path_, positions_, visit);
  }
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = shared; position < block_count; ++position) {
      DeviceBlockId& block = admitted.table[size_t{group} * block_count + position];
      if (allocate(group, &block)) continue;
      give_back(admitted);
      admitted_.erase(found);
      return Error(Code::kNoSpace,
                   fmt::format("request {} needs {} device blocks per group; the pool of {} cannot "
                               "give them while others use them",
                               request.value(), block_count, pool_blocks));
    }
  }
  stats_.device_hit_blocks += shared;
  return Admission{shared, admitted.table};
}

bool PrefixCache::allocate(uint32_t group, DeviceBlockId* block) {
  Pool& pool = pools_[group];
  while (pool.free.empty()) {
    if (!evict_one()) return false;
  }
  *block = pool.free.back();
  pool.free.pop_back();
  pool.blocks[block->value()].references = 1;
  return true;
}

bool PrefixCache::evict_one() {
  const NodeId victim = policy_->victim(kVictimScanMax);
  if (victim == kNoNode) return false;
  forget(victim, true);
  ++stats_.evicted_blocks;
  return true;
}

void PrefixCache::forget(NodeId node, bool evicted) {
  const uint32_t group = index_.group(node).value();
  policy_->erase(node, evicted);
  const DeviceBlockId block(index_.clear_place(node, Tier::kDevice).value());
  DeviceBlock& entry = pools_[group].blocks[block.value()];
  TIERCEL_ASSERT(entry.node == node, "a device place names the block that names it");
  entry.node = kNoNode;
  if (entry.references == 0) pools_[group].free.push_back(block);
  index_.release_if_unused(node);
}

void PrefixCache::reference(uint32_t group, DeviceBlockId block) {
  DeviceBlock& entry = pools_[group].blocks[block.value()];
  ++entry.references;
  if (entry.node != kNoNode) index_.hold(entry.node);
}

void PrefixCache::unreference(uint32_t group, DeviceBlockId block) {
  DeviceBlock& entry = pools_[group].blocks[block.value()];
  TIERCEL_ASSERT(entry.references > 0, "a device block is given back once per user");
  --entry.references;
  if (entry.node == kNoNode) {
    if (entry.references == 0) pools_[group].free.push_back(block);
    return;
  }
  const NodeId node = entry.node;
  index_.unhold(node);
  // What clear() has made unfindable goes with its last user.
  if (entry.references == 0 && !index_.is_current(node)) forget(node, false);
}

void PrefixCache::give_back(const Admitted& admitted) {
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = 0; position < admitted.block_count; ++position) {
      const DeviceBlockId block = admitted.table[size_t{group} * admitted.block_count + position];
      if (block.value() != UINT32_MAX) unreference(group, block);
    }
  }
}

Result<uint32_t> PrefixCache::load(RequestId request, TimePoint deadline) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) {
    return Error(Code::kNotFound, fmt::format("request {} is not admitted", request.value()));
  }
  const Admitted& admitted = found->second;
  const auto keys = static_cast<uint32_t>(admitted.keys.size());
  std::vector<DeviceBlockId> offered;
  offered.reserve(size_t{keys - admitted.device_blocks} * groups());
  for (uint32_t group = 0; group < groups(); ++group) {
    const auto row =
        admitted.table.begin() + static_cast<ptrdiff_t>(size_t{group} * admitted.block_count);
    offered.insert(offered.end(), row + admitted.device_blocks, row + keys);
  }
  return cache_.load(request, admitted.keys, admitted.device_blocks, offered, deadline);
}

bool PrefixCache::may_compute(RequestId request) const {
  const auto found = admitted_.find(request);
  return found != admitted_.end() && !found->second.device_busy;
}

Status PrefixCache::commit(RequestId request, uint64_t token_count) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) {
    return Error(Code::kNotFound, fmt::format("request {} is not admitted", request.value()));
  }
  Admitted& admitted = found->second;
  if (admitted.device_busy) {
    return Error(Code::kBusy, fmt::format("a late load may still write to the device blocks of "
                                          "request {}; wait for kDeviceReleased",
                                          request.value()));
  }
  const auto computed =
      static_cast<uint32_t>(std::min<uint64_t>(token_count / block_tokens_, admitted.keys.size()));
  const uint32_t first = admitted.published;
  for (; admitted.published < computed; ++admitted.published) {
    publish(admitted, admitted.published);
  }
  if (computed <= first) return {};
  std::vector<DeviceBlockId> blocks;
  blocks.reserve(size_t{computed - first} * groups());
  for (uint32_t group = 0; group < groups(); ++group) {
    const auto row =
        admitted.table.begin() + static_cast<ptrdiff_t>(size_t{group} * admitted.block_count);
    blocks.insert(blocks.end(), row + first, row + computed);
  }
  TIERCEL_TRY(cache_.save(request, admitted.keys, first, blocks));
  return cache_.commit(request, token_count);
}

void PrefixCache::publish(Admitted& admitted, uint32_t position) {
  for (uint32_t group = 0; group < groups(); ++group) {
    const GroupId id(static_cast<uint8_t>(group));
    const DeviceBlockId block = admitted.table[size_t{group} * admitted.block_count + position];
    NodeId node = index_.find(admitted.keys[position], id);
    if (node == kNoNode) {
      NodeId parent = kNoNode;
      if (position > 0) {
        parent = index_.find(admitted.keys[position - 1], id);
        if (parent == kNoNode && !index_.is_window_group(id)) continue;  // could never be found
      }
      node = index_.insert(admitted.keys[position], id, parent);
      if (node == kNoNode) continue;  // the index is full: the block stays private
    } else if (index_.is_in(node, Tier::kDevice)) {
      ++stats_.duplicate_blocks;
      continue;
    }
    index_.set_place(node, Tier::kDevice, SlotId(block.value()));
    pools_[group].blocks[block.value()].node = node;
    index_.hold(node);  // by this request's reference
    policy_->insert(node, BlockPosition{RequestVisit{}, position});
  }
}

Status PrefixCache::end(RequestId request, bool aborted) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) {
    return Error(Code::kNotFound, fmt::format("request {} is not admitted", request.value()));
  }
  // Cache may never have heard of a request that was neither loaded nor committed.
  const Result<Farewell> farewell = aborted ? cache_.abort(request) : cache_.finish(request);
  if (farewell && farewell->device_busy) {
    leaving_.push_back(Leaving{request, farewell->generation, std::move(found->second)});
  } else {
    give_back(found->second);
  }
  admitted_.erase(found);
  return {};
}

Status PrefixCache::finish(RequestId request) { return end(request, false); }
Status PrefixCache::abort(RequestId request) { return end(request, true); }

size_t PrefixCache::poll(std::span<CacheEvent> events) {
  const size_t count = cache_.poll(events);
  for (const CacheEvent& event : events.first(count)) {
    const auto living = admitted_.find(event.request);
    if (event.kind == EventKind::kLoadDone && living != admitted_.end()) {
      living->second.device_busy = event.device_busy;
    }
    if (event.kind != EventKind::kDeviceReleased) continue;
    const auto gone = std::find_if(leaving_.begin(), leaving_.end(), [&](const Leaving& leaving) {
      return leaving.request == event.request && leaving.generation == event.generation;
    });
    if (gone == leaving_.end()) {
      if (living != admitted_.end()) living->second.device_busy = false;
      continue;
    }
    give_back(gone->admitted);
    leaving_.erase(gone);
  }
  if (index_.epoch() != epoch_) forget_stale();
  return count;
}

void PrefixCache::forget_stale() {
  epoch_ = index_.epoch();
  for (Pool& pool : pools_) {
    for (DeviceBlock& block : pool.blocks) {
      if (block.node == kNoNode || block.references > 0 || index_.is_current(block.node)) continue;
      forget(block.node, false);
    }
  }
}

void PrefixCache::clear() {
  cache_.clear();
  for (Pool& pool : pools_) {
    for (DeviceBlock& block : pool.blocks) {
      if (block.node != kNoNode && block.references == 0) forget(block.node, false);
    }
  }
}

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
    for (size_t entry = 0; entry < admitted.table.size(); ++entry) {
      ++references[entry / admitted.block_count][admitted.table[entry].value()];
    }
  };
  for (const auto& [request, admitted] : admitted_) count(admitted);
  for (const Leaving& leaving : leaving_) count(leaving.admitted);
  for (size_t group = 0; group < pools_.size(); ++group) {
    const Pool& pool = pools_[group];
    std::vector<bool> is_free(pool.blocks.size());
    for (const DeviceBlockId block : pool.free) {
      if (is_free[block.value()]) return fmt::format("block {} is free twice", block.value());
      is_free[block.value()] = true;
    }
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
    }
  }
  return {};
}

}  // namespace tiercel
