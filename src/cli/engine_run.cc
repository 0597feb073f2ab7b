// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/manual_clock.h"
#include "base/quantity.h"
#include "base/seconds.h"
#include "cache/cost_model.h"
#include "cache/protections.h"
#include "cli/request_keys.h"
#include "cli/token_expansion.h"
#include "engine/prefix_cache.h"
#include "transfer/timed_data_plane.h"

namespace tiercel {
namespace {

constexpr Duration kNever = std::chrono::hours(24 * 365);
// Requests that stand before the scheduler at once. The rest wait with their tokens unmade: it
// takes them in the order of their arrival anyway, and looks only at the first ones.
constexpr uint64_t kWaitingMax = 1024;
// A scheduler that wants to be called again at once gets a little time to pass.
constexpr Duration kLeastStep = std::chrono::microseconds(1);
constexpr uint32_t kDiskExtents = 64;
// What is kept of one block in index, policy and pool, at most.
constexpr uint64_t kBytesPerBlock = 128;

Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Blocks that a trace can ever fill, if no two of its requests share any. A tier with room for more
// evicts nothing, so more need not be allocated.
uint64_t blocks_of_all(const Trace& trace, uint32_t block_tokens) {
  uint64_t blocks = Cache::host_blocks_min();
  for (const TraceRequest& request : trace.requests) {
    blocks += (uint64_t{request.input_length} + request.output_length) / block_tokens + 1;
  }
  return blocks;
}

class EngineRun {
 public:
  EngineRun(const Trace& trace, const ReplayOptions& options, const EngineTiers& tiers, bool stalls,
            const EngineRunContext& context)
      : trace_(trace),
        options_(options),
        engine_(options.engine),
        tiers_(tiers),
        context_(context),
        plane_(TimedDataPlane::create(plane_options(stalls), clock_)),
        regret_({engine_.prefill, 0, options.block_tokens}, *plane_),
        request_keys_(options.block_tokens, context.clock),
        blocks_of_all_(blocks_of_all(trace, options.block_tokens)) {}

  Status open();
  EngineRunReport run();

 private:
  TimedDataPlaneOptions plane_options(bool stalls) const;
  CacheConfig cache_config();
  ResourceManagerConfig manager_config() const;
  Status check_room() const;
  // Of a tier of so many blocks, those that can ever be used.
  uint32_t usable(uint32_t blocks) const {
    return static_cast<uint32_t>(std::min<uint64_t>(blocks, blocks_of_all_));
  }
  TimePoint arrival_of(size_t index) const {
    return TimePoint(to_duration(static_cast<double>(trace_.requests[index].timestamp_ms) * 1e-3 /
                                 engine_.speedup));
  }
  Status take_arrivals();
  Status add(size_t index);
  bool needs_store(const TraceRequest& request);
  // Computes the batch: the clock moves on.
  Status compute(const Batch& batch);
  void take_finished();
  // Nothing to run: on to the next moment at which something happens. kInternal if there is none.
  Status pass_time();
  bool stopped() const { return context_.stop != nullptr && context_.stop->load(); }
  template <typename Function>
  auto watched(Function function) {
    const TimePoint before = clock_.now();
    const TimePoint start = context_.clock.now();
    auto result = function();
    control_ns_.push_back(static_cast<uint64_t>((context_.clock.now() - start).count()));
    report_.scheduler_wait += clock_.now() - before;
    return result;
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  const EngineOptions& engine_;
  const EngineTiers tiers_;
  const EngineRunContext& context_;
  ManualClock clock_;
  const std::unique_ptr<TimedDataPlane> plane_;
  EngineRegret regret_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<PrefixCache> prefix_;
  std::unique_ptr<ResourceManager> manager_;
  RequestKeys request_keys_;
  const uint64_t blocks_of_all_;
  size_t next_ = 0;  // request to arrive
  uint64_t ended_ = 0;
  std::vector<StepResult> results_;  // scratch
  std::vector<BlockPlace> places_;   // scratch
  std::vector<uint64_t> control_ns_;
  EngineRunReport report_;
};

TimedDataPlaneOptions EngineRun::plane_options(bool stalls) const {
  TimedDataPlaneOptions options;
  options.block_bytes = {engine_.block_bytes};
  options.load = options.save = engine_.device;
  options.disk_get = options.disk_put = engine_.disk;
  options.store_get = options.store_put = engine_.store;
  options.store_question = {engine_.store.latency, 1e9, 4096};
  options.with_store = tiers_.store;
  if (stalls) {
    options.store_stall.from =
        TimePoint(to_duration(to_seconds(engine_.stall_at) / engine_.speedup));
    if (engine_.stall < kStallForEver) {
      options.store_stall.until = options.store_stall.from + engine_.stall;
    }
  }
  return options;
}

CacheConfig EngineRun::cache_config() {
  CacheConfig config;
  config.spec = replay_spec(options_.block_tokens);
  config.payload_bytes = {{engine_.block_bytes}};
  // There is no cache without a host tier; what nothing is saved to does not count.
  config.host_blocks = tiers_.host ? usable(engine_.host_blocks) : Cache::host_blocks_min();
  config.device_to_host = tiers_.host ? WritePolicy::kWriteThrough : WritePolicy::kNone;
  config.with_store = tiers_.store;
  config.eviction_policy = options_.policy;
  config.device_blocks = usable(engine_.device_blocks);
  config.request_blocks_max = static_cast<uint32_t>(
      std::clamp<uint64_t>(longest_request_blocks(trace_, options_) + 1, 1, 1u << 24));
  config.hold_limit = kNever;
  LoadOrRecomputeConfig& costs = config.load_or_recompute;
  costs.enabled = engine_.choose;
  // Not told what it is to learn: the growth with the context is of the model, the rest its own.
  costs.prefill.context_doubling = engine_.prefill.context_doubling;
  costs.listener = &regret_;
  return config;
}

ResourceManagerConfig EngineRun::manager_config() const {
  ResourceManagerConfig config;
  config.step_tokens_max = engine_.step_tokens;
  config.prefill_chunk_tokens_max = config.step_tokens_max;
  config.running_max = engine_.running_max;
  // What is sampled has no ids in the trace, so that nothing could find it.
  config.cache_outputs = false;
  config.load_deadline = std::chrono::seconds(5);
  uint64_t longest = 2;
  for (const TraceRequest& request : trace_.requests) {
    longest = std::max(longest, uint64_t{request.input_length} + request.output_length + 1);
  }
  config.context_tokens_max = longest;
  return config;
}

Status EngineRun::check_room() const {
  uint64_t shortest = UINT64_MAX;
  for (const TraceRequest& request : trace_.requests) {
    if (request.input_length > 0) shortest = std::min<uint64_t>(shortest, request.input_length);
  }
  const uint64_t tokens = uint64_t{engine_.device_blocks} * options_.block_tokens;
  if (shortest != UINT64_MAX && shortest > tokens) {
    return Error(
        Code::kInvalid,
        fmt::format("engine_device_blocks is {}: no request of the trace fits into its {} tokens; "
                    "allowed: at least {}, for the shortest one of {} tokens",
                    engine_.device_blocks, tokens,
                    (shortest + options_.block_tokens - 1) / options_.block_tokens, shortest));
  }
  uint64_t blocks = usable(engine_.device_blocks);
  if (tiers_.host) blocks += usable(engine_.host_blocks);
  if (tiers_.disk) blocks += usable(engine_.disk_blocks);
  const uint64_t allowed = context_.memory.bytes / kBytesPerBlock;
  if (blocks <= allowed) return {};
  return Error(
      Code::kNoSpace,
      fmt::format("engine_device_blocks, engine_host_blocks and engine_disk_blocks are {} in all, "
                  "as far as the trace can use them, with {} of index; allowed: up to {}, in {} "
                  "({})",
                  blocks, format_bytes(blocks * kBytesPerBlock), allowed,
                  format_bytes(context_.memory.bytes), context_.memory.source));
}

Status EngineRun::open() {
  TIERCEL_TRY(check_room());
  const CacheConfig config = cache_config();
  std::optional<DiskParts> disk;
  if (tiers_.disk) {
    TIERCEL_TRY_ASSIGN(
        SlotGeometry geometry,
        SlotGeometry::for_blocks(config.payload_bytes, usable(engine_.disk_blocks),
                                 std::min(kDiskExtents, usable(engine_.disk_blocks))));
    disk.emplace(DiskParts{std::move(geometry), {}});
  }
  TIERCEL_TRY_ASSIGN(cache_, CacheFactory::create(Protections{}, config, *plane_, clock_,
                                                  disk ? &*disk : nullptr));
  TIERCEL_TRY_ASSIGN(prefix_, PrefixCache::create(config, *cache_));
  TIERCEL_TRY_ASSIGN(manager_,
                     ResourceManager::create(manager_config(), *cache_, *prefix_, clock_));
  report_.requests.resize(trace_.requests.size());
  for (EngineRequestResult& result : report_.requests) result.first_token = Duration(-1);
  return {};
}

EngineRunReport EngineRun::run() {
  const TimePoint start = context_.clock.now();
  Status status;
  while (status && !stopped() && (next_ < trace_.requests.size() || !manager_->idle())) {
    status = take_arrivals();
    if (!status) break;
    const Batch& batch = *watched([&] { return &manager_->schedule(); });
    status = batch.requests.empty() ? pass_time() : compute(batch);
    take_finished();
  }
  if (!status) report_.failure = status.error().message();
  // Stopped after its last request it is whole.
  report_.complete = status && next_ == trace_.requests.size() && manager_->idle();
  report_.ended = ended_ + report_.refused;
  report_.virtual_seconds = to_seconds(clock_.now().time_since_epoch());
  report_.wall_seconds = to_seconds(context_.clock.now() - start);
  report_.schedule_us = summarize_times(control_ns_);
  report_.manager = manager_->stats();
  report_.cache = cache_->stats();
  report_.estimates = cache_->load_estimates();
  report_.regret = regret_.sums();
  return std::move(report_);
}

Status EngineRun::take_arrivals() {
  while (next_ < trace_.requests.size() && arrival_of(next_) <= clock_.now() &&
         next_ - ended_ - report_.refused < kWaitingMax + engine_.running_max) {
    TIERCEL_TRY(add(next_));
    ++next_;
  }
  return {};
}

Status EngineRun::add(size_t index) {
  const TraceRequest& request = trace_.requests[index];
  if (request.input_length == 0) {
    ++report_.refused;
    return {};
  }
  if (tiers_.store) report_.requests[index].needs_store = needs_store(request);
  EngineRequest added;
  added.id = RequestId(index);
  added.prompt.resize(size_t{request.id_count} * kTokensPerId);
  const auto ids = trace_.ids_of(request);
  for (size_t i = 0; i < ids.size(); ++i) {
    expand_id(ids[i],
              std::span<TokenId, kTokensPerId>(&added.prompt[i * kTokensPerId], kTokensPerId));
  }
  added.prompt.resize(std::min<size_t>(added.prompt.size(), request.input_length));
  added.output_tokens_max = std::max(1u, request.output_length);
  const Status status = manager_->add(std::move(added));
  if (!status && status.code() == Code::kInvalid) {
    ++report_.refused;  // more than the device pool holds
    return {};
  }
  return status;
}

bool EngineRun::needs_store(const TraceRequest& request) {
  const auto full = request.input_length / kTokensPerId;
  const auto keys = request_keys_.hash(trace_.ids_of(request).first(full));
  const uint32_t on_device = prefix_->match(keys).blocks;
  const uint32_t ready = cache_->match(keys, on_device).ready_blocks;
  return ready < keys.size() && plane_->store_has(keys[ready], GroupId(0));
}

Status EngineRun::compute(const Batch& batch) {
  double prefill = 0, context_tokens = 0;
  uint64_t prefill_tokens = 0, decodes = 0;
  results_.clear();
  for (const ScheduledRequest& scheduled : batch.requests) {
    StepResult& result = results_.emplace_back();
    result.id = scheduled.id;
    if (scheduled.samples) result.token = TokenId{1};
    const TraceRequest& request = trace_.requests[scheduled.id.value()];
    if (scheduled.first_token >= request.input_length) {
      ++decodes;
      continue;
    }
    const auto tokens = static_cast<double>(scheduled.tokens.size());
    prefill += prefill_seconds(engine_.prefill, static_cast<double>(scheduled.first_token), tokens);
    prefill_tokens += scheduled.tokens.size();
    context_tokens += tokens * static_cast<double>(scheduled.first_token);
  }
  const Duration duration =
      engine_.step_time + decodes * engine_.decode_time + to_duration(prefill);
  const uint64_t step = batch.step;
  clock_.advance(duration);
  report_.busy_seconds += to_seconds(duration);
  report_.prefill_seconds += prefill;
  report_.computed_tokens += prefill_tokens;
  TIERCEL_TRY(watched([&] { return manager_->complete(step, results_); }));
  if (prefill_tokens > 0) {
    const double context = context_tokens / static_cast<double>(prefill_tokens);
    cache_->observe_prefill(prefill_tokens, static_cast<uint64_t>(context), to_duration(prefill));
  }
  return {};
}

void EngineRun::take_finished() {
  while (const auto finished = manager_->take_finished()) {
    ++ended_;
    const uint64_t index = finished->id.value();
    report_.requests[index].first_token = finished->first_token - arrival_of(index);
    const uint64_t saved = finished->device_hit_tokens + finished->loaded_tokens;
    report_.prompt_tokens += finished->prompt_tokens;
    report_.device_hit_tokens += finished->device_hit_tokens;
    report_.loaded_tokens += finished->loaded_tokens;
    report_.prefill_seconds_saved +=
        prefill_seconds(engine_.prefill, 0, static_cast<double>(saved));
    if (context_.progress) context_.progress(ended_);
  }
}

Status EngineRun::pass_time() {
  TimePoint next = std::min(plane_->next_due(), manager_->next_deadline());
  if (next_ < trace_.requests.size()) next = std::min(next, arrival_of(next_));
  if (next == kNoDeadline) {
    return manager_->idle() ? Status{}
                            : Error(Code::kInternal,
                                    "requests live, but nothing is due and no more come: this is "
                                    "a bug, please report it");
  }
  next = std::max(next, clock_.now() + kLeastStep);
  if (!manager_->idle()) report_.waiting_for_copies_seconds += to_seconds(next - clock_.now());
  clock_.set(next);
  return {};
}

}  // namespace

Result<EngineRunReport> run_engine(const Trace& trace, const ReplayOptions& options,
                                   const EngineTiers& tiers, bool stalls,
                                   const EngineRunContext& context) {
  EngineRun run(trace, options, tiers, stalls, context);
  TIERCEL_TRY(run.open());
  return run.run();
}

}  // namespace tiercel
