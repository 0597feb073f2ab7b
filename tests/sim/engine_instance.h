// SPDX-License-Identifier: Apache-2.0
//
// EngineInstance: one engine of the simulation: ResourceManager, PrefixCache and Cache over
// simulated ranks, and the AttentionModel in place of a language model. What it does is checked as
// it does it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "engine/prefix_cache.h"
#include "engine/resource_manager.h"
#include "failure.h"
#include "sim_config.h"
#include "sim_disks.h"
#include "store/registry.h"
#include "support/attention_model.h"
#include "switch_store.h"
#include "transfer/device_copier.h"
#include "transfer/simulated_data_plane.h"
#include "watched_plane.h"

namespace tiercel::sim {

// What all instances of an episode share.
struct EngineWorld {
  ManualClock clock;
  std::shared_ptr<StoreRegistry> registry;
  SwitchState store_switch;
  uint64_t weights = 0;
};

class EngineInstance {
 public:
  // All borrowed.
  EngineInstance(const SimConfig& config, EngineRole role, const Sabotage& sabotage, uint64_t seed,
                 EngineWorld& world, Coverage& coverage);
  ~EngineInstance();

  // A request of this instance begins, or has ended.
  void begin_life(const EngineRequest& request);
  void end_life(RequestId id) { std::erase(living_, id); }
  const std::vector<RequestId>& living() const { return living_; }

  ResourceManager& manager() { return *manager_; }
  AttentionModel& model() { return *model_; }
  Cache& cache() { return *cache_; }
  PrefixCache& prefix() { return *prefix_; }
  SimulatedDataPlane& plane() { return *plane_; }
  WatchedPlane& watched() { return *watched_; }
  SimDisks& disks() { return disks_; }  // its own

  // Schedules, and if there is something to run runs it; the step stays open.
  void begin_step();
  // Ends the open step: as it was computed, without some results, or as lost.
  void complete();
  void complete_partly(Random& random);
  void fail_step();
  bool is_open() const { return is_open_; }
  // A rank dies, and with it its device memory if `device_too`.
  void lose_rank(Random& random, bool device_too);
  void change_weights();

  // Everything that must hold at any time.
  void check();
  // Nothing lives and nothing moves.
  bool is_calm() const;
  void check_quiet();
  void count(Coverage& coverage) const;

  std::function<void(const std::string&)> note = [](const std::string&) {};

 private:
  std::unique_ptr<RankWorker> make_worker(uint32_t rank, uint64_t seed);
  void check_transfers(const Batch& batch) const;
  void check_deadlines();

  const SimConfig& config_;
  const Sabotage& sabotage_;
  EngineWorld& world_;
  Coverage& coverage_;
  const CacheConfig cache_config_;

  // In this order: each uses what stands before it.
  SimDisks disks_;
  std::vector<std::unique_ptr<Arena>> host_memory_;  // [rank]
  std::unique_ptr<AttentionModel> model_;
  std::vector<ContiguousCopier> copiers_;  // [rank]
  std::unique_ptr<SimulatedDataPlane> plane_;
  std::unique_ptr<WatchedPlane> watched_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<PrefixCache> prefix_;
  std::unique_ptr<ResourceManager> manager_;

  bool is_open_ = false;
  std::vector<StepResult> results_;
  struct Seen {
    RequestState state = RequestState::kWaiting;
    TimePoint since;
  };
  std::map<RequestId, Seen> seen_;
  std::vector<RequestId> living_;
};

Namespace namespace_of(const KvSpec& spec, uint64_t weights);

}  // namespace tiercel::sim
