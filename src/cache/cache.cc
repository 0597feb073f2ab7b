// SPDX-License-Identifier: Apache-2.0
#include "tiercel/cache.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "cache/cache_impl.h"
#include "cache/host_geometry.h"

namespace tiercel {
namespace {

// Nodes beyond what the tiers can hold: blocks in flight, and ancestors that outlive their place.
constexpr uint64_t kSpareNodes = 4096;

uint64_t slot_ids(const SlotGeometry& geometry) {
  return uint64_t{geometry.extent_count()} * geometry.slots_per_extent_max();
}

BlockIndexOptions index_options(const CacheConfig& config, const SlotGeometry& geometry,
                                const DiskParts* disk) {
  BlockIndexOptions options;
  const uint64_t host = slot_ids(geometry);
  const uint64_t on_disk = disk == nullptr ? 0 : uint64_t{disk->geometry.slot_count_max()};
  const uint64_t device = uint64_t{config.device_blocks} * config.spec.groups.size();
  const uint64_t slots = host + on_disk + device;
  options.node_count_max =
      static_cast<uint32_t>(std::min<uint64_t>(slots + slots / 32 + kSpareNodes, 1u << 31));
  const auto count = [&options](Tier tier, uint64_t slot_count) {
    options.place_count_max[static_cast<size_t>(tier)] =
        static_cast<uint32_t>(std::min<uint64_t>(slot_count, options.node_count_max));
  };
  count(Tier::kHost, host);
  count(Tier::kDisk, on_disk);
  count(Tier::kDevice, device);
  options.tier_mask = tier_bit(Tier::kHost);
  if (config.device_blocks > 0) options.tier_mask |= tier_bit(Tier::kDevice);
  if (disk != nullptr) options.tier_mask |= tier_bit(Tier::kDisk);
  options.group_count = static_cast<uint8_t>(config.spec.groups.size());
  for (size_t group = 0; group < config.spec.groups.size(); ++group) {
    if (config.spec.groups[group].attention == AttentionKind::kWindow) {
      options.window_group_mask = static_cast<uint8_t>(options.window_group_mask | 1u << group);
    }
  }
  options.seed = config.seed;
  return options;
}

std::unique_ptr<EvictionPolicy> make_policy(const CacheConfig& config, BlockIndex& index, Tier tier,
                                            const SlotGeometry& geometry) {
  const EvictionPolicyContext context{index, tier, static_cast<uint32_t>(slot_ids(geometry))};
  auto policy = make_eviction_policy(config.eviction_policy, context);
  TIERCEL_ASSERT(policy.has_value(), "the configuration has been validated");
  return *std::move(policy);
}

std::unique_ptr<OwnedTier> make_disk_tier(const CacheConfig& config, const DiskParts* disk,
                                          BlockIndex& index, const Protections& protections) {
  if (disk == nullptr) return nullptr;
  return std::make_unique<OwnedTier>(Tier::kDisk, disk->geometry, index,
                                     make_policy(config, index, Tier::kDisk, disk->geometry),
                                     protections);
}

// What waits in a queue of puts is held, so only a part of the host tier may.
uint32_t bound_puts(const Protections& protections, const CacheConfig& config, uint32_t wanted) {
  return protections.put_bound ? std::min(wanted, std::max(1u, config.host_blocks / 4))
                               : UINT32_MAX;
}

std::vector<uint64_t> largest_slices(const CacheConfig& config) {
  std::vector<uint64_t> bytes;
  for (const std::vector<uint64_t>& slices : config.payload_bytes) {
    bytes.push_back(*std::max_element(slices.begin(), slices.end()));
  }
  return bytes;
}

}  // namespace

Cache::Impl::Impl(const Protections& protections, const CacheConfig& config,
                  const SlotGeometry& geometry, const DiskParts* disk,
                  std::unique_ptr<BlockIndex> index, DataPlane& plane, const Clock& clock)
    : protections_(protections),
      config_(config),
      plane_(plane),
      clock_(clock),
      plane_capacity_(plane.submit_capacity()),
      quarantine_slots_max_(config.quarantine_slots_max != 0
                                ? config.quarantine_slots_max
                                : std::max<uint64_t>(1, config.host_blocks / 4)),
      put_queue_max_(bound_puts(protections, config, config.put_queue_max)),
      disk_put_queue_max_(bound_puts(protections, config, config.disk_put_queue_max)),
      block_bytes_(largest_slices(config)),
      index_owner_(std::move(index)),
      index_(*index_owner_),
      host_(Tier::kHost, geometry, index_, make_policy(config, index_, Tier::kHost, geometry),
            protections),
      disk_(make_disk_tier(config, disk, index_, protections)),
      fills_(index_.node_count_max()),
      existence_(config.existence_entries),
      sightings_(config.existence_entries),
      jobs_(config.jobs_in_flight_max, plane.rank_count()),
      requests_(config.requests_max, config.why_requests),
      writers_(plane.rank_count()),
      costs_(config.load_or_recompute, config.spec.block_tokens),
      view_(config_, index_, fills_, existence_),
      completions_(256) {
  ops_.reserve(config.job_blocks_max);
  for (uint32_t rank = 0; rank < plane.rank_count(); ++rank) {
    memory_epochs_.push_back(plane.memory_epoch(rank));
  }
  if (disk == nullptr) return;
  is_put_to_disk_.resize(index_.node_count_max());
  adopt(disk->contents);
}

Match Cache::Impl::match(std::span<const BlockKey> keys, uint32_t computed_blocks,
                         std::span<BlockPlace> places) {
  ++stats_.matches;
  Match match;
  computed_blocks = static_cast<uint32_t>(std::min<size_t>(computed_blocks, keys.size()));
  if (refuses_work()) {
    match.ready_blocks = match.reachable_blocks = match.possible_blocks = computed_blocks;
    for (size_t i = 0; i < places.size(); ++i) {
      places[i] = i < computed_blocks ? BlockPlace::kComputed : BlockPlace::kNone;
    }
    return match;
  }
  view_.look(keys, computed_blocks, clock_.now());
  const uint32_t bound = view_.block_count();
  match.ready_blocks = view_.usable_cut(BlockPlace::kDisk, bound);
  match.reachable_blocks = view_.usable_cut(BlockPlace::kStore, bound);
  match.possible_blocks = view_.usable_cut(BlockPlace::kUnknown, bound);
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = i < bound ? view_.worst_place(static_cast<uint32_t>(i)) : BlockPlace::kNone;
  }
  return match;
}

uint32_t Cache::Impl::stored_blocks(std::span<const BlockKey> keys) const {
  if (!config_.with_store) return 0;
  const TimePoint now = clock_.now();
  uint32_t stored = 0;
  for (; stored < keys.size(); ++stored) {
    for (uint32_t group = 0; group < groups(); ++group) {
      const GroupId id(static_cast<uint8_t>(group));
      if (existence_.find(keys[stored], id, now) != Existence::kPresent) return stored;
    }
  }
  return stored;
}

Status Cache::Impl::check_computed(std::string_view verb, RequestId id, uint32_t computed_blocks,
                                   size_t key_count) const {
  if (computed_blocks <= key_count) return {};
  return Error(Code::kInvalid,
               fmt::format("{} of request {} has computed_blocks {}; allowed: 0 to {}, the number "
                           "of keys",
                           verb, id.value(), computed_blocks, key_count));
}

Result<Request*> Cache::Impl::request_for(RequestId id, std::span<const BlockKey> keys) {
  TIERCEL_TRY(plane_.usable());
  Request* request = requests_.find(id);
  if (request == nullptr) {
    request = requests_.find_or_create(id, clock_.now());
    if (request == nullptr) {
      return Error(Code::kBusy, fmt::format("request {} is one too many: requests_max is {}",
                                            id.value(), config_.requests_max));
    }
    add_timer(TimerKind::kHold, clock_.now() + config_.hold_limit, request->index,
              request->generation);
  }
  request->last_call = clock_.now();
  const size_t count = std::min<size_t>(keys.size(), config_.request_blocks_max);
  if (count > request->keys.size()) {
    request->keys.insert(request->keys.end(),
                         keys.begin() + static_cast<ptrdiff_t>(request->keys.size()),
                         keys.begin() + static_cast<ptrdiff_t>(count));
  }
  return request;
}

void Cache::Impl::visit_path(Request& request, uint32_t known_blocks, bool view_is_whole) {
  if (request.visited) return;
  request.visited = true;
  if (!view_is_whole) view_.look(request.keys, 0, clock_.now());
  RequestVisit visit;
  visit.now = clock_.now();
  visit.block_count = static_cast<uint32_t>(request.keys.size());
  visit.known_count = known_blocks;
  for (uint32_t group = 0; group < groups(); ++group) {
    const std::span<const NodeId> path = view_.nodes(group);
    host_.visit(path, visit);
    if (disk_ != nullptr) disk_->visit(path, visit);
    for (uint32_t position = 0; position < path.size(); ++position) {
      if (path[position] != kNoNode) count_hit(request, path[position], position);
    }
  }
}

void Cache::Impl::count_hit(Request& request, NodeId node, uint32_t position) {
  index_.count_hit(node);
  if (!host_.has(node)) return;
  if (wants_disk_put(node)) queue_disk_put(node, &request, position);
  if (!config_.with_store) return;
  const bool due = config_.host_to_store == WritePolicy::kWriteThroughSelective &&
                   index_.hit_count(node) == config_.selective_hits;
  // What is owed leaves a hole in the store, behind which nothing can be found.
  if (due || host_.has_mark(host_.slot(node), OwnedTier::Mark::kPutOwed))
    queue_put(node, &request, position);
}

void Cache::Impl::unhold_node(NodeId node) {
  index_.unhold(node);
  if (index_.hold_count(node) == 0 && !index_.is_current(node) &&
      (host_.has(node) || (disk_ != nullptr && disk_->has(node)))) {
    drop_everywhere(node);  // was forgotten by clear() while it was held
    return;
  }
  index_.release_if_unused(node);
}

void Cache::Impl::drop_everywhere(NodeId node) {
  const bool on_disk = disk_ != nullptr && disk_->has(node);
  if (host_.has(node)) host_.drop(node, false);
  if (on_disk) disk_->drop(node, false);  // as long as it is there the node is
}

void Cache::Impl::drop_bad_copy(OwnedTier& tier, NodeId node, SlotId slot) {
  if (tier.has(node, slot)) tier.drop(node, false);
}

void Cache::Impl::hold_for(Request& request, NodeId node, uint32_t position) {
  const size_t entry = size_t{position} * groups() + index_.group(node).value();
  if (request.holds.size() <= entry) request.holds.resize(entry + 1, kNoNode);
  NodeId& held = request.holds[entry];
  if (held == node) return;
  index_.hold(node);
  if (held == kNoNode) {
    ++request.hold_count;
  } else {
    unhold_node(held);  // of before a clear(): the same block, forgotten since
  }
  held = node;
}

void Cache::Impl::release_holds(Request& request) {
  for (const NodeId node : request.holds) {
    if (node != kNoNode) unhold_node(node);
  }
  request.holds.clear();
  request.hold_count = 0;
}

void Cache::Impl::hold_path(uint32_t cut) {
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = view_.first_uncomputed(); position < cut; ++position) {
      if (view_.place(group, position) <= BlockPlace::kDisk) {
        index_.hold(view_.node(group, position));
      }
    }
  }
}

void Cache::Impl::unhold_path(uint32_t cut) {
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = view_.first_uncomputed(); position < cut; ++position) {
      if (view_.place(group, position) <= BlockPlace::kDisk) {
        unhold_node(view_.node(group, position));
      }
    }
  }
}

void Cache::Impl::add_timer(TimerKind kind, TimePoint at, uint32_t index, uint32_t generation) {
  timers_.add(Timer{at, kind, index, generation}, [this](const Timer& timer) {
    if (timer.kind == TimerKind::kJob) {
      const Job& job = jobs_.at(timer.index);
      return job.live && JobTable::generation_of(job.id) == timer.generation;
    }
    return requests_.at(timer.index, timer.generation) != nullptr;
  });
}

void Cache::Impl::explain_unserved(Request& request, uint32_t from, WhyReason behind_ready) {
  // `view_` holds the latest look at this request's path.
  request.why.start(from);
  const auto count = static_cast<uint32_t>(request.keys.size());
  const LoadChoice& prefetch = request.why.prefetch_choice;
  const uint32_t worth = prefetch.first_block + prefetch.blocks_chosen;
  const uint32_t worth_asked = prefetch.first_block + prefetch.blocks_there;
  bool gap = false;
  for (uint32_t position = from; position < count; ++position) {
    WhyReason reason = WhyReason::kNotCached;
    const BlockPlace place =
        position < view_.block_count() ? view_.worst_place(position) : BlockPlace::kNone;
    if (closing_) {
      reason = WhyReason::kClosed;
    } else if (clear_pending_) {
      reason = WhyReason::kCleared;
    } else if (place <= BlockPlace::kDisk) {
      reason = gap ? WhyReason::kBehindGap : behind_ready;
    } else if (place == BlockPlace::kNone && position < view_.block_count() &&
               view_.best_place(position) <= BlockPlace::kDisk) {
      reason = WhyReason::kGroupMissing;
    } else if (place == BlockPlace::kInFlight) {
      reason = WhyReason::kInFlight;
    } else if (place == BlockPlace::kStore || place == BlockPlace::kUnknown) {
      reason = position >= worth && position < worth_asked ? WhyReason::kNotWorthLoading
                                                           : WhyReason::kStoreNotAsked;
    } else if (config_.with_store) {
      reason = gap ? WhyReason::kBehindGap : WhyReason::kStoreAbsent;
    }
    gap = gap || place > BlockPlace::kDisk;
    request.why.add(WhySpan{position, 1, reason, Code::kOk});
  }
}

void Cache::Impl::recycle_if_done(Request& request) {
  if (request.device_references > 0) return;
  if (request.device_notice && (request.living || !request.save_queued)) {
    request.device_notice = false;
    emit(CacheEvent{EventKind::kDeviceReleased, Code::kOk, false, request.id, request.generation,
                    0});
  }
  if (request.living || request.save_queued) return;
  requests_.recycle(request);
}

Result<Farewell> Cache::Impl::end(RequestId id, bool aborted) {
  Request* request = requests_.find(id);
  if (request == nullptr) {
    ++stats_.unknown_requests;
    return Error(Code::kNotFound, fmt::format("request {} does not live", id.value()));
  }
  request->loading = false;  // what still comes is for nobody
  request->load_unsettled = 0;
  request->load_ready.clear();
  request->prefetching = false;
  visit_path(*request, request->why.served_blocks, false);
  release_holds(*request);
  if (aborted && request->save_queued) {
    drop_saves(*request, WhyReason::kSaveDropped);
    request->save_queued = false;
    // Else the queue could grow without bound behind a request that finds no room.
    save_queue_.remove_if([&](const QueuedRequest& queued) {
      return queued.index == request->index && queued.generation == request->generation;
    });
  }
  requests_.end_life(*request);
  Farewell farewell;
  farewell.generation = request->generation;
  farewell.device_busy = request->device_references > 0 || request->save_queued;
  request->device_notice = farewell.device_busy;
  if (!protections_.device_release) {
    farewell.device_busy = false;
    request->device_notice = false;
  }
  // What waits to be polled for this life was said of a time that is over: another kDeviceReleased
  // may still have to follow, and the engine would take this one for it.
  if (!events_.empty()) {
    events_.remove_if([&](const CacheEvent& event) {
      return event.request == id && event.generation == farewell.generation;
    });
  }
  recycle_if_done(*request);
  return farewell;
}

bool Cache::Impl::idle() const { return jobs_.in_flight() == 0 && settled(); }

bool Cache::Impl::settled() const {
  bool jobs_settled = true;
  if (jobs_.in_flight() > 0) {
    jobs_.for_each([&](const Job& job) { jobs_settled &= job.items_unsettled == 0; });
  }
  return jobs_settled && save_queue_.empty() && put_queue_.empty() && prefetch_queue_.empty() &&
         load_queue_.empty() && disk_put_queue_.empty() && !disk_clear_owed_ && !clear_pending_ &&
         index_.sweep_done();
}

void Cache::Impl::clear() {
  existence_.clear();
  if (disk_ != nullptr) {
    drop_disk_puts();
    disk_clear_owed_ = protections_.disk_clear;
  }
  forget_tiers();
}

void Cache::Impl::forget_tiers() {
  if (!index_.advance_epoch()) clear_pending_ = true;  // the last clear is still being swept
}

void Cache::Impl::close(TimePoint deadline) {
  closing_ = true;
  close_deadline_ = deadline;
}

bool Cache::Impl::closed() const { return closing_ && (idle() || clock_.now() >= close_deadline_); }

// The public shell.

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::~Cache() = default;

Result<std::unique_ptr<Cache>> Cache::create(const CacheConfig& config, DataPlane& plane,
                                             const Clock& clock) {
  return CacheFactory::create(Protections{}, config, plane, clock, nullptr);
}

Result<std::unique_ptr<Cache>> CacheFactory::create(const Protections& protections,
                                                    const CacheConfig& config, DataPlane& plane,
                                                    const Clock& clock, const DiskParts* disk) {
  TIERCEL_TRY(config.validate());
  if (config.payload_bytes.front().size() != plane.rank_count()) {
    return Error(Code::kInvalid,
                 fmt::format("payload_bytes has {} ranks, the data plane has {}; "
                             "they must agree",
                             config.payload_bytes.front().size(), plane.rank_count()));
  }
  TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, host_geometry(config));
  TIERCEL_TRY_ASSIGN(std::unique_ptr<BlockIndex> index,
                     BlockIndex::create(index_options(config, geometry, disk)));
  return std::unique_ptr<Cache>(new Cache(std::make_unique<Cache::Impl>(
      protections, config, geometry, disk, std::move(index), plane, clock)));
}

Match Cache::match(std::span<const BlockKey> keys, uint32_t computed_blocks,
                   std::span<BlockPlace> places) {
  return impl_->match(keys, computed_blocks, places);
}
Result<bool> Cache::prefetch(RequestId request, std::span<const BlockKey> keys,
                             uint32_t computed_blocks, TimePoint deadline, Duration wait) {
  return impl_->prefetch(request, keys, computed_blocks, deadline, wait);
}
Result<uint32_t> Cache::load(RequestId request, std::span<const BlockKey> keys,
                             uint32_t computed_blocks, std::span<const DeviceBlockId> device_blocks,
                             TimePoint deadline) {
  return impl_->load(request, keys, computed_blocks, device_blocks, deadline);
}
Status Cache::save(RequestId request, std::span<const BlockKey> keys, uint32_t first_block,
                   std::span<const DeviceBlockId> device_blocks) {
  return impl_->save(request, keys, first_block, device_blocks);
}
Status Cache::commit(RequestId request, uint64_t token_count) {
  return impl_->commit(request, token_count);
}
Result<Farewell> Cache::finish(RequestId request) { return impl_->end(request, false); }
Result<Farewell> Cache::abort(RequestId request) { return impl_->end(request, true); }
size_t Cache::poll(std::span<CacheEvent> events) { return impl_->poll(events); }
TimePoint Cache::next_deadline() const { return impl_->next_deadline(); }
bool Cache::idle() const { return impl_->idle(); }
bool Cache::settled() const { return impl_->settled(); }
const WhyRecord* Cache::why(RequestId request) const { return impl_->why(request); }
CacheStats Cache::stats() const { return impl_->stats(); }
void Cache::observe_prefill(uint64_t tokens, uint64_t context_tokens, Duration duration) {
  impl_->observe_prefill(tokens, context_tokens, duration);
}
LoadEstimates Cache::load_estimates() const { return impl_->load_estimates(); }
void Cache::clear() { impl_->clear(); }
uint32_t Cache::stored_blocks(std::span<const BlockKey> keys) const {
  return impl_->stored_blocks(keys);
}
void Cache::device_lost() { impl_->device_lost(); }
void Cache::close(TimePoint deadline) { impl_->close(deadline); }
bool Cache::closed() const { return impl_->closed(); }
std::string Cache::check(bool quiet, uint64_t device_holds) const {
  return impl_->check(quiet, device_holds);
}
const CacheConfig& Cache::config() const { return impl_->config(); }
BlockIndex& Cache::index() { return impl_->index(); }

}  // namespace tiercel
