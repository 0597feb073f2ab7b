// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/seconds.h"
#include "cli/replay_report.h"

namespace tiercel {
namespace {

using Json = nlohmann::ordered_json;

Json options_json(const ReplayOptions& options) {
  Json json;
  json["trace"] = options.trace;
  json["host_blocks"] = options.host_blocks;
  json["device_blocks"] = options.device_blocks;
  json["block_bytes"] = options.block_bytes;
  json["block_tokens"] = options.block_tokens;
  json["ranks"] = options.ranks;
  json["rank_host"] = to_string(options.rank_host);
  json["kill_rank_every"] = options.kill_rank_every;
  json["policy"] = options.policy;
  json["store"] = options.store;
  const DiskConfig& disk = options.disk.config;
  json["disk_path"] = disk.path;
  json["disk_bytes"] = disk.bytes;
  json["disk_instance"] = disk.instance;
  json["disk_policy"] = to_string(options.disk.policy);
  json["disk_sync"] = to_string(disk.sync);
  json["disk_sync_interval_seconds"] = to_seconds(disk.sync_interval);
  json["disk_io"] = to_string(disk.io);
  json["disk_queue_depth"] = disk.queue_depth;
  json["disk_direct"] = disk.direct;
  json["disk_preallocate"] = disk.preallocate;
  json["disk_reset"] = disk.reset;
  json["disk_purge"] = disk.purge;
  json["metadata_only"] = options.metadata_only;
  json["full_blocks_only"] = options.full_blocks_only;
  json["verify"] = options.verify;
  json["prefault"] = options.prefault;
  json["limit"] = options.limit;
  json["skip_bad_lines"] = options.skip_bad_lines;
  json["optimum"] = options.optimum;
  json["deadline_seconds"] = to_seconds(options.deadline);
  json["patience_seconds"] = to_seconds(options.patience);
  return json;
}

Json tiers_json(const ReplayReport& report) {
  Json json = Json::object();
  for (const TierReport& tier : report.tiers) {
    json[tier.name] = {{"hit_blocks", tier.hit_blocks},
                       {"bytes_read", tier.bytes_read},
                       {"bytes_written", tier.bytes_written}};
  }
  return json;
}

Json paths_json(const RankStats& stats) {
  Json json = Json::object();
  for (size_t kind = 0; kind < kOpKindCount; ++kind) {
    const PathStats& path = stats.paths[kind];
    json[std::string(to_string(static_cast<OpKind>(kind)))] = {
        {"ops", path.ops},
        {"failed", path.failed},
        {"corrupt", path.corrupt},
        {"bytes", path.bytes},
        {"busy_seconds", static_cast<double>(path.busy_ns) * 1e-9}};
  }
  return json;
}

Json ranks_json(const ReplayReport& report) {
  Json json = Json::array();
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankStatus& status = report.ranks[rank];
    json.push_back({{"rank", rank},
                    {"state", std::string(to_string(status.state))},
                    {"starts", status.starts},
                    {"comebacks", comebacks_of(status)},
                    {"given_up", status.is_given_up},
                    {"reason", status.last_error}});
  }
  return json;
}

Json counters_json(const CacheStats& stats) {
  return {{"matches", stats.matches},
          {"load_blocks", stats.load_blocks},
          {"load_failed", stats.load_failed},
          {"load_corrupt", stats.load_corrupt},
          {"load_timeout", stats.load_timeout},
          {"save_blocks", stats.save_blocks},
          {"save_skipped", stats.save_skipped},
          {"save_failed", stats.save_failed},
          {"save_dropped", stats.save_dropped},
          {"save_no_space", stats.save_no_space},
          {"get_blocks", stats.get_blocks},
          {"get_shared", stats.get_shared},
          {"get_failed", stats.get_failed},
          {"get_corrupt", stats.get_corrupt},
          {"get_timeout", stats.get_timeout},
          {"put_blocks", stats.put_blocks},
          {"put_failed", stats.put_failed},
          {"put_dropped", stats.put_dropped},
          {"put_replaced", stats.put_replaced},
          {"exists_asked", stats.exists_asked},
          {"exists_found", stats.exists_found},
          {"exists_failed", stats.exists_failed},
          {"disk_get_blocks", stats.disk_get_blocks},
          {"disk_get_failed", stats.disk_get_failed},
          {"disk_get_corrupt", stats.disk_get_corrupt},
          {"disk_get_timeout", stats.disk_get_timeout},
          {"disk_put_blocks", stats.disk_put_blocks},
          {"disk_put_failed", stats.disk_put_failed},
          {"disk_put_dropped", stats.disk_put_dropped},
          {"disk_put_no_space", stats.disk_put_no_space},
          {"disk_evicted_blocks", stats.disk_evicted_blocks},
          {"disk_recovered_blocks", stats.disk_recovered_blocks},
          {"disk_unreachable_blocks", stats.disk_unreachable_blocks},
          {"disk_slots_total", stats.disk_slots_total},
          {"disk_slots_used", stats.disk_slots_used},
          {"disk_slots_withdrawn", stats.disk_slots_withdrawn},
          {"disk_opened", stats.disk.opened},
          {"disk_refused", stats.disk.refused},
          {"evicted_blocks", stats.evicted_blocks},
          {"memory_losses", stats.memory_losses},
          {"store_opened", stats.store.opened},
          {"store_refused", stats.store.refused}};
}

}  // namespace

std::string to_json(const ReplayReport& report) {
  Json json;
  json["requests"] = report.requests;
  json["blocks"] = report.blocks;
  json["hit_blocks"] = report.hit_blocks;
  json["loaded_blocks"] = report.loaded_blocks;
  json["hit_ratio"] = report.hit_ratio();
  json["ceiling_hit_ratio"] = report.ceiling_hit_ratio();
  json["optimum_hit_ratio"] = nullptr;
  if (const auto ratio = report.optimum_hit_ratio()) json["optimum_hit_ratio"] = *ratio;
  json["tokens"] = report.tokens;
  json["tokens_saved"] = report.tokens_saved;
  json["mismatches"] = report.mismatches;
  json["first_mismatch"] = report.first_mismatch;
  json["control_us_p50"] = report.control_us.p50;
  json["control_us_p99"] = report.control_us.p99;
  json["control_us_max"] = report.control_us.max;
  json["hash_us_p50"] = report.hash_us.p50;
  json["hash_us_p99"] = report.hash_us.p99;
  json["wall_seconds"] = report.wall_seconds;
  json["peak_rss_bytes"] = report.peak_rss_bytes;
  json["index_bytes_per_block"] = report.index_bytes_per_block;
  json["tiers"] = tiers_json(report);
  json["paths"] = paths_json(report.paths);
  json["disk_written_bytes"] = report.paths.disk_written_bytes;
  json["disk_syncs"] = report.paths.disk_syncs;
  json["disk_condition"] = to_string(report.cache.disk);
  json["notes"] = report.notes;
  json["store_condition"] = to_string(report.cache.store);
  json["store_reasons"] = report.store_reasons;
  json["counters"] = counters_json(report.cache);
  json["killed_ranks"] = report.killed_ranks;
  json["ranks"] = ranks_json(report);
  json["skipped_lines"] = report.skipped_lines;
  json["complete"] = report.complete;
  json["failure"] = report.failure;
  json["options"] = options_json(report.options);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tiercel
