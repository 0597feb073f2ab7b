// SPDX-License-Identifier: Apache-2.0
#include "sim_config.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tiercel::sim {
namespace {

using std::chrono::milliseconds;

GroupSpec full_group() {
  GroupSpec group;
  group.attention = AttentionKind::kGqa;
  group.kv_head_count = 4;
  group.head_dim_k = group.head_dim_v = 8;
  return group;
}

GroupSpec window_group(uint32_t window_tokens) {
  GroupSpec group = full_group();
  group.attention = AttentionKind::kWindow;
  group.window_tokens = window_tokens;
  return group;
}

SimConfig base_config(std::string name, std::string about) {
  SimConfig config;
  config.name = std::move(name);
  config.about = std::move(about);
  CacheConfig& cache = config.cache;
  cache.spec.model_id = "simulated";
  cache.spec.weights_revision = "1";
  cache.spec.kv_dtype = "bf16";
  cache.spec.kv_scale_scheme = "none";
  cache.spec.block_tokens = 4;
  cache.spec.groups = {full_group()};
  cache.payload_bytes = {{104}};
  cache.host_blocks = 16;
  cache.host_extents = 4;
  cache.request_blocks_max = 12;
  cache.requests_max = 10;
  cache.jobs_in_flight_max = 64;
  cache.job_blocks_max = 8;
  cache.prefetch_blocks_max = 16;
  cache.exists_blocks_max = 16;
  cache.existence_entries = 256;
  cache.sweep_nodes_per_poll = 16;
  cache.why_requests = 16;
  cache.existence_ttl = milliseconds(2000);
  cache.absence_ttl = milliseconds(500);
  cache.save_deadline = milliseconds(1000);
  cache.hold_limit = milliseconds(5000);
  return config;
}

SimConfig pair_config(std::string name, std::string about) {
  SimConfig config = base_config(std::move(name), std::move(about));
  config.cache.spec.groups = {full_group(), window_group(9)};
  config.cache.payload_bytes = {{104, 168}, {72, 40}};
  config.cache.host_blocks = 24;
  config.cache.host_extents = 6;
  return config;
}

void with_store(SimConfig& config, std::string policy) {
  config.cache.with_store = true;
  config.cache.eviction_policy = std::move(policy);
}

void with_disk(SimConfig& config, WritePolicy policy, DiskSync sync) {
  config.cache.host_to_disk = policy;
  config.disk_blocks = 3 * config.cache.host_blocks;
  config.disk_sync = sync;
  config.restarts = true;
}

// Copies take 0 to 5 ms there, and a block as long to compute: so there is something to choose.
void with_costs(SimConfig& config) {
  LoadOrRecomputeConfig& costs = config.cache.load_or_recompute;
  costs.enabled = true;
  for (TransferRate& rate : costs.transfers) rate = {milliseconds(2), 1e5};
  costs.prefill.tokens_per_second = 2000;
  costs.half_life = milliseconds(500);
  costs.suspension = milliseconds(50);
  costs.suspension_max = milliseconds(400);
  costs.probe_after = milliseconds(100);
  costs.probe_blocks = 3;
}

void add_disk_configs(std::vector<SimConfig>& configs) {
  {
    SimConfig config = base_config("disk", "one rank, 8 blocks, lru, disk, restarts");
    config.cache.host_blocks = 8;
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kNone);
    configs.push_back(config);
  }
  {
    SimConfig config = base_config("disk-back", "as disk, s3fifo, written back, every put synced");
    config.cache.host_blocks = 8;
    config.cache.eviction_policy = "s3fifo";
    config.cache.write_back_free_slots = 2;
    with_disk(config, WritePolicy::kWriteBack, DiskSync::kData);
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("disk-pair", "two ranks, two groups, disk, synced by interval");
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kInterval);
    // So few that blocks leave it.
    config.disk_blocks = config.cache.host_blocks;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("disk-store", "two ranks, two groups, disk and store, s3fifo");
    with_store(config, "s3fifo");
    with_disk(config, WritePolicy::kWriteThroughSelective, DiskSync::kData);
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("disk-costs", "as disk-store, only what is worth it is loaded");
    with_store(config, "lru");
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kNone);
    with_costs(config);
    config.drops = true;
    config.disk_faults = true;
    config.losses = true;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("disk-losses", "as disk-pair, ranks die and come back");
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kData);
    config.losses = true;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("disk-faults", "as disk-pair, disks fail, come short and hang");
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kData);
    config.disk_faults = true;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("disk-corrupt", "written back, bytes get damaged and lost");
    with_store(config, "lru");
    with_disk(config, WritePolicy::kWriteBack, DiskSync::kNone);
    config.corruption = true;
    config.disk_faults = true;
    configs.push_back(config);
  }
  {
    SimConfig config = base_config("disk-replicated", "three ranks with equal slices, one disk");
    config.cache.payload_bytes = {{104, 104, 104}};
    config.cache.replicated_slices = true;
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kInterval);
    config.disk_faults = true;
    configs.push_back(config);
  }
}

SimConfig engine_config(std::string name, std::string about) {
  SimConfig config = base_config(std::move(name), std::move(about));
  CacheConfig& cache = config.cache;
  cache.payload_bytes = {{32, 32}};
  cache.request_blocks_max = 64;
  cache.requests_max = 64;
  cache.host_blocks = 24;
  cache.host_extents = 6;
  config.device_blocks = 24;
  config.lives_max = 12;
  EngineSimConfig engine;
  engine.manager.running_max = 5;
  engine.manager.step_tokens_max = 24;
  engine.manager.prefill_chunk_tokens_max = 10;
  engine.manager.context_tokens_max = 80;
  engine.manager.waiting_max = 64;
  engine.manager.load_deadline = milliseconds(40);
  engine.manager.prefetch_deadline = milliseconds(200);
  engine.manager.hand_over_deadline = milliseconds(400);
  engine.manager.prefetching_max = 3;
  engine.manager.looks_per_step_max = 4;
  engine.manager.await_tokens_min = 4;
  config.engine = engine;
  return config;
}

void add_engine_configs(std::vector<SimConfig>& configs) {
  configs.push_back(engine_config("engine", "ResourceManager, two ranks, no store"));
  {
    SimConfig config = engine_config("engine-small-pool", "a pool for one or two requests, s3fifo");
    config.device_blocks = 9;
    config.cache.host_blocks = 12;
    config.cache.eviction_policy = "s3fifo";
    config.engine->manager.save_preempted = false;
    configs.push_back(config);
  }
  {
    SimConfig config = engine_config("engine-groups", "full and window groups, outputs not cached");
    config.cache.spec.groups = {full_group(), window_group(9)};
    config.cache.payload_bytes = {{32, 32}, {32, 32}};
    config.engine->manager.cache_outputs = false;
    with_store(config, "lru");
    configs.push_back(config);
  }
  {
    SimConfig config =
        engine_config("engine-store-faults", "a store that fails, hangs and damages");
    with_store(config, "lru");
    config.corruption = true;
    configs.push_back(config);
  }
  {
    SimConfig config = engine_config("engine-costs", "loads only what is worth it");
    with_store(config, "lru");
    with_costs(config);
    configs.push_back(config);
  }
  {
    SimConfig config = engine_config("engine-losses", "ranks die, with their device memory or not");
    with_store(config, "lru");
    config.losses = true;
    config.engine->device_loss = true;
    configs.push_back(config);
  }
  {
    SimConfig config = engine_config("engine-disk", "a disk that fails, hangs and damages");
    config.cache.host_blocks = 16;
    with_disk(config, WritePolicy::kWriteThrough, DiskSync::kNone);
    config.restarts = false;
    config.corruption = true;
    config.disk_faults = true;
    config.losses = true;
    configs.push_back(config);
  }
  {
    SimConfig config =
        engine_config("engine-pd", "prefill and decode instances that share a store");
    with_store(config, "lru");
    config.engine->hand_over = true;
    config.cache.host_blocks = 64;  // a quarter of them may wait for the store
    configs.push_back(config);
  }
}

std::vector<SimConfig> make_configs() {
  std::vector<SimConfig> configs;
  configs.push_back(base_config("single", "one rank, one group, lru, no store"));
  {
    SimConfig config = base_config("single-store", "one rank, one group, 8 blocks, s3fifo, store");
    with_store(config, "s3fifo");
    config.cache.host_blocks = 8;
    configs.push_back(config);
  }
  configs.push_back(pair_config("pair", "two ranks, full and window group, lru, no store"));
  {
    SimConfig config = pair_config("pair-store", "two ranks, two groups, s3fifo, store");
    with_store(config, "s3fifo");
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("pair-corrupt", "as pair-store, lru, bytes get damaged");
    with_store(config, "lru");
    config.corruption = true;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("pair-drops", "as pair-store, lru, answers get lost for ever");
    with_store(config, "lru");
    config.cache.host_blocks = 64;
    config.drops = true;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("pair-losses", "as pair-store, ranks die and come back");
    with_store(config, "s3fifo");
    config.losses = true;
    configs.push_back(config);
  }
  {
    SimConfig config = base_config("replicated", "three ranks with equal slices, lru, store");
    with_store(config, "lru");
    config.cache.payload_bytes = {{104, 104, 104}};
    config.cache.replicated_slices = true;
    configs.push_back(config);
  }
  {
    SimConfig config =
        pair_config("window-first", "window group first, another behind, selective writes, store");
    config.cache.spec.groups = {window_group(6), full_group(), window_group(13)};
    config.cache.payload_bytes = {{40, 40}, {88, 64}, {24, 200}};
    with_store(config, "lru");
    config.cache.device_to_host = WritePolicy::kWriteThroughSelective;
    config.cache.host_to_store = WritePolicy::kWriteThroughSelective;
    configs.push_back(config);
  }
  {
    SimConfig config = pair_config("narrow", "every queue and table as small as it may be");
    with_store(config, "s3fifo");
    config.ops_in_flight_max = 24;
    config.cache.requests_max = 5;
    config.cache.jobs_in_flight_max = 6;
    config.cache.job_blocks_max = 2;
    config.cache.put_queue_max = 2;
    config.cache.prefetch_blocks_max = 3;
    config.cache.exists_blocks_max = 2;
    config.cache.existence_entries = 16;
    config.cache.completions_per_poll_max = 4;
    config.cache.why_requests = 2;
    config.cache.sweep_nodes_per_poll = 1;
    configs.push_back(config);
  }
  add_disk_configs(configs);
  add_engine_configs(configs);
  return configs;
}

const std::vector<SimConfig>& all_configs() {
  static const std::vector<SimConfig> configs = make_configs();
  return configs;
}

struct NamedProtection {
  std::string_view name;
  bool Protections::*on;
};
constexpr std::array kProtections = {
    NamedProtection{"quarantine", &Protections::quarantine},
    NamedProtection{"all_ranks", &Protections::all_ranks},
    NamedProtection{"load_holds", &Protections::load_holds},
    NamedProtection{"commit_gate", &Protections::commit_gate},
    NamedProtection{"publish_when_done", &Protections::publish_when_done},
    NamedProtection{"device_release", &Protections::device_release},
    NamedProtection{"deadlines", &Protections::deadlines},
    NamedProtection{"tail_first", &Protections::tail_first},
    NamedProtection{"put_bound", &Protections::put_bound},
    NamedProtection{"memory_loss", &Protections::memory_loss},
    NamedProtection{"disk_clear", &Protections::disk_clear}};

struct NamedDiskProtection {
  std::string_view name;
  bool RankDiskProtections::*on;
};
// The others make no difference that could be seen above a rank's disk, or only in races that are
// too rare here; tests/tier/disk has them all.
constexpr std::array kDiskProtections = {
    NamedDiskProtection{"disk_record_before_done", &RankDiskProtections::record_before_done},
    NamedDiskProtection{"disk_sync_payload", &RankDiskProtections::sync_payload},
    NamedDiskProtection{"disk_sync_record", &RankDiskProtections::sync_record},
    NamedDiskProtection{"disk_sync_clear", &RankDiskProtections::sync_clear},
    NamedDiskProtection{"disk_alternate_headers", &RankDiskProtections::alternate_headers},
    NamedDiskProtection{"disk_compare_with_record", &RankDiskProtections::compare_with_record}};

struct NamedEngineProtection {
  std::string_view name;
  bool EngineProtections::*on;
};
constexpr std::array kEngineProtections = {
    NamedEngineProtection{"engine_computed_only", &EngineProtections::computed_only},
    NamedEngineProtection{"engine_newest_token", &EngineProtections::newest_token},
    NamedEngineProtection{"engine_late_loads", &EngineProtections::late_loads},
    NamedEngineProtection{"engine_leaving", &EngineProtections::leaving},
    NamedEngineProtection{"engine_own_weights", &EngineProtections::own_weights},
    NamedEngineProtection{"engine_device_loss", &EngineProtections::device_loss}};

}  // namespace

std::span<const SimConfig> sim_configs() { return all_configs(); }

const SimConfig* find_sim_config(std::string_view name) {
  const auto found = std::find_if(all_configs().begin(), all_configs().end(),
                                  [&](const SimConfig& config) { return config.name == name; });
  return found == all_configs().end() ? nullptr : &*found;
}

std::vector<std::string_view> sabotage_names() {
  std::vector<std::string_view> names = {"verify"};
  for (const NamedProtection& protection : kProtections) names.push_back(protection.name);
  for (const NamedDiskProtection& protection : kDiskProtections) names.push_back(protection.name);
  for (const NamedEngineProtection& protection : kEngineProtections) {
    names.push_back(protection.name);
  }
  return names;
}

std::optional<Sabotage> sabotage_of(std::string_view name) {
  Sabotage sabotage;
  if (name == "verify") {
    sabotage.verify = false;
    return sabotage;
  }
  for (const NamedProtection& protection : kProtections) {
    if (protection.name != name) continue;
    sabotage.protections.*protection.on = false;
    return sabotage;
  }
  for (const NamedDiskProtection& protection : kDiskProtections) {
    if (protection.name != name) continue;
    sabotage.disk.*protection.on = false;
    return sabotage;
  }
  for (const NamedEngineProtection& protection : kEngineProtections) {
    if (protection.name != name) continue;
    sabotage.engine.*protection.on = false;
    return sabotage;
  }
  return std::nullopt;
}

std::string faulty_store_url(const SimConfig& config, uint64_t seed) {
  std::string url = "faulty+memory:pool?fault_seed=" + std::to_string(seed >> 1) +
                    "&fault_delay=0.3&fault_delay_min=1ms&fault_delay_max=400ms"
                    "&fault_lost_answer=0.05&fault_error=0.05&fault_no_space=0.05";
  if (config.drops) url += "&fault_drop=0.02";
  if (config.corruption) url += "&fault_corrupt=0.3&fault_truncate=0.3";
  return url;
}

}  // namespace tiercel::sim
