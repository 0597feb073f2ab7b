// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "engine/engine_protections.h"

namespace tiercel {
namespace {

constexpr uint8_t kDeviceMask = tier_bit(Tier::kDevice);
constexpr uint32_t kFullAttention = UINT32_MAX;
// Marks a position that Cache shall not save.
constexpr DeviceBlockId kNoDeviceBlock{UINT32_MAX};

Error not_admitted(RequestId request) {
  return Error(Code::kNotFound, fmt::format("request {} is not admitted", request.value()));
}

}  // namespace

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheConfig& config, Cache& cache) {
  return EngineFactory::create_prefix_cache(EngineProtections{}, config, cache);
}

Result<std::unique_ptr<PrefixCache>> EngineFactory::create_prefix_cache(
    const EngineProtections& protections, const CacheConfig& config, Cache& cache) {
  if (config.device_blocks == 0) {
    return Error(Code::kInvalid, "device_blocks is 0; allowed: at least 1 for a device tier");
  }
  const auto groups = static_cast<uint32_t>(config.spec.groups.size());
  TIERCEL_TRY_ASSIGN(auto policy,
                     make_eviction_policy(config.eviction_policy,
                                          EvictionPolicyContext{cache.index(), Tier::kDevice,
                                                                config.device_blocks * groups,
                                                                /*moves_pinned=*/true}));
  std::unique_ptr<PrefixCache> prefix(new PrefixCache(config, cache, std::move(policy)));
  prefix->keeps_leaving_ = protections.leaving;
  prefix->forgets_lost_ = protections.device_loss;
  return prefix;
}

PrefixCache::PrefixCache(const CacheConfig& config, Cache& cache,
                         std::unique_ptr<EvictionPolicy> policy)
    : block_tokens_(config.spec.block_tokens),
      cache_(cache),
      index_(cache.index()),
      policy_(std::move(policy)),
      pools_(config.spec.groups.size()) {
  for (const GroupSpec& group : config.spec.groups) {
    // The token behind a cut sees window_tokens − 1 tokens before it.
    window_blocks_.push_back(group.attention == AttentionKind::kWindow
                                 ? (group.window_tokens - 1 + block_tokens_ - 1) / block_tokens_
                                 : kFullAttention);
  }
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

PrefixCache::DeviceMatch PrefixCache::match(std::span<const BlockKey> keys) {
  DeviceMatch match;
  match.blocks = leading_device_blocks(keys);
  for (uint32_t group = 0; group < groups(); ++group) {
    if (groups() > 1) {
      index_.find_all(keys.first(match.blocks), GroupId(static_cast<uint8_t>(group)), kDeviceMask,
                      false, path_);
    }
    uint32_t unused = 0;
    for (uint32_t position = 0; position < match.blocks; ++position) {
      const uint32_t block = index_.slot(path_[position], Tier::kDevice).value();
      if (pools_[group].blocks[block].references == 0) ++unused;
    }
    match.unused = std::max(match.unused, unused);
  }
  return match;
}

BlockTable PrefixCache::table_of(const Admitted& admitted) const {
  return BlockTable{admitted.table.data(), admitted.block_count, admitted.stride, groups()};
}

BlockTable PrefixCache::block_table(RequestId request) const {
  const auto found = admitted_.find(request);
  return found == admitted_.end() ? BlockTable{} : table_of(found->second);
}

Status PrefixCache::no_space(RequestId request, uint32_t block_count) const {
  return Error(
      Code::kNoSpace,
      fmt::format("request {} needs {} device blocks per group; the pool of {} cannot give "
                  "them while others use them",
                  request.value(), block_count, pool_blocks()));
}

Result<PrefixCache::Admission> PrefixCache::admit(RequestId request, std::span<const BlockKey> keys,
                                                  uint32_t block_count) {
  if (block_count > pool_blocks() || keys.size() > block_count) {
    return Error(Code::kInvalid,
                 fmt::format("request {} asks for {} device blocks with {} keys; allowed: at least "
                             "one block per key, at most {} (device_blocks)",
                             request.value(), block_count, keys.size(), pool_blocks()));
  }
  const auto [found, inserted] = admitted_.try_emplace(request);
  if (!inserted) {
    return Error(Code::kInvalid, fmt::format("request {} is admitted already", request.value()));
  }
  Admitted& admitted = found->second;
  admitted.keys.assign(keys.begin(), keys.end());
  admitted.loadable_blocks = static_cast<uint32_t>(keys.size());
  admitted.stride = block_count;
  admitted.table.assign(size_t{block_count} * groups(), kNoDeviceBlock);
  const uint32_t shared = leading_device_blocks(keys);
  admitted.device_blocks = admitted.published = admitted.block_count = shared;

  RequestVisit visit;
  visit.block_count = static_cast<uint32_t>(keys.size());
  visit.known_count = shared;
  positions_.resize(shared);
  std::iota(positions_.begin(), positions_.end(), 0u);
  for (uint32_t group = 0; group < groups(); ++group) {
    if (shared == 0) break;
    if (groups() > 1) {
      index_.find_all(keys.first(shared), GroupId(static_cast<uint8_t>(group)), kDeviceMask, false,
                      path_);
    }
    for (uint32_t position = 0; position < shared; ++position) {
      const DeviceBlockId block(index_.slot(path_[position], Tier::kDevice).value());
      admitted.at(group, position) = block;
      reference(group, block);
    }
    policy_->visit(std::span(path_).first(shared), positions_, visit);
  }
  if (!allocate_range(admitted, shared, block_count)) {
    give_back(admitted);
    admitted_.erase(found);
    return no_space(request, block_count).error();
  }
  stats_.device_hit_blocks += shared;
  return Admission{shared, table_of(admitted)};
}

Result<BlockTable> PrefixCache::extend(RequestId request, std::span<const BlockKey> keys,
                                       uint32_t block_count) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) return not_admitted(request);
  Admitted& admitted = found->second;
  block_count = std::max(block_count, admitted.block_count);
  if (block_count > pool_blocks() || keys.size() > block_count) {
    return Error(Code::kInvalid,
                 fmt::format("request {} grows to {} device blocks with {} keys; allowed: at least "
                             "one block per key, at most {} (device_blocks)",
                             request.value(), block_count, keys.size(), pool_blocks()));
  }
  if (block_count > admitted.block_count) {
    if (block_count > admitted.stride) grow_table(admitted, block_count);
    if (!allocate_range(admitted, admitted.block_count, block_count)) {
      return no_space(request, block_count).error();
    }
  }
  if (keys.size() > admitted.keys.size()) {
    const auto first_new = static_cast<ptrdiff_t>(admitted.keys.size());
    admitted.keys.insert(admitted.keys.end(), keys.begin() + first_new, keys.end());
  }
  return table_of(admitted);
}

void PrefixCache::grow_table(Admitted& admitted, uint32_t block_count) {
  const uint32_t stride = std::max(block_count, std::min(2 * admitted.stride, pool_blocks()));
  std::vector<DeviceBlockId> table(size_t{stride} * groups(), kNoDeviceBlock);
  for (uint32_t group = 0; group < groups(); ++group) {
    std::copy_n(admitted.table.begin() + static_cast<ptrdiff_t>(size_t{group} * admitted.stride),
                admitted.block_count,
                table.begin() + static_cast<ptrdiff_t>(size_t{group} * stride));
  }
  admitted.table = std::move(table);
  admitted.stride = stride;
}

bool PrefixCache::allocate_range(Admitted& admitted, uint32_t first, uint32_t block_count) {
  // Known beforehand, so that nothing is evicted in vain.
  if (block_count - first > available_blocks()) return false;
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = first; position < block_count; ++position) {
      if (allocate(group, &admitted.at(group, position))) continue;
      for (uint32_t taken_group = 0; taken_group <= group; ++taken_group) {
        const uint32_t end = taken_group == group ? position : block_count;
        for (uint32_t taken = first; taken < end; ++taken) {
          unreference(taken_group, admitted.at(taken_group, taken));
        }
      }
      return false;
    }
  }
  admitted.block_count = block_count;
  return true;
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

uint32_t PrefixCache::available_blocks() const {
  uint32_t available = UINT32_MAX;
  for (const Pool& pool : pools_) {
    available = std::min(available, static_cast<uint32_t>(pool.free.size()) + pool.cached);
  }
  return available;
}

bool PrefixCache::evict_one() {
  NodeId victim = policy_->victim(kVictimScanMax);
  if (victim == kNoNode) victim = any_unused();
  if (victim == kNoNode) return false;
  forget(victim, true);
  ++stats_.evicted_blocks;
  return true;
}

NodeId PrefixCache::any_unused() {
  // What a transfer below or a waiting request holds is safe there; what stands before blocks of
  // another tier makes garbage of them, which is no hit: both are better than a request that cannot
  // go on. Rare, so a walk is good enough.
  NodeId any = kNoNode;
  for (const Pool& pool : pools_) {
    if (pool.cached == 0) continue;
    for (const DeviceBlock& block : pool.blocks) {
      if (block.node == kNoNode || block.references > 0) continue;
      if (index_.child_count(block.node) == 0) return block.node;
      any = block.node;
    }
  }
  return any;
}

void PrefixCache::forget(NodeId node, bool evicted) {
  const uint32_t group = index_.group(node).value();
  policy_->erase(node, evicted);
  const DeviceBlockId block(index_.clear_place(node, Tier::kDevice).value());
  DeviceBlock& entry = pools_[group].blocks[block.value()];
  TIERCEL_ASSERT(entry.node == node, "a device place names the block that names it");
  entry.node = kNoNode;
  if (entry.references == 0) {
    --pools_[group].cached;
    pools_[group].free.push_back(block);
  }
  index_.release_if_unused(node);
}

void PrefixCache::reference(uint32_t group, DeviceBlockId block) {
  DeviceBlock& entry = pools_[group].blocks[block.value()];
  ++entry.references;
  if (entry.node == kNoNode) return;
  if (entry.references == 1) {
    --pools_[group].cached;
    policy_->suspend(entry.node);
  }
  index_.hold(entry.node);
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
  if (entry.references > 0) return;
  ++pools_[group].cached;
  policy_->resume(node);
  // What clear() has made unfindable goes with its last user.
  if (!index_.is_current(node)) forget(node, false);
}

void PrefixCache::release_parked(Admitted& admitted) {
  for (const auto& [group, block] : admitted.parked) unreference(group, block);
  admitted.parked.clear();
}

void PrefixCache::give_back(Admitted& admitted) {
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = 0; position < admitted.block_count; ++position) {
      unreference(group, admitted.at(group, position));
    }
  }
  release_parked(admitted);
}

Result<uint32_t> PrefixCache::load(RequestId request, TimePoint deadline) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) return not_admitted(request);
  Admitted& admitted = found->second;
  const uint32_t first = admitted.device_blocks;
  const uint32_t end = admitted.loadable_blocks;
  offered_.clear();
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = first; position < end; ++position) {
      offered_.push_back(admitted.at(group, position));
    }
  }
  TIERCEL_TRY_ASSIGN(
      const uint32_t started,
      cache_.load(request, std::span(admitted.keys).first(end), first, offered_, deadline));
  admitted.load_first = admitted.load_cut = first;
  admitted.load_end = first + started;
  return started;
}

bool PrefixCache::may_compute(RequestId request) const {
  const auto found = admitted_.find(request);
  return found != admitted_.end() && !found->second.device_busy;
}

uint32_t PrefixCache::part_from_busy(RequestId request) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end() || !found->second.device_busy) return 0;
  Admitted& admitted = found->second;
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = admitted.load_cut; position < admitted.block_count; ++position) {
      const DeviceBlockId block = std::exchange(admitted.at(group, position), kNoDeviceBlock);
      if (position < admitted.load_end) {
        admitted.parked.emplace_back(group, block);
      } else {
        unreference(group, block);
      }
    }
  }
  const uint32_t parted = admitted.load_end - admitted.load_cut;
  admitted.block_count = admitted.load_end = admitted.load_cut;
  admitted.device_busy = false;
  return parted;
}

Status PrefixCache::commit(RequestId request, uint64_t token_count) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) return not_admitted(request);
  Admitted& admitted = found->second;
  if (admitted.device_busy) {
    return Error(Code::kBusy, fmt::format("a late load may still write to the device blocks of "
                                          "request {}; wait for kDeviceReleased",
                                          request.value()));
  }
  const auto computed =
      static_cast<uint32_t>(std::min<uint64_t>(token_count / block_tokens_, admitted.keys.size()));
  const uint32_t first = admitted.published;
  if (computed <= first) return {};
  publish(admitted, first, computed);
  admitted.published = computed;
  offered_.clear();
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = first; position < computed; ++position) {
      offered_.push_back(has_kv(admitted, group, position) ? admitted.at(group, position)
                                                           : kNoDeviceBlock);
    }
  }
  TIERCEL_TRY(cache_.save(request, admitted.keys, first, offered_));
  return cache_.commit(request, token_count);
}

Status PrefixCache::commit_partial(RequestId request, const BlockKey& partial_key) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) return not_admitted(request);
  Admitted& admitted = found->second;
  const auto position = static_cast<uint32_t>(admitted.keys.size());
  if (admitted.device_busy || admitted.published != position || position >= admitted.block_count) {
    return Error(
        Code::kInvalid,
        fmt::format("request {} has keys for {} blocks, {} of them committed, and {} device "
                    "blocks; allowed: all committed, and one more device block",
                    request.value(), position, admitted.published, admitted.block_count));
  }
  offered_.clear();
  for (uint32_t group = 0; group < groups(); ++group) {
    offered_.push_back(admitted.at(group, position));
  }
  admitted.keys.push_back(partial_key);
  const Status saved = cache_.save(request, admitted.keys, position, offered_);
  admitted.keys.pop_back();
  TIERCEL_TRY(saved);
  return cache_.commit(request, uint64_t{position + 1} * block_tokens_);
}

void PrefixCache::forget_partial(RequestId request) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end() || found->second.keys.empty()) return;
  found->second.keys.pop_back();
  // Cache has the key in its list of the request's blocks, which only grows: another life there.
  const Result<Farewell> farewell = cache_.finish(request);
  if (!farewell || !farewell->device_busy) return;
  // What a late load still touches comes back with the end of this life.
  Leaving& leaving = leaving_.emplace_back();
  leaving.request = request;
  leaving.generation = farewell->generation;
  leaving.admitted.parked = std::move(found->second.parked);
  found->second.parked.clear();
}

bool PrefixCache::has_kv(const Admitted& admitted, uint32_t group, uint32_t position) const {
  return window_blocks_[group] == kFullAttention || position < admitted.load_first ||
         position >= admitted.load_cut ||
         uint64_t{position} + window_blocks_[group] >= admitted.load_cut;
}

void PrefixCache::publish(Admitted& admitted, uint32_t first, uint32_t end) {
  const auto keys = std::span(admitted.keys).subspan(first, end - first);
  path_.resize(keys.size());
  for (uint32_t group = 0; group < groups(); ++group) {
    const GroupId id(static_cast<uint8_t>(group));
    index_.find_all(keys, id, kDeviceMask, true, path_);
    NodeId parent = first > 0 ? index_.find(admitted.keys[first - 1], id) : kNoNode;
    for (uint32_t position = first; position < end; ++position) {
      NodeId node = path_[position - first];
      const NodeId before = std::exchange(parent, node);
      if (!has_kv(admitted, group, position)) continue;
      if (node == kNoNode) {
        // Behind a block that is nowhere it could never be found.
        if (position > 0 && before == kNoNode && !index_.is_window_group(id)) continue;
        node = parent = index_.insert(admitted.keys[position], id, before);
        if (node == kNoNode) continue;  // the index is full: the block stays private
      } else if (index_.is_in(node, Tier::kDevice)) {
        ++stats_.duplicate_blocks;
        continue;
      }
      const DeviceBlockId block = admitted.at(group, position);
      index_.set_place(node, Tier::kDevice, SlotId(block.value()));
      pools_[group].blocks[block.value()].node = node;
      index_.hold(node);  // by this request's reference
      policy_->insert(node, BlockPosition{RequestVisit{}, position});
      policy_->suspend(node);
    }
  }
}

Status PrefixCache::end(RequestId request, bool aborted) {
  const auto found = admitted_.find(request);
  if (found == admitted_.end()) return not_admitted(request);
  // Cache may never have heard of a request that was neither loaded nor committed.
  const Result<Farewell> farewell = aborted ? cache_.abort(request) : cache_.finish(request);
  if (farewell && farewell->device_busy && keeps_leaving_) {
    leaving_blocks_ += found->second.block_count;
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
  for (const CacheEvent& event : events.first(count)) on_event(event);
  if (index_.epoch() != epoch_) forget_stale();
  return count;
}

void PrefixCache::on_event(const CacheEvent& event) {
  const auto living = admitted_.find(event.request);
  if (event.kind == EventKind::kLoadDone && living != admitted_.end()) {
    living->second.device_busy = event.device_busy;
    living->second.load_cut = event.blocks;
  }
  if (event.kind != EventKind::kDeviceReleased) return;
  const auto gone = std::find_if(leaving_.begin(), leaving_.end(), [&](const Leaving& leaving) {
    return leaving.request == event.request && leaving.generation == event.generation;
  });
  if (gone == leaving_.end()) {
    if (living == admitted_.end()) return;
    living->second.device_busy = false;
    release_parked(living->second);
    return;
  }
  leaving_blocks_ -= gone->admitted.block_count;
  give_back(gone->admitted);
  leaving_.erase(gone);
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

void PrefixCache::device_lost() {
  if (!forgets_lost_) return;
  cache_.device_lost();
  for (Pool& pool : pools_) {
    for (DeviceBlock& block : pool.blocks) {
      if (block.node == kNoNode) continue;
      // What requests still use becomes private to them.
      for (uint32_t user = 0; user < block.references; ++user) index_.unhold(block.node);
      forget(block.node, false);
    }
  }
}

}  // namespace tiercel
