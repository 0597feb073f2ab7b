// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_replay.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/seconds.h"

namespace tiercel {
namespace {

struct Setup {
  const char* name;
  EngineTiers tiers;
};
constexpr Setup kSetups[] = {
    {"device only", {}},
    {"+ host", {.host = true}},
    {"+ disk", {.host = true, .disk = true}},
    {"+ store", {.host = true, .disk = true, .store = true}},
};

FirstTokenTimes times_of(std::vector<double> seconds) {
  FirstTokenTimes times;
  times.requests = seconds.size();
  if (seconds.empty()) return times;
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](size_t percent) {
    const size_t rank = (seconds.size() * percent + 99) / 100;
    return seconds[std::max<size_t>(rank, 1) - 1];
  };
  times.p50 = at(50);
  times.p90 = at(90);
  times.p99 = at(99);
  times.max = seconds.back();
  times.mean =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  return times;
}

// Of the requests that have `needs_store` in `reference`, or have not.
FirstTokenTimes times_of(const EngineRunReport& run, const EngineRunReport& reference,
                         bool needs_store) {
  std::vector<double> seconds;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const Duration first_token = run.requests[i].first_token;
    if (first_token < Duration::zero() || reference.requests[i].needs_store != needs_store) {
      continue;
    }
    seconds.push_back(to_seconds(first_token));
  }
  return times_of(std::move(seconds));
}

}  // namespace

FirstTokenTimes first_token_times(const EngineRunReport& run) {
  std::vector<double> seconds;
  for (const EngineRequestResult& request : run.requests) {
    if (request.first_token < Duration::zero()) continue;
    seconds.push_back(to_seconds(request.first_token));
  }
  return times_of(std::move(seconds));
}

Result<EngineReplayReport> replay_engine(const Trace& trace, const ReplayOptions& options,
                                         const ReplayContext& context) {
  EngineReplayReport report;
  report.options = options;
  report.skipped_lines = trace.skipped_lines;
  const bool stalls = options.engine.stall > Duration::zero();
  const uint64_t all = trace.requests.size() * (std::size(kSetups) + (stalls ? 1 : 0));
  const TimePoint start = context.clock.now();
  uint64_t done_before = 0;
  const EngineRunContext run_context{context.clock, context.memory, context.stop,
                                     [&](uint64_t done) {
                                       if (context.progress)
                                         context.progress(done_before + done, all);
                                     }};
  const auto run = [&](const char* name, const EngineTiers& tiers,
                       bool stalling) -> Result<EngineRunReport> {
    TIERCEL_TRY_ASSIGN(EngineRunReport done,
                       run_engine(trace, options, tiers, stalling, run_context));
    done.name = name;
    done_before += trace.requests.size();
    report.complete = done.complete;
    report.failure = done.failure;
    return done;
  };
  for (const Setup& setup : kSetups) {
    TIERCEL_TRY_ASSIGN(EngineRunReport done, run(setup.name, setup.tiers, false));
    report.runs.push_back(std::move(done));
    if (!report.complete) break;
  }
  if (report.complete && stalls) {
    TIERCEL_TRY_ASSIGN(EngineRunReport done, run("+ store, stalled", kSetups[3].tiers, true));
    const EngineRunReport& before = report.runs.back();
    StallReport& stall = report.stall.emplace();
    stall.run = std::move(done);
    const EngineRunReport& without = report.runs[report.runs.size() - 2];
    stall.others_without = times_of(without, before, false);
    stall.needing_without = times_of(without, before, true);
    stall.others_before = times_of(before, before, false);
    stall.others = times_of(stall.run, before, false);
    stall.needing_before = times_of(before, before, true);
    stall.needing = times_of(stall.run, before, true);
  }
  report.wall_seconds = to_seconds(context.clock.now() - start);
  report.peak_rss_bytes = peak_rss_bytes();
  return report;
}

}  // namespace tiercel
