// SPDX-License-Identifier: Apache-2.0
//
// What `tiercel replay --engine` prints; docs/replay.md says what each figure means.
#include <cmath>
#include <iterator>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/option_table.h"
#include "base/seconds.h"
#include "cli/engine_replay.h"

namespace tiercel {
namespace {

using Json = nlohmann::ordered_json;

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

double change(double before, double after) { return before > 0 ? 100 * (after / before - 1) : 0; }

// Percentiles of requests of which there are none are not 0.
std::string seconds_text(const FirstTokenTimes& times, double seconds) {
  return times.requests == 0 ? "-" : fmt::format("{:.3f}", seconds);
}

std::string row(const EngineRunReport& run) {
  const FirstTokenTimes times = first_token_times(run);
  const double prompt = static_cast<double>(run.prompt_tokens);
  // What a part of a trace gives must not be taken for the whole.
  const std::string end =
      run.complete ? ""
                   : fmt::format("  INCOMPLETE: {} of {} requests", run.ended, run.requests.size());
  return fmt::format("  {:<17} {:>9} {:>9} {:>9} {:>10.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.2f}{}\n",
                     run.name, seconds_text(times, times.p50), seconds_text(times, times.p90),
                     seconds_text(times, times.p99), run.prefill_seconds_saved,
                     share(static_cast<double>(run.device_hit_tokens), prompt),
                     share(static_cast<double>(run.loaded_tokens), prompt),
                     share(run.prefill_seconds, run.virtual_seconds),
                     share(run.regret.lost, run.regret.best), end);
}

std::string link(const char* name, const LinkSpeed& speed) {
  return fmt::format("{} {}/s behind {}, {} at once", name,
                     format_bytes(static_cast<uint64_t>(speed.bytes_per_second)),
                     format_duration(speed.latency), speed.concurrency);
}

std::string stall_text(const StallReport& stall, const EngineOptions& engine) {
  const auto line = [](const char* who, const FirstTokenTimes& without,
                       const FirstTokenTimes& before, const FirstTokenTimes& after) {
    return fmt::format(
        "  {:<34} {:>6} requests   p99 {:.3f} s; without a store {:.3f} s ({:+.2f} %), with one "
        "that works {:.3f} s\n",
        who, after.requests, after.p99, without.p99, change(without.p99, after.p99), before.p99);
  };
  const std::string length = engine.stall >= kStallForEver
                                 ? std::string("for ever")
                                 : fmt::format("for {}", format_duration(engine.stall));
  return fmt::format("  the store stalls {} into the trace, {}:\n",
                     format_duration(engine.stall_at), length) +
         line("  requests that do not need it", stall.others_without, stall.others_before,
              stall.others) +
         line("  requests that need it", stall.needing_without, stall.needing_before,
              stall.needing) +
         fmt::format("  scheduler waited {} us; schedule() {:.1f} us at p99, longest {:.1f}\n",
                     stall.run.scheduler_wait.count() / 1000, stall.run.schedule_us.p99,
                     stall.run.schedule_us.max);
}

Json times_json(const FirstTokenTimes& times) {
  return {{"requests", times.requests}, {"p50", times.p50},   {"p90", times.p90},
          {"p99", times.p99},           {"mean", times.mean}, {"max", times.max}};
}

Json estimates_json(const LoadEstimates& estimates) {
  Json json;
  for (size_t i = 0; i < kTransferPathCount; ++i) {
    const TransferEstimate& path = estimates.transfers[i];
    json[std::string(to_string(static_cast<TransferPath>(i)))] = {
        {"latency_seconds", to_seconds(path.rate.latency)},
        {"units_per_second", path.rate.units_per_second},
        {"measurements", path.measurements},
        {"suspensions", path.suspensions}};
  }
  json["prefill"] = {{"tokens_per_second", estimates.prefill.tokens_per_second},
                     {"context_doubling", estimates.prefill.context_doubling},
                     {"measurements", estimates.prefill_measurements}};
  return json;
}

Json run_json(const EngineRunReport& run) {
  Json json;
  json["name"] = run.name;
  json["complete"] = run.complete;
  json["failure"] = run.failure;
  json["requests_ended"] = run.ended;
  json["first_token_seconds"] = times_json(first_token_times(run));
  json["refused"] = run.refused;
  json["prompt_tokens"] = run.prompt_tokens;
  json["device_hit_tokens"] = run.device_hit_tokens;
  json["loaded_tokens"] = run.loaded_tokens;
  json["computed_tokens"] = run.computed_tokens;
  json["prefill_seconds"] = run.prefill_seconds;
  json["prefill_seconds_saved"] = run.prefill_seconds_saved;
  json["virtual_seconds"] = run.virtual_seconds;
  json["busy_seconds"] = run.busy_seconds;
  json["waiting_for_copies_seconds"] = run.waiting_for_copies_seconds;
  json["scheduler_wait_us"] = run.scheduler_wait.count() / 1000;
  json["schedule_us_p50"] = run.schedule_us.p50;
  json["schedule_us_p99"] = run.schedule_us.p99;
  json["schedule_us_max"] = run.schedule_us.max;
  json["wall_seconds"] = run.wall_seconds;
  json["steps"] = run.manager.steps;
  json["preempted"] = run.manager.preempted;
  json["prefetches"] = run.manager.prefetches;
  json["prefetches_late"] = run.manager.prefetches_late;
  json["shared_waits"] = run.manager.shared_waits;
  json["computed_waits"] = run.manager.computed_waits;
  json["computed_waits_vain"] = run.manager.computed_waits_vain;
  json["loads"] = run.manager.loads;
  json["loads_short"] = run.manager.loads_short;
  json["disk_get_blocks"] = run.cache.disk_get_blocks;
  json["store_get_blocks"] = run.cache.get_blocks;
  json["store_get_timeout"] = run.cache.get_timeout;
  json["store_opened"] = run.cache.store.opened;
  json["load_choices"] = run.cache.load_choices;
  json["not_worth_blocks"] = run.cache.not_worth_blocks;
  json["probes"] = run.cache.probes;
  json["suspensions"] = run.cache.suspensions;
  json["regret"] = {{"choices", run.regret.choices},
                    {"best_seconds", run.regret.best},
                    {"lost_seconds", run.regret.lost},
                    {"lost_seconds_loading_nothing", run.regret.lost_loading_nothing},
                    {"lost_seconds_loading_all", run.regret.lost_loading_all}};
  json["estimates"] = estimates_json(run.estimates);
  return json;
}

void add_link(Json& json, const std::string& name, const LinkSpeed& speed) {
  json[name + "_latency_seconds"] = to_seconds(speed.latency);
  json[name + "_bandwidth"] = speed.bytes_per_second;
  json[name + "_concurrency"] = speed.concurrency;
}

Json options_json(const ReplayOptions& options) {
  const EngineOptions& engine = options.engine;
  Json json;
  json["trace"] = options.trace;
  json["policy"] = options.policy;
  json["block_tokens"] = options.block_tokens;
  json["limit"] = options.limit;
  json["engine_speedup"] = engine.speedup;
  json["engine_block_bytes"] = engine.block_bytes;
  json["engine_device_blocks"] = engine.device_blocks;
  json["engine_host_blocks"] = engine.host_blocks;
  json["engine_disk_blocks"] = engine.disk_blocks;
  json["engine_prefill_rate"] = engine.prefill.tokens_per_second;
  json["engine_context_doubling"] = engine.prefill.context_doubling;
  json["engine_step_time_seconds"] = to_seconds(engine.step_time);
  json["engine_decode_time_seconds"] = to_seconds(engine.decode_time);
  json["engine_step_tokens"] = engine.step_tokens;
  json["engine_running_max"] = engine.running_max;
  add_link(json, "engine_device", engine.device);
  add_link(json, "engine_disk", engine.disk);
  add_link(json, "engine_store", engine.store);
  json["engine_choose"] = engine.choose;
  json["engine_stall_at_seconds"] = to_seconds(engine.stall_at);
  json["engine_stall_seconds"] = to_seconds(engine.stall);
  return json;
}

}  // namespace

std::string to_text(const EngineReplayReport& report) {
  const ReplayOptions& options = report.options;
  const EngineOptions& engine = options.engine;
  std::string text = fmt::format(
      "{}: an engine in virtual time, arrivals × {:g}, policy {}{}\n"
      "  prefill {:g} tokens/s, twice the cost at {:g} tokens of context; step {} + {} a decode\n"
      "  blocks of {} tokens and {}: {} on the device, {} in host memory, {} on disk\n"
      "  {}\n  {}\n  {}\n\n"
      "  {:<17} {:>29} {:>10} {:>8} {:>8} {:>8} {:>8}\n"
      "  {:<17} {:>9} {:>9} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8}\n",
      escaped_path(options.trace), engine.speedup, options.policy,
      report.complete ? "" : "  (INCOMPLETE)", engine.prefill.tokens_per_second,
      engine.prefill.context_doubling, format_duration(engine.step_time),
      format_duration(engine.decode_time), options.block_tokens, format_bytes(engine.block_bytes),
      engine.device_blocks, engine.host_blocks, engine.disk_blocks,
      link("host memory and device:", engine.device), link("disk:", engine.disk),
      link("store:", engine.store), "", "time to first token, s", "prefill", "hit on", "",
      "prefill", "choices", "tiers", "p50", "p90", "p99", "saved, s", "device %", "loaded %",
      "time %", "lost %");
  for (const EngineRunReport& run : report.runs) text += row(run);
  if (report.stall) {
    text += row(report.stall->run);
    if (report.stall->run.complete) text += "\n" + stall_text(*report.stall, engine);
  }
  if (!report.runs.empty()) {
    const EngineRunReport& last = report.runs.back();
    const EngineRegret::Sums& regret = last.regret;
    if (regret.choices > 0) {
      text += fmt::format(
          "\n  {} choices lost {:.2f} % against the best known afterwards; loading nothing {:.2f} "
          "%, everything {:.2f} %\n",
          regret.choices, share(regret.lost, regret.best),
          share(regret.lost_loading_nothing, regret.best),
          share(regret.lost_loading_all, regret.best));
    }
    if (last.refused > 0) {
      text += fmt::format(
          "  {} of {} requests were refused: empty, or more tokens than the {} of the device "
          "pool\n",
          last.refused, last.ended, uint64_t{engine.device_blocks} * options.block_tokens);
    }
  }
  text += fmt::format("  time {:.1f} s, peak memory {}\n", report.wall_seconds,
                      format_bytes(report.peak_rss_bytes));
  if (!report.failure.empty()) text += "  FAILED: " + report.failure + "\n";
  return text;
}

std::string to_json(const EngineReplayReport& report) {
  Json json;
  json["complete"] = report.complete;
  json["failure"] = report.failure;
  json["runs"] = Json::array();
  for (const EngineRunReport& run : report.runs) json["runs"].push_back(run_json(run));
  json["stall"] = nullptr;
  if (report.stall) {
    const StallReport& stall = *report.stall;
    json["stall"] = {{"run", run_json(stall.run)},
                     {"others_without", times_json(stall.others_without)},
                     {"others_before", times_json(stall.others_before)},
                     {"others", times_json(stall.others)},
                     {"needing_without", times_json(stall.needing_without)},
                     {"needing_before", times_json(stall.needing_before)},
                     {"needing", times_json(stall.needing)}};
  }
  json["skipped_lines"] = report.skipped_lines;
  json["wall_seconds"] = report.wall_seconds;
  json["peak_rss_bytes"] = report.peak_rss_bytes;
  json["options"] = options_json(report.options);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tiercel
