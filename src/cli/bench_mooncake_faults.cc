// SPDX-License-Identifier: Apache-2.0
//
// What a broken pool costs, and how long a sidecar takes to be there again.
#include <array>
#include <chrono>
#include <utility>

#include <fmt/core.h>
#include <poll.h>

#include "base/arena.h"
#include "base/quantity.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "cli/bench_mooncake.h"
#include "store/registry.h"

namespace tiercel {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kMillisecondsPerSecond = 1e3;
constexpr Duration kDeadline = std::chrono::milliseconds(50);
constexpr Duration kLimit = std::chrono::seconds(60);
constexpr uint32_t kRefusedCalls = 200;
constexpr uint32_t kKeys = 32;

std::vector<ObjectKey> question_keys() {
  std::vector<ObjectKey> keys;
  for (const BlockKey& block : bench_keys(kKeys, 1)) {
    keys.emplace_back(Namespace{}, GroupId(0), Slice{}, block);
  }
  return keys;
}

// Asks and waits; the code of the first key.
Code ask(Store& store, const std::vector<ObjectKey>& keys, TimePoint deadline) {
  const Result<StoreRequestId> id = store.submit_exists(keys, deadline);
  if (!id) return id.code();
  std::vector<StoreCompletion> completions;
  while (true) {
    completions.clear();
    store.poll(&completions);
    for (const StoreCompletion& completion : completions) {
      if (completion.id == *id) return completion.codes.front();
    }
    pollfd source{.fd = store.completion_fd(), .events = POLLIN, .revents = 0};
    ::poll(&source, 1, -1);
  }
}

bool is_answer(Code code) { return code == Code::kOk || code == Code::kNotFound; }

// Until the pool answers. One that does not is an error.
Status await_answer(Store& store, const std::vector<ObjectKey>& keys, const Clock& clock) {
  const TimePoint until = clock.now() + kLimit;
  while (clock.now() < until) {
    if (is_answer(ask(store, keys, clock.now() + std::chrono::seconds(1)))) return {};
    constexpr int kPauseMs = 5;
    ::poll(nullptr, 0, kPauseMs);
  }
  return Error(Code::kTimeout, fmt::format("the pool does not answer again within {}; {}",
                                           format_duration(kLimit), store.state()));
}

struct Harm {
  const char* name;
  const char* begin;
  const char* end;
};

Status measure_harm(const Harm& harm, BenchPool& pool, Store& store, const BenchOptions& options,
                    const BenchContext& context, BenchFigures& figures) {
  const std::vector<ObjectKey> keys = question_keys();
  std::vector<double> first;
  std::vector<double> refused;
  for (uint32_t i = 0; i < options.mooncake_faults && !context.stopped(); ++i) {
    TIERCEL_TRY(await_answer(store, keys, context.clock));
    TIERCEL_TRY(pool.command(harm.begin));
    first.push_back(kMillisecondsPerSecond * seconds_of(context.clock, [&] {
                      ask(store, keys, context.clock.now() + kDeadline);
                    }));
    const TimePoint until = context.clock.now() + kLimit;
    while (store.health().condition != StoreCondition::kOpen && context.clock.now() < until) {
      ask(store, keys, context.clock.now() + kDeadline);
    }
    for (uint32_t call = 0; call < kRefusedCalls; ++call) {
      const double seconds =
          seconds_of(context.clock, [&] { ask(store, keys, context.clock.now() + kDeadline); });
      // The back-off may end in between.
      if (store.health().condition != StoreCondition::kOpen) break;
      refused.push_back(kMicrosecondsPerSecond * seconds);
    }
    TIERCEL_TRY(pool.command(harm.end));
  }
  const double deadline_ms =
      kMillisecondsPerSecond * std::chrono::duration<double>(kDeadline).count();
  figures.push_back(plain_figure(fmt::format("mooncake.{}.first", harm.name), "ms", first,
                                 fmt::format("p99 at most {} + 5", deadline_ms)));
  figures.back().conditions.emplace_back("p99", fmt::format("{:.4g}", quantile(first, 0.99)));
  figures.back().conditions.emplace_back("deadline", format_duration(kDeadline));
  figures.push_back(
      plain_figure(fmt::format("mooncake.{}.refused", harm.name), "us", refused, "at most 10"));
  figures.back().conditions.emplace_back("p99", fmt::format("{:.4g}", quantile(refused, 0.99)));
  figures.back().conditions.emplace_back("is", "a question after the breaker has opened");
  return {};
}

}  // namespace

Status bench_mooncake_faults(BenchPool& pool, const BenchOptions& options,
                             const BenchContext& context, BenchFigures& figures) {
  StoreRegistry registry;
  register_all_stores(registry);
  const std::string joint = pool.url().find('?') == std::string::npos ? "?" : "&";
  const std::string url =
      "guard+" + pool.url() + joint + "guard_backoff=300ms&guard_backoff_max=1s";
  constexpr std::array kHarms = {Harm{"frozen_master", "stop master", "continue master"},
                                 Harm{"dead_master", "kill master", "start master"}};
  for (const Harm& harm : kHarms) {
    if (context.stopped()) return {};
    TIERCEL_TRY_ASSIGN(const std::unique_ptr<Store> store, registry.open(url, {context.clock}));
    TIERCEL_TRY(measure_harm(harm, pool, *store, options, context, figures));
    TIERCEL_TRY(store->close(context.clock.now() + kLimit));
  }
  return {};
}

Status bench_mooncake_respawn(const std::string& url, const BenchOptions& options,
                              const BenchContext& context, BenchFigures& figures) {
  StoreRegistry registry;
  register_all_stores(registry);
  const std::vector<ObjectKey> keys = question_keys();
  for (const uint64_t bytes : options.mooncake_arenas) {
    if (context.stopped()) return {};
    ArenaOptions arena_options;
    arena_options.kind = ArenaKind::kMemfd;
    TIERCEL_TRY_ASSIGN(const std::unique_ptr<Arena> arena, Arena::create(bytes, arena_options));
    std::vector<double> starts;
    // The first one finds memory without pages.
    for (uint32_t run = 0; run <= options.runs && !context.stopped(); ++run) {
      TIERCEL_TRY_ASSIGN(const std::unique_ptr<Store> store, registry.open(url, {context.clock}));
      Status ready;
      starts.push_back(kMillisecondsPerSecond * seconds_of(context.clock, [&] {
                         ready = store->register_shared_memory(arena->memory(), arena->fd());
                         if (ready) ready = await_answer(*store, keys, context.clock);
                       }));
      TIERCEL_TRY(ready);
      TIERCEL_TRY(store->close(context.clock.now() + kLimit));
    }
    if (starts.size() < 2) return {};
    const double first = starts.front();
    starts.erase(starts.begin());
    figures.push_back(
        plain_figure("mooncake.respawn." + exact_bytes(bytes), "ms", starts, "reported"));
    auto& conditions = figures.back().conditions;
    conditions.emplace_back("is",
                            "a new sidecar on memory that has its pages, from its start to its "
                            "first answer; after a crash 100 ms of back-off come before");
    conditions.emplace_back("first_start_ms", fmt::format("{:.4g}", first));
  }
  return {};
}

}  // namespace tiercel
