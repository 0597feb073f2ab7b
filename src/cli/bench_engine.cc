// SPDX-License-Identifier: Apache-2.0
//
// The scheduler's own time, the model left out: all calls of one long request, hashing included;
// one step with many requests running and thousands waiting; and the same with a store that hangs.
#include <algorithm>
#include <array>
#include <optional>

#include <fmt/core.h>
#include <sys/resource.h>

#include "tiercel/cache.h"

#include "cli/bench.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "engine/prefix_cache.h"
#include "engine/resource_manager.h"
#include "transfer/metadata_data_plane.h"

namespace tiercel {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr uint32_t kRequestsPerRun = 5;
constexpr uint32_t kStepsPerRun = 400;
constexpr uint32_t kRunning = 256;
constexpr uint32_t kWaiting = 10'000;
constexpr uint32_t kPromptTokens = 2'000;
constexpr uint32_t kOutputTokensMax = 400;
// Steps of one request; a prompt of 50,000 tokens takes seven.
constexpr uint32_t kStepsMax = 100'000;

// Counts of this thread: pushed off its processor, and given it up by itself.
struct Switches {
  int64_t forced = 0;
  int64_t voluntary = 0;
};
Switches switches() {
  struct rusage use {};
  ::getrusage(RUSAGE_THREAD, &use);
  return {use.ru_nivcsw, use.ru_nvcsw};
}

// A store that never answers; the rest moves nothing and succeeds.
class HangingStorePlane final : public DataPlane {
 public:
  explicit HangingStorePlane(std::unique_ptr<DataPlane> inner) : inner_(std::move(inner)) {}
  uint32_t rank_count() const override { return inner_->rank_count(); }
  size_t submit_capacity() const override { return inner_->submit_capacity(); }
  bool submit(std::span<const BlockOp> ops) override {
    kept_.clear();
    std::copy_if(ops.begin(), ops.end(), std::back_inserter(kept_), [](const BlockOp& op) {
      return op.kind != OpKind::kStoreExists && op.kind != OpKind::kStoreGet &&
             op.kind != OpKind::kStorePut && op.kind != OpKind::kStoreRemove;
    });
    return inner_->submit(kept_);
  }
  size_t poll(std::span<Completion> out) override { return inner_->poll(out); }
  int completion_fd() const override { return -1; }
  RankStats stats(uint32_t rank) const override { return inner_->stats(rank); }
  Status close(TimePoint deadline) override { return inner_->close(deadline); }

 private:
  std::unique_ptr<DataPlane> inner_;
  std::vector<BlockOp> kept_;
};

// A scheduler over a data plane that moves nothing, and a model that takes no time.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const CacheConfig& config,
                                              const ResourceManagerConfig& manager,
                                              bool hanging_store, const Clock& clock) {
    auto engine = std::make_unique<Engine>();
    MetadataDataPlaneOptions options;
    options.with_store = hanging_store;
    options.ops_in_flight_max = 1u << 17;
    engine->plane_ = make_metadata_data_plane(options);
    if (hanging_store) {
      engine->plane_ = std::make_unique<HangingStorePlane>(std::move(engine->plane_));
    }
    TIERCEL_TRY_ASSIGN(engine->cache_, Cache::create(config, *engine->plane_, clock));
    TIERCEL_TRY_ASSIGN(engine->prefix_, PrefixCache::create(config, *engine->cache_));
    TIERCEL_TRY_ASSIGN(engine->manager_,
                       ResourceManager::create(manager, *engine->cache_, *engine->prefix_, clock));
    return engine;
  }

  ResourceManager& manager() { return *manager_; }
  const std::vector<StepResult>& results_of(const Batch& batch) {
    results_.clear();
    for (const ScheduledRequest& scheduled : batch.requests) {
      StepResult& result = results_.emplace_back();
      result.id = scheduled.id;
      if (scheduled.samples) result.token = static_cast<TokenId>(scheduled.first_token);
    }
    return results_;
  }
  bool settled() const { return cache_->settled(); }

 private:
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<PrefixCache> prefix_;
  std::unique_ptr<ResourceManager> manager_;
  std::vector<StepResult> results_;
};

class EngineBench {
 public:
  EngineBench(const BenchOptions& options, const BenchContext& context)
      : options_(options), context_(context) {}

  Result<BenchFigures> run() {
    TIERCEL_TRY(measure_requests());
    TIERCEL_TRY(measure_steps(false));
    TIERCEL_TRY(measure_steps(true));
    return std::move(figures_);
  }

 private:
  CacheConfig cache_config(uint32_t device_blocks, uint32_t host_blocks) const {
    CacheConfig config;
    config.spec = bench_spec(options_.block_tokens);
    config.payload_bytes = {{1u << 16}};
    config.host_blocks = host_blocks;
    config.device_blocks = device_blocks;
    config.request_blocks_max = std::max(config.request_blocks_max, options_.request_blocks() + 1);
    return config;
  }

  // One request from add() to its end and the end of its saves; the scheduler's time for it.
  Result<double> serve(Engine& engine, uint64_t seed) {
    EngineRequest request;
    request.id = RequestId(++last_request_);
    request.prompt = bench_tokens(options_.tokens, seed);
    double seconds = 0;
    Status status;
    seconds +=
        seconds_of(context_.clock, [&] { status = engine.manager().add(std::move(request)); });
    TIERCEL_TRY(status);
    for (uint32_t step = 0; step < kStepsMax; ++step) {
      const Batch* batch = nullptr;
      seconds += seconds_of(context_.clock, [&] { batch = &engine.manager().schedule(); });
      if (batch->requests.empty() && engine.manager().idle() && engine.settled()) return seconds;
      if (batch->requests.empty()) continue;
      const auto& results = engine.results_of(*batch);
      seconds += seconds_of(context_.clock, [&] {
        status = engine.manager().complete(batch->step, results);
        (void)engine.manager().take_finished();
      });
      TIERCEL_TRY(status);
    }
    return Error(Code::kInternal, "a request does not end");
  }

  Status measure_requests() {
    // The device has room for one request and what it computes, the host tier for several.
    const uint32_t blocks = options_.request_blocks() + 1;
    ResourceManagerConfig manager;
    manager.prefill_chunk_tokens_max = manager.step_tokens_max;
    manager.context_tokens_max =
        std::max<uint64_t>(manager.context_tokens_max, options_.tokens + 2);
    TIERCEL_TRY_ASSIGN(auto engine, Engine::open(cache_config(blocks + blocks / 2, 4 * blocks),
                                                 manager, false, context_.clock));
    std::array<std::vector<double>, 3> us;
    uint64_t seed = 0;
    for (uint32_t i = 0; i <= options_.runs * kRequestsPerRun && !context_.stopped(); ++i) {
      TIERCEL_TRY_ASSIGN(const double miss, serve(*engine, ++seed));
      TIERCEL_TRY_ASSIGN(const double device_hit, serve(*engine, seed));
      // Another one takes the device, and the first one comes back from the host tier.
      TIERCEL_TRY(serve(*engine, ++seed));
      TIERCEL_TRY_ASSIGN(const double host_hit, serve(*engine, seed - 1));
      if (i == 0) continue;
      us[0].push_back(miss * kMicrosecondsPerSecond);
      us[1].push_back(device_hit * kMicrosecondsPerSecond);
      us[2].push_back(host_hit * kMicrosecondsPerSecond);
    }
    const std::array names = {"engine.request.all_miss", "engine.request.device_hit",
                              "engine.request.host_hit"};
    for (size_t kind = 0; kind < us.size(); ++kind) {
      figures_.push_back(plain_figure(names[kind], "us", us[kind], "at most 1000"));
      figures_.back().conditions.emplace_back("tokens", std::to_string(options_.tokens));
      figures_.back().conditions.emplace_back("block_tokens",
                                              std::to_string(options_.block_tokens));
      figures_.back().conditions.emplace_back("step_tokens",
                                              std::to_string(manager.step_tokens_max));
    }
    return {};
  }

  Status keep_waiting(Engine& engine, uint32_t count) {
    while (engine.manager().stats().waiting < count && !context_.stopped()) {
      EngineRequest request;
      request.id = RequestId(++last_request_);
      request.prompt = bench_tokens(kPromptTokens, last_request_);
      request.output_tokens_max =
          static_cast<uint32_t>(1 + last_request_ * 7919 % kOutputTokensMax);
      TIERCEL_TRY(engine.manager().add(std::move(request)));
    }
    return {};
  }

  Status measure_steps(bool hanging_store) {
    const uint32_t request_blocks = (kPromptTokens + kOutputTokensMax) / options_.block_tokens + 1;
    CacheConfig config =
        cache_config(kRunning * request_blocks + request_blocks, 2 * kRunning * request_blocks);
    config.with_store = hanging_store;
    config.requests_max = 2 * (kRunning + kWaiting);
    ResourceManagerConfig manager;
    manager.running_max = kRunning;
    manager.waiting_max = 2 * kWaiting;
    TIERCEL_TRY_ASSIGN(auto engine, Engine::open(config, manager, hanging_store, context_.clock));
    std::vector<double> schedules, completes;
    Switches begun, spent;
    uint64_t pushed_aside = 0;
    uint32_t warm_up = kOutputTokensMax;
    for (uint32_t step = 0; step < warm_up + options_.runs * kStepsPerRun && !context_.stopped();
         ++step) {
      TIERCEL_TRY(keep_waiting(*engine, kWaiting));
      const Batch* batch = nullptr;
      begun = switches();
      const double schedule_us = kMicrosecondsPerSecond * seconds_of(context_.clock, [&] {
                                   batch = &engine->manager().schedule();
                                 });
      const Switches scheduled = switches();
      const auto& results = engine->results_of(*batch);
      Status status;
      const double complete_us = kMicrosecondsPerSecond * seconds_of(context_.clock, [&] {
                                   if (!batch->requests.empty())
                                     status = engine->manager().complete(batch->step, results);
                                   while (engine->manager().take_finished()) {
                                   }
                                 });
      TIERCEL_TRY(status);
      if (step < warm_up) continue;
      const Switches ended = switches();
      spent.voluntary += scheduled.voluntary - begun.voluntary;
      if (ended.forced != begun.forced) {
        ++pushed_aside;
        continue;
      }
      schedules.push_back(schedule_us);
      completes.push_back(complete_us);
    }
    const std::string name = hanging_store ? "engine.hanging_store" : "engine";
    add_calls(name + ".schedule", schedules, pushed_aside, *engine, "at most 200");
    add_calls(name + ".complete", completes, pushed_aside, *engine, "");
    BenchFigure waits;
    waits.name = name + ".schedule_waits";
    waits.value = static_cast<double>(spent.voluntary);
    waits.unit = "waits";
    waits.value_count = schedules.size();
    waits.conditions = {{"steps", std::to_string(schedules.size() + pushed_aside)},
                        {"counted", "times that the thread gave its processor up by itself"},
                        {"reach", "0"}};
    figures_.push_back(std::move(waits));
    return {};
  }

  void add_calls(const std::string& name, const std::vector<double>& calls, uint64_t pushed_aside,
                 Engine& engine, const std::string& reach) {
    const ResourceManagerStats stats = engine.manager().stats();
    BenchFigure figure;
    figure.name = name + ".p99";
    figure.value = quantile(calls, 0.99);
    figure.unit = "us";
    figure.value_count = calls.size();
    figure.conditions = {{"steps", std::to_string(calls.size())},
                         {"p50", fmt::format("{:.1f}", quantile(calls, 0.5))},
                         {"max", fmt::format("{:.1f}", spread_of(calls).high)},
                         {"running", std::to_string(stats.running)},
                         {"waiting", std::to_string(stats.waiting)},
                         {"prefetching", std::to_string(stats.prefetching)},
                         {"prompt_tokens", std::to_string(kPromptTokens)},
                         {"preempted_calls_left_out", std::to_string(pushed_aside)}};
    if (!reach.empty()) figure.conditions.emplace_back("reach", reach);
    figures_.push_back(std::move(figure));
  }

  const BenchOptions& options_;
  const BenchContext& context_;
  uint64_t last_request_ = 0;
  BenchFigures figures_;
};

}  // namespace

Result<BenchFigures> bench_engine(const BenchOptions& options, const BenchContext& context) {
  return EngineBench(options, context).run();
}

}  // namespace tiercel
