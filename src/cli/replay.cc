// SPDX-License-Identifier: Apache-2.0
#include "cli/replay.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <signal.h>

#include "tiercel/local_cache.h"

#include "base/seconds.h"
#include "cli/device_memory.h"
#include "cli/device_side.h"
#include "cli/infinite_cache.h"
#include "cli/optimum.h"
#include "cli/patience.h"
#include "cli/replay_clock.h"
#include "cli/request_keys.h"
#include "transfer/process/process_data_plane.h"

namespace tiercel {
namespace {

// Nothing in a replay reaches this, on whichever clock; far from the end of 64 bits of nanoseconds.
constexpr Duration kNever = std::chrono::hours(24 * 365 * 100);
// How long a request in progress may still take after the user has asked to stop.
constexpr Duration kStopPatience = std::chrono::seconds(1);
constexpr Duration kCloseTimeout = std::chrono::seconds(10);
// Where ranks are killed on purpose, they come back soon and again and again.
constexpr Duration kRestartBackoff = std::chrono::microseconds(100);
constexpr Duration kWaitStep = std::chrono::milliseconds(1);

CacheConfig cache_config(const ReplayOptions& options, uint64_t longest_request_blocks) {
  CacheConfig config;
  config.spec = replay_spec(options.block_tokens);
  config.payload_bytes = {std::vector<uint64_t>(options.ranks, options.block_bytes)};
  config.host_blocks = options.host_blocks;
  config.eviction_policy = options.policy;
  // Room for the longest request beside what is to stay.
  config.device_blocks =
      options.device_blocks == 0
          ? 0
          : static_cast<uint32_t>(options.device_blocks + longest_request_blocks);
  config.request_blocks_max =
      static_cast<uint32_t>(std::clamp<uint64_t>(longest_request_blocks, 1, 1u << 24));
  config.requests_max = 64;  // one lives at a time
  config.why_requests = 64;
  config.host_to_disk = options.disk.policy;
  config.save_deadline = options.deadline > Duration(0) ? options.deadline : kNever;
  config.hold_limit = kNever;
  return config;
}

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options, const ReplayContext& context)
      : trace_(trace),
        options_(options),
        context_(context),
        cache_clock_(options.deadline > Duration(0) ? &context.clock : nullptr),
        request_keys_(options.block_tokens, context.clock) {}

  // Everything that can be refused.
  Status open();
  ReplayReport run();

 private:
  // Where a rank may be killed.
  enum class KillPoint : uint8_t { kBeforeMatch, kWhileLoading, kWhileSaving };
  static constexpr uint64_t kKillPointCount = 3;

  Status serve(const TraceRequest& request);
  // The parts of serve(), in order.
  Status bring_in(std::span<const BlockKey> keys);
  Status load(std::span<const BlockKey> keys);
  Status compute_and_save(std::span<const BlockKey> keys);
  Status say_farewell();
  void check_ready(std::span<const BlockKey> keys);
  void kill_rank_if_due(KillPoint point);

  // Polls until `done()`. kTimeout if that takes longer than patience allows, kCancelled on stop.
  template <typename Done>
  Status wait_until(const char* what, Done done);
  void take(const CacheEvent& event);

  // Calls into the control plane, whose time counts.
  template <typename Function>
  auto timed(Function function) {
    const TimePoint start = context_.clock.now();
    auto result = function();
    control_time_ += context_.clock.now() - start;
    return result;
  }
  bool has_deadline() const { return options_.deadline > Duration(0); }
  TimePoint deadline() const {
    return has_deadline() ? cache_clock_.now() + options_.deadline : kNoDeadline;
  }
  // Of ranks in processes; none of threads.
  std::vector<RankStatus> rank_statuses() const;
  void close();
  bool stopped() const { return context_.stop != nullptr && context_.stop->load(); }
  ReplayReport finish_report();
  std::vector<TierReport> tier_reports() const;

  const Trace& trace_;
  const ReplayOptions& options_;
  const ReplayContext& context_;
  ReplayClock cache_clock_;
  RequestKeys request_keys_;
  InfiniteCache infinite_cache_;
  // The cache's workers use the device memory: it goes last.
  std::optional<DeviceMemory> device_;
  std::unique_ptr<LocalCache> local_;
  std::unique_ptr<DeviceSide> side_;
  // Blocks that are committed at once: as in a prefill by pieces. No more than may wait for store
  // or disk, for what is dropped there would depend on how fast they are.
  uint64_t commit_step_blocks_ = UINT64_MAX;

  // Of the present request.
  RequestId request_;
  uint64_t line_ = 0;
  DeviceSide::Admission admission_;
  uint32_t ready_ = 0;  // leading blocks on the device, by hit or load
  bool prefetch_done_ = false, load_done_ = false, device_released_ = false, device_busy_ = false;
  Duration control_time_{0};

  std::vector<int64_t> last_killed_;  // [rank], its process
  ReplayReport report_;
  uint64_t device_hit_blocks_ = 0, host_hit_blocks_ = 0, disk_hit_blocks_ = 0,
           store_hit_blocks_ = 0;
  std::vector<BlockPlace> places_;  // of the present request; empty without a disk tier
  std::vector<uint64_t> control_ns_, hash_ns_;
};

Status Replay::open() {
  const uint64_t longest = longest_request_blocks(trace_, options_);
  TIERCEL_TRY(check_replay_memory(options_, longest, context_.memory));
  LocalCacheConfig config;
  config.cache = cache_config(options_, longest);
  config.store_url = options_.store;
  config.disk = options_.disk.config;
  config.verify = options_.verify;
  config.metadata_only = options_.metadata_only;
  config.rank_host = options_.rank_host;
  config.prefault = options_.prefault;
  config.logger = context_.logger;
  if (options_.kill_rank_every > 0) {
    config.rank_backoff = kRestartBackoff;
    config.rank_restarts_max = UINT32_MAX;
  }
  // Where the cache's time stands, that of stores and workers must go on by itself.
  if (options_.deadline <= Duration(0)) config.data_clock = &context_.clock;
  if (!options_.metadata_only) {
    TIERCEL_TRY_ASSIGN(
        device_,
        DeviceMemory::create(
            options_.ranks, std::max<uint64_t>(1, options_.device_blocks + longest),
            options_.block_bytes,
            options_.rank_host == RankHost::kProcess ? ArenaKind::kMemfd : ArenaKind::kAnonymous));
    config.device_memory = device_->spans();
    config.device_fds = device_->descriptors();
  }
  TIERCEL_TRY_ASSIGN(local_, LocalCache::open(config, cache_clock_));
  if (options_.device_blocks == 0) {
    side_ = make_scratch_device_side(local_->cache(), static_cast<uint32_t>(longest));
  } else {
    TIERCEL_TRY_ASSIGN(side_, make_owned_device_side(config.cache, local_->cache()));
  }
  if (!options_.store.empty() || options_.disk.exists()) {
    commit_step_blocks_ =
        std::clamp<uint64_t>(options_.host_blocks / 4, 1,
                             std::min(config.cache.put_queue_max, config.cache.disk_put_queue_max));
  }
  if (options_.disk.exists()) places_.resize(longest);
  report_.notes = local_->notes();
  last_killed_.resize(options_.ranks);
  control_ns_.reserve(trace_.requests.size());
  hash_ns_.reserve(trace_.requests.size());
  report_.options = options_;
  report_.skipped_lines = trace_.skipped_lines;
  report_.first_skipped = trace_.first_skipped;
  return {};
}

ReplayReport Replay::run() {
  const TimePoint start = context_.clock.now();
  for (size_t i = 0; i < trace_.requests.size() && !stopped() && report_.failure.empty(); ++i) {
    const Status served = serve(trace_.requests[i]);
    if (!served && served.code() != Code::kCancelled) report_.failure = served.error().message();
    if (context_.progress) context_.progress(i + 1, trace_.requests.size());
  }
  report_.complete = report_.requests == trace_.requests.size();
  report_.wall_seconds = to_seconds(context_.clock.now() - start);
  return finish_report();
}

Status Replay::serve(const TraceRequest& request) {
  request_ = RequestId(request.line);
  line_ = request.line;
  admission_ = {};
  ready_ = 0;
  prefetch_done_ = load_done_ = device_released_ = device_busy_ = false;
  cache_clock_.set(TimePoint(std::chrono::milliseconds(request.timestamp_ms)));

  const auto ids = trace_.ids_of(request).first(options_.used_ids(request));
  const std::span<const BlockKey> keys = request_keys_.hash(ids);
  control_time_ = request_keys_.hash_time();
  report_.blocks += keys.size();
  report_.tokens += request.input_length;
  report_.ceiling_hit_blocks += infinite_cache_.visit(keys, options_.blocks_per_id());

  if (!keys.empty()) {
    kill_rank_if_due(KillPoint::kBeforeMatch);
    TIERCEL_TRY(bring_in(keys));
    TIERCEL_TRY(load(keys));
    report_.tokens_saved +=
        std::min<uint64_t>(uint64_t{ready_} * options_.block_tokens, request.input_length);
    TIERCEL_TRY(compute_and_save(keys));
    TIERCEL_TRY(say_farewell());
  }
  control_ns_.push_back(static_cast<uint64_t>(control_time_.count()));
  hash_ns_.push_back(static_cast<uint64_t>(request_keys_.hash_time().count()));
  ++report_.requests;
  return {};
}

Status Replay::bring_in(std::span<const BlockKey> keys) {
  Cache& cache = local_->cache();
  TIERCEL_TRY_ASSIGN(admission_, timed([&] { return side_->admit(request_, keys); }));
  const uint32_t device_hits = admission_.device_hits;
  const std::span<BlockPlace> places(places_.data(), std::min(places_.size(), keys.size()));
  Match match = timed([&] { return cache.match(keys, device_hits, places); });
  const uint32_t ready_at_once = match.ready_blocks;
  const auto ready_places = places.first(std::min<size_t>(ready_at_once, places.size()));
  const auto on_disk = static_cast<uint64_t>(
      std::count(ready_places.begin(), ready_places.end(), BlockPlace::kDisk));
  if (!options_.store.empty()) {
    TIERCEL_TRY_ASSIGN(const bool started, timed([&] {
                         return cache.prefetch(request_, keys, device_hits, deadline());
                       }));
    if (started) {
      TIERCEL_TRY(wait_until("the prefetch", [this] { return prefetch_done_; }));
      match = timed([&] { return cache.match(keys, device_hits); });
    }
  }
  const uint32_t from_owned = std::min(ready_at_once, match.ready_blocks);
  report_.hit_blocks += match.ready_blocks;
  device_hit_blocks_ += device_hits;
  disk_hit_blocks_ += std::min<uint64_t>(on_disk, from_owned - device_hits);
  host_hit_blocks_ +=
      from_owned - device_hits - std::min<uint64_t>(on_disk, from_owned - device_hits);
  store_hit_blocks_ += match.ready_blocks - from_owned;
  return {};
}

Status Replay::load(std::span<const BlockKey> keys) {
  ready_ = admission_.device_hits;
  TIERCEL_TRY_ASSIGN(const uint32_t started,
                     timed([&] { return side_->load(request_, keys, deadline()); }));
  if (started > 0) {
    kill_rank_if_due(KillPoint::kWhileLoading);
    TIERCEL_TRY(wait_until("the load", [this] { return load_done_; }));
    if (device_busy_) {
      TIERCEL_TRY(wait_until("a late load", [this] { return device_released_; }));
    }
    report_.loaded_blocks += ready_ - admission_.device_hits;
  }
  check_ready(keys.first(ready_));
  return {};
}

void Replay::check_ready(std::span<const BlockKey> keys) {
  if (!device_) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto mismatch = device_->check(keys[i], admission_.blocks[i]);
    if (!mismatch) continue;
    if (report_.mismatches++ == 0) {
      report_.first_mismatch = "request of line " + std::to_string(line_) + ", block " +
                               std::to_string(i) + ", rank " + std::to_string(mismatch->rank) +
                               ": differs from byte " + std::to_string(mismatch->offset) + " on";
    }
  }
}

Status Replay::compute_and_save(std::span<const BlockKey> keys) {
  if (device_) {
    for (size_t i = ready_; i < keys.size(); ++i) device_->compute(keys[i], admission_.blocks[i]);
  }
  TIERCEL_TRY(timed([&] { return side_->computed(request_, keys, ready_); }));
  uint64_t committed = 0;
  do {
    committed = committed + std::min(keys.size() - committed, commit_step_blocks_);
    TIERCEL_TRY(timed([&] { return side_->commit(request_, committed * options_.block_tokens); }));
    kill_rank_if_due(KillPoint::kWhileSaving);
    // What has missed its deadline may stay in flight for ever.
    TIERCEL_TRY(wait_until("the save", [&] {
      return has_deadline() ? local_->cache().settled() : local_->cache().idle();
    }));
  } while (committed < keys.size());
  return {};
}

Status Replay::say_farewell() {
  device_released_ = false;
  TIERCEL_TRY_ASSIGN(const bool device_busy, timed([&] { return side_->finish(request_); }));
  if (!device_busy) return {};
  return wait_until("its transfers", [this] { return device_released_; });
}

void Replay::kill_rank_if_due(KillPoint point) {
  if (options_.kill_rank_every == 0) return;
  // One after another, at points that differ from time to time.
  const uint64_t due = report_.requests / options_.kill_rank_every;
  if (report_.killed_ranks >= due || static_cast<uint64_t>(point) != due % kKillPointCount) return;
  auto& plane = dynamic_cast<ProcessDataPlane&>(local_->data_plane());
  const auto rank = static_cast<uint32_t>(due % options_.ranks);
  const RankStatus status = plane.rank_status(rank);
  // One that has been killed looks up until the plane has noticed.
  if (status.state != RankState::kUp || status.pid == last_killed_[rank]) return;
  if (::kill(static_cast<pid_t>(status.pid), SIGKILL) != 0) return;
  last_killed_[rank] = status.pid;
  ++report_.killed_ranks;
}

template <typename Done>
Status Replay::wait_until(const char* what, Done done) {
  std::array<CacheEvent, 16> events;
  const TimePoint start = context_.clock.now();
  while (true) {
    const size_t count = timed([&] { return side_->poll(events); });
    for (size_t i = 0; i < count; ++i) take(events[i]);
    if (done()) return {};
    if (count > 0) continue;
    const Duration waited = context_.clock.now() - start;
    if (stopped() && waited > kStopPatience) {
      return Error(Code::kCancelled, "stopped");
    }
    if (waited > options_.patience) {
      return out_of_patience(line_, what, options_, rank_statuses());
    }
    local_->wait(kWaitStep);
  }
}

std::vector<RankStatus> Replay::rank_statuses() const {
  std::vector<RankStatus> statuses;
  const auto* const plane = dynamic_cast<ProcessDataPlane*>(&local_->data_plane());
  for (uint32_t rank = 0; plane != nullptr && rank < options_.ranks; ++rank) {
    statuses.push_back(plane->rank_status(rank));
  }
  return statuses;
}

void Replay::take(const CacheEvent& event) {
  if (event.request != request_) return;
  switch (event.kind) {
    case EventKind::kPrefetchDone:
      prefetch_done_ = true;
      return;
    case EventKind::kLoadDone:
      load_done_ = true;
      ready_ = event.blocks;
      device_busy_ = event.device_busy;
      return;
    case EventKind::kDeviceReleased:
      device_released_ = true;
      return;
  }
}

ReplayReport Replay::finish_report() {
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    const RankStats stats = local_->data_plane().stats(rank);
    for (size_t kind = 0; kind < kOpKindCount; ++kind) {
      report_.paths.paths[kind] += stats.paths[kind];
    }
    report_.paths.disk_read_bytes += stats.disk_read_bytes;
    report_.paths.disk_written_bytes += stats.disk_written_bytes;
    report_.paths.disk_syncs += stats.disk_syncs;
    report_.store_reasons.emplace_back(local_->data_plane().store_reason(rank).view());
  }
  report_.cache = local_->cache().stats();
  report_.ranks = rank_statuses();
  report_.control_us = summarize_times(control_ns_);
  report_.hash_us = summarize_times(hash_ns_);
  report_.peak_rss_bytes = peak_rss_bytes();
  report_.index_bytes_per_block = static_cast<double>(report_.cache.index_bytes) /
                                  static_cast<double>(report_.cache.index_nodes_max);
  report_.tiers = tier_reports();
  close();
  return std::move(report_);
}

void Replay::close() {
  // What hangs already gets no second chance.
  const bool hangs = !report_.failure.empty() || !report_.complete || !local_->cache().idle();
  const Duration timeout = hangs ? std::min(options_.patience, kStopPatience) : kCloseTimeout;
  // Nobody who has asked to stop, or who knows of a store that misses deadlines, is told so again.
  if (local_->close(timeout) || stopped() || has_deadline() || !report_.failure.empty()) return;
  report_.failure = "the rank workers did not end within " + format_duration(timeout);
}

std::vector<TierReport> Replay::tier_reports() const {
  const auto bytes = [&](OpKind kind) { return report_.paths.path(kind).bytes; };
  std::vector<TierReport> tiers;
  if (options_.device_blocks > 0) {
    tiers.push_back({"device", device_hit_blocks_, bytes(OpKind::kSave), bytes(OpKind::kLoad)});
  }
  tiers.push_back({"host", host_hit_blocks_,
                   bytes(OpKind::kLoad) + bytes(OpKind::kStorePut) + bytes(OpKind::kDiskPut),
                   bytes(OpKind::kSave) + bytes(OpKind::kStoreGet) + bytes(OpKind::kDiskGet)});
  if (options_.disk.exists()) {
    tiers.push_back({"disk", disk_hit_blocks_, bytes(OpKind::kDiskGet), bytes(OpKind::kDiskPut)});
  }
  if (!options_.store.empty()) {
    tiers.push_back(
        {"store", store_hit_blocks_, bytes(OpKind::kStoreGet), bytes(OpKind::kStorePut)});
  }
  return tiers;
}

// In blocks, of the requests that were replayed, for the capacity of the tiers that we own.
uint64_t optimum_hit_blocks(const Trace& trace, const ReplayOptions& options,
                            uint64_t request_count, uint64_t disk_blocks) {
  OfflineOptimum optimum;
  for (const TraceRequest& request : std::span(trace.requests).first(request_count)) {
    optimum.add(trace.ids_of(request).first(options.used_ids(request)));
  }
  const uint64_t capacity_blocks =
      uint64_t{options.host_blocks} + options.device_blocks + disk_blocks;
  return optimum.hits(capacity_blocks / options.blocks_per_id()) * options.blocks_per_id();
}

}  // namespace

Result<ReplayReport> replay(const Trace& trace, const ReplayOptions& options,
                            const ReplayContext& context) {
  Replay run(trace, options, context);
  TIERCEL_TRY(run.open());
  if (context.started != nullptr) context.started->store(true);
  ReplayReport report = run.run();
  // What a disk tier has from earlier runs is beyond what the trace alone could give.
  if (options.optimum && report.cache.disk_recovered_blocks == 0) {
    report.optimum_hit_blocks =
        optimum_hit_blocks(trace, options, report.requests, report.cache.disk_slots_total);
  }
  return report;
}

}  // namespace tiercel
