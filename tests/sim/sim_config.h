// SPDX-License-Identifier: Apache-2.0
//
// What a simulation runs: named configurations of a cache with tiny tiers, and which faults may be
// met in each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/cache.h"

#include "cache/protections.h"
#include "engine/engine_protections.h"
#include "tier/disk/rank_disk_protections.h"

namespace tiercel::sim {

// Of configurations that drive ResourceManager.
struct EngineSimConfig {
  ResourceManagerConfig manager;
  bool hand_over = false;    // a prefill and a decode instance that share a store
  bool device_loss = false;  // ranks may lose their device memory
};

struct SimConfig {
  std::string name;
  std::string about;
  CacheConfig cache;
  uint32_t device_blocks = 40;       // of the toy engine, per group
  uint32_t lives_max = 6;            // requests alive at once, as far as the engine is concerned
  uint32_t ops_in_flight_max = 256;  // of the simulated data plane
  bool corruption = false;           // bytes may be damaged on purpose: host slots and the store
  bool drops = false;                // answers of the store may never come
  bool losses = false;               // ranks may die and come back with empty host memory
  uint32_t disk_blocks = 0;          // of the disk tier, per group; 0: there is none
  uint32_t disk_extents = 4;         // per group
  DiskSync disk_sync = DiskSync::kNone;
  bool disk_faults = false;               // requests to a disk may fail, come short or hang
  std::optional<EngineSimConfig> engine;  // then device_blocks is the pool of ResourceManager
  bool restarts = false;  // the process may be closed or killed, and the power may be cut
};

// Of DiskSync::kInterval.
inline constexpr Duration kDiskSyncInterval = std::chrono::milliseconds(200);
// A disk that has failed is left alone for so long at most, also by syncs.
inline constexpr Duration kDiskBackoffMax = std::chrono::milliseconds(1000);

// What is switched off to prove that the simulation notices.
struct Sabotage {
  Protections protections;
  RankDiskProtections disk;
  EngineProtections engine;
  bool verify = true;  // RankWorkerOptions::verify
  // Only what an engine could see: neither what is asked of the data plane nor Cache::check.
  bool promises_only = false;
};

std::span<const SimConfig> sim_configs();
const SimConfig* find_sim_config(std::string_view name);

// "quarantine", "all_ranks", …, "verify"; nullopt for another name.
std::optional<Sabotage> sabotage_of(std::string_view protection);
std::vector<std::string_view> sabotage_names();

// The URL of the store that fails, under this configuration.
std::string faulty_store_url(const SimConfig& config, uint64_t seed);

}  // namespace tiercel::sim
