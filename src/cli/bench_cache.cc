// SPDX-License-Identifier: Apache-2.0
//
// Control cost: what the scheduler's thread spends on one request, hashing included, over a data
// plane that moves nothing; and the longest single call while a full tier evicts.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/core.h>
#include <sys/resource.h>

#include "tiercel/cache.h"
#include "tiercel/key.h"

#include "base/quantity.h"
#include "cli/bench.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "transfer/metadata_data_plane.h"

namespace tiercel {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
// Polls of one request; a data plane that moves nothing needs two or three.
constexpr uint32_t kPollsMax = 10'000;
constexpr uint32_t kRequestsPerRun = 10;
// Keys, index and side tables.
constexpr uint64_t kBytesPerBlock = 128;
constexpr Duration kDeadline = std::chrono::seconds(60);

enum class Verb : size_t { kHash, kMatch, kLoad, kSave, kCommit, kPoll, kFinish };
constexpr std::array kVerbNames = {"hash", "match", "load", "save", "commit", "poll", "finish"};
constexpr size_t kVerbCount = kVerbNames.size();

// How often this thread was pushed off its processor.
int64_t preemptions() {
  struct rusage use {};
  ::getrusage(RUSAGE_THREAD, &use);
  return use.ru_nivcsw;
}

// Times of the calls, by verb; those during which the thread was pushed aside are counted apart.
class CallTimes {
 public:
  explicit CallTimes(const Clock& clock) : clock_(clock) {}

  template <typename Call>
  void time(Verb verb, Call&& call) {
    const int64_t before = watch_preemption ? preemptions() : 0;
    const double us = kMicrosecondsPerSecond * seconds_of(clock_, call);
    request_us += us;
    const auto index = static_cast<size_t>(verb);
    if (watch_preemption && preemptions() != before) {
      ++preempted[index];
    } else {
      calls[index].push_back(us);
    }
  }

  bool watch_preemption = false;
  double request_us = 0;  // since it was last set to 0
  std::array<std::vector<double>, kVerbCount> calls;
  std::array<uint64_t, kVerbCount> preempted{};

 private:
  const Clock& clock_;
};

class CacheBench {
 public:
  CacheBench(const BenchOptions& options, const BenchContext& context)
      : options_(options), context_(context) {}

  Result<BenchFigures> run() {
    TIERCEL_TRY(open());
    for (uint32_t blocks = 0; blocks < options_.cache_blocks && !context_.stopped();
         blocks += options_.request_blocks()) {
      CallTimes ignored(context_.clock);
      TIERCEL_TRY(miss(ignored));
    }
    TIERCEL_TRY(measure_requests());
    TIERCEL_TRY(measure_steps());
    add_bytes();
    for (BenchFigure& figure : figures_) {
      figure.conditions.emplace_back("cache_blocks", std::to_string(options_.cache_blocks));
      figure.conditions.emplace_back("tokens", std::to_string(options_.tokens));
      figure.conditions.emplace_back("block_tokens", std::to_string(options_.block_tokens));
    }
    return std::move(figures_);
  }

 private:
  Status open() {
    CacheConfig config;
    config.spec = bench_spec(options_.block_tokens);
    config.payload_bytes = {{1u << 16}};
    config.host_blocks = options_.cache_blocks;
    config.request_blocks_max = std::max(config.request_blocks_max, options_.request_blocks());
    MetadataDataPlaneOptions plane;
    plane.ops_in_flight_max = std::max(65536u, 2 * options_.request_blocks());
    plane_ = make_metadata_data_plane(plane);
    TIERCEL_TRY_ASSIGN(cache_, Cache::create(config, *plane_, context_.clock));
    for (uint32_t i = 0; i < options_.request_blocks(); ++i) device_.emplace_back(i);
    return {};
  }

  Status poll_until_idle(CallTimes& times) {
    std::array<CacheEvent, 16> events;
    for (uint32_t polls = 0; polls < kPollsMax; ++polls) {
      size_t count = 0;
      times.time(Verb::kPoll, [&] { count = cache_->poll(events); });
      if (count == 0 && cache_->idle()) return {};
    }
    return Error(Code::kInternal, "the cache does not come to rest");
  }

  // One request through all verbs; `ready` blocks must be there already.
  Status request(std::span<const TokenId> tokens, uint32_t ready, CallTimes& times) {
    const RequestId id(++last_request_);
    // One for all, as ResourceManager goes on with those of requests that have ended.
    if (!sequence_) sequence_.emplace(root_, options_.block_tokens);
    sequence_->restart(root_);
    times.request_us = 0;
    times.time(Verb::kHash, [&] { sequence_->append(tokens); });
    const std::span<const BlockKey> keys = sequence_->keys();
    Match match;
    times.time(Verb::kMatch, [&] { match = cache_->match(keys, 0); });
    if (match.ready_blocks != ready) {
      return Error(Code::kInternal, fmt::format("{} blocks of a request are ready; must be {}",
                                                match.ready_blocks, ready));
    }
    Result<uint32_t> loading = 0u;
    times.time(Verb::kLoad, [&] {
      loading = cache_->load(id, keys, 0, device_, context_.clock.now() + kDeadline);
    });
    TIERCEL_TRY(loading);
    if (*loading > 0) TIERCEL_TRY(poll_until_idle(times));
    Status saved;
    times.time(Verb::kSave, [&] { saved = cache_->save(id, keys, 0, device_); });
    TIERCEL_TRY(saved);
    Status committed;
    times.time(Verb::kCommit, [&] { committed = cache_->commit(id, tokens.size()); });
    TIERCEL_TRY(committed);
    TIERCEL_TRY(poll_until_idle(times));
    Result<Farewell> farewell = Farewell{};
    times.time(Verb::kFinish, [&] { farewell = cache_->finish(id); });
    TIERCEL_TRY(farewell);
    return poll_until_idle(times);
  }

  Status miss(CallTimes& times) {
    return request(bench_tokens(options_.tokens, ++last_seed_), 0, times);
  }
  Status hit(CallTimes& times) {
    return request(bench_tokens(options_.tokens, last_seed_), options_.request_blocks(), times);
  }

  Status measure_requests() {
    std::array<CallTimes, 2> times{CallTimes(context_.clock), CallTimes(context_.clock)};
    std::array<std::vector<double>, 2> requests;
    for (uint32_t i = 0; i < options_.runs * kRequestsPerRun && !context_.stopped(); ++i) {
      TIERCEL_TRY(miss(times[0]));
      requests[0].push_back(times[0].request_us);
      TIERCEL_TRY(hit(times[1]));
      requests[1].push_back(times[1].request_us);
    }
    for (const size_t kind : {size_t{0}, size_t{1}}) {
      figures_.push_back(
          plain_figure(kind == 0 ? "cache.request.all_miss" : "cache.request.all_hit", "us",
                       requests[kind], "at most 1000"));
      std::string parts;
      for (size_t verb = 0; verb < kVerbCount; ++verb) {
        double sum = 0;
        for (const double us : times[kind].calls[verb]) sum += us;
        const auto count = std::max<double>(1, static_cast<double>(requests[kind].size()));
        parts +=
            fmt::format("{}{} {:.0f}", parts.empty() ? "" : ", ", kVerbNames[verb], sum / count);
      }
      figures_.back().conditions.emplace_back("mean_us_by_verb", parts);
    }
    return {};
  }

  Status measure_steps() {
    CallTimes times(context_.clock);
    times.watch_preemption = true;
    const uint64_t evicted_before = cache_->stats().evicted_blocks;
    while (cache_->stats().evicted_blocks - evicted_before < options_.cache_blocks &&
           !context_.stopped()) {
      TIERCEL_TRY(miss(times));
    }
    const uint64_t evicted = cache_->stats().evicted_blocks - evicted_before;
    for (size_t verb = static_cast<size_t>(Verb::kMatch); verb < kVerbCount; ++verb) {
      const std::vector<double>& calls = times.calls[verb];
      BenchFigure figure;
      figure.name = fmt::format("cache.step_max.{}", kVerbNames[verb]);
      figure.value = spread_of(calls).high;
      figure.unit = "us";
      figure.value_count = calls.size();
      figure.conditions = {{"calls", std::to_string(calls.size())},
                           {"p50", fmt::format("{:.1f}", quantile(calls, 0.5))},
                           {"p99", fmt::format("{:.1f}", quantile(calls, 0.99))},
                           {"reach", "at most 1000"},
                           {"preempted_calls_left_out", std::to_string(times.preempted[verb])},
                           {"evicted_blocks", std::to_string(evicted)}};
      figures_.push_back(std::move(figure));
    }
    return {};
  }

  void add_bytes() {
    const CacheStats stats = cache_->stats();
    const auto per_block = [&](uint64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(options_.cache_blocks);
    };
    figures_.push_back(
        plain_figure("cache.index_bytes_per_block", "bytes", {per_block(stats.index_bytes)}, ""));
    figures_.push_back(plain_figure("cache.side_table_bytes_per_block", "bytes",
                                    {per_block(stats.side_table_bytes)}, ""));
  }

  const BenchOptions& options_;
  const BenchContext& context_;
  const RootKey root_ = bench_root();
  std::optional<Sequence> sequence_;
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<Cache> cache_;
  std::vector<DeviceBlockId> device_;
  uint64_t last_request_ = 0;
  uint64_t last_seed_ = 0;
  BenchFigures figures_;
};

}  // namespace

Status check_bench_cache(const BenchOptions& options, const BenchContext& context) {
  return context.check_blocks_fit("cache_blocks", options.cache_blocks, kBytesPerBlock);
}

Result<BenchFigures> bench_cache(const BenchOptions& options, const BenchContext& context) {
  return CacheBench(options, context).run();
}

}  // namespace tiercel
