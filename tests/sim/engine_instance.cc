// SPDX-License-Identifier: Apache-2.0
#include "engine_instance.h"

#include <algorithm>

#include <fmt/core.h>

#include "cache/host_geometry.h"
#include "oracle.h"
#include "transfer/rank_worker.h"

namespace tiercel::sim {
namespace {

template <typename T>
T must(Result<T> result) {
  if (!result) fail("setup", result.error().to_string());
  return *std::move(result);
}

void must_be_ok(const char* check, const Status& status) {
  if (!status) fail(check, status.error().to_string());
}

CacheConfig with_device(const SimConfig& config) {
  CacheConfig cache = config.cache;
  cache.device_blocks = config.device_blocks;
  return cache;
}

}  // namespace

Namespace namespace_of(const KvSpec& spec, uint64_t weights) {
  KvSpec other = spec;
  other.weights_revision = std::to_string(weights);
  return must(make_namespace(other));
}

EngineInstance::EngineInstance(const SimConfig& config, EngineRole role, const Sabotage& sabotage,
                               uint64_t seed, EngineWorld& world, Coverage& coverage)
    : config_(config),
      sabotage_(sabotage),
      world_(world),
      coverage_(coverage),
      cache_config_(with_device(config)),
      disks_(config, sabotage, world.clock) {
  const SlotGeometry geometry = must(host_geometry(cache_config_));
  const uint32_t ranks = geometry.rank_count();
  model_ = std::make_unique<AttentionModel>(cache_config_.spec, ranks, config.device_blocks);
  model_->sequences_end = true;
  std::vector<std::unique_ptr<RankWorker>> workers;
  copiers_.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ArenaOptions arena;
    arena.huge_pages = false;
    host_memory_.push_back(must(Arena::create(geometry.tier_bytes(rank), arena)));
    std::vector<ContiguousGroupMemory> memory;
    for (uint32_t group = 0; group < cache_config_.spec.groups.size(); ++group) {
      memory.push_back({model_->memory(rank, group), model_->payload_bytes()});
    }
    copiers_.push_back(must(ContiguousCopier::create(memory)));
    workers.push_back(make_worker(rank, seed));
  }
  plane_ = must(SimulatedDataPlane::create(std::move(workers), world.clock, seed, SimulatedFaults{},
                                           config.ops_in_flight_max));
  watched_ = std::make_unique<WatchedPlane>(
      *plane_, config.ops_in_flight_max, cache_config_.spec.block_tokens, !sabotage.promises_only);
  std::optional<DiskParts> disk_parts;
  if (disks_.exist()) disk_parts = disks_.read();
  cache_ = must(CacheFactory::create(sabotage.protections, cache_config_, *watched_, world.clock,
                                     disk_parts ? &*disk_parts : nullptr));
  prefix_ = must(EngineFactory::create_prefix_cache(sabotage.engine, cache_config_, *cache_));
  ResourceManagerConfig manager = config.engine->manager;
  manager.role = role;
  manager_ = must(EngineFactory::create_resource_manager(sabotage.engine, manager, *cache_,
                                                         *prefix_, world.clock));
}

EngineInstance::~EngineInstance() {
  // What still waits for a rank uses memory of ours.
  manager_.reset();
  prefix_.reset();
  cache_.reset();
  plane_.reset();
}

std::unique_ptr<RankWorker> EngineInstance::make_worker(uint32_t rank, uint64_t seed) {
  const SlotGeometry geometry = must(host_geometry(cache_config_));
  RankWorkerOptions options;
  options.rank = rank;
  options.slice = Slice{static_cast<uint16_t>(rank), static_cast<uint16_t>(geometry.rank_count())};
  options.name_space = must(make_namespace(cache_config_.spec));
  options.verify = sabotage_.verify;
  options.store_batch_max = 4;
  options.disk_puts_max = 4;
  std::unique_ptr<Store> store;
  if (cache_config_.with_store) {
    store = std::make_unique<SwitchStore>(
        must(world_.registry->open("memory:pool", StoreContext{world_.clock})),
        must(world_.registry->open(faulty_store_url(config_, mix(seed + rank)),
                                   StoreContext{world_.clock})),
        world_.store_switch);
  }
  return must(RankWorker::create(
      options, geometry, host_memory_[rank]->memory().first(geometry.tier_bytes(rank)),
      &copiers_[rank], std::move(store), world_.clock, disks_.open(rank, mix(seed ^ mix(rank)))));
}

void EngineInstance::begin_life(const EngineRequest& request) {
  must_be_ok("add", manager_->add(request));
  model_->add(request);
  living_.push_back(request.id);
  seen_.erase(request.id);
}

void EngineInstance::begin_step() {
  const Batch& batch = manager_->schedule();
  check_deadlines();
  for (const RequestId id : batch.preempted) {
    ++coverage_["engine.preempted"];
    note(fmt::format("request {} is preempted", id.value()));
  }
  if (batch.requests.empty()) {
    // Those who were preempted begin anew, whatever the model remembers of them.
    if (std::string wrong = model_->run(batch, world_.weights, &results_); !wrong.empty()) {
      fail("attention", wrong);
    }
    return;
  }
  is_open_ = true;
  ++coverage_["engine.steps"];
  for (const ScheduledRequest& scheduled : batch.requests) {
    note(fmt::format("  request {} runs tokens {} to {}{}", scheduled.id.value(),
                     scheduled.first_token, scheduled.first_token + scheduled.tokens.size(),
                     scheduled.samples ? ", samples" : ""));
  }
  check_transfers(batch);
  if (std::string wrong = model_->run(batch, world_.weights, &results_); !wrong.empty()) {
    fail("attention", wrong);
  }
}

void EngineInstance::check_transfers(const Batch& batch) const {
  const uint32_t block_tokens = cache_config_.spec.block_tokens;
  for (const ScheduledRequest& scheduled : batch.requests) {
    for (uint8_t group = 0; group < cache_config_.spec.groups.size(); ++group) {
      const auto blocks = scheduled.block_table.group(group);
      const uint64_t end = scheduled.first_token + scheduled.tokens.size();
      for (uint64_t at = 0; at * block_tokens < end; ++at) {
        const bool is_written = (at + 1) * block_tokens > scheduled.first_token;
        if (watched_->writes_device(GroupId(group), blocks[at]) ||
            (is_written && watched_->reads_device(GroupId(group), blocks[at]))) {
          fail("device", fmt::format("request {} uses device block {} while a transfer does",
                                     scheduled.id.value(), blocks[at].value()));
        }
      }
    }
  }
}

void EngineInstance::check_deadlines() {
  const ResourceManagerConfig& manager = config_.engine->manager;
  const TimePoint now = world_.clock.now();
  for (const RequestId id : living_) {
    const auto state = manager_->state(id);
    if (!state) continue;
    ++coverage_["engine.state." + std::string(to_string(*state))];
    Seen& seen = seen_[id];
    if (seen.state != *state) seen = {*state, now};
    const Duration longest = *state == RequestState::kLoading       ? manager.load_deadline
                             : *state == RequestState::kPrefetching ? manager.prefetch_deadline
                                                                    : Duration::max();
    if (now - seen.since >= longest) {
      fail("deadline", fmt::format("request {} is {} for longer than its deadline", id.value(),
                                   to_string(*state)));
    }
  }
  std::erase_if(seen_, [&](const auto& entry) { return !manager_->state(entry.first); });
}

void EngineInstance::complete() {
  must_be_ok("complete", manager_->complete(manager_->schedule().step, results_));
  is_open_ = false;
}

void EngineInstance::complete_partly(Random& random) {
  std::erase_if(results_, [&](const StepResult&) { return random.chance(0.4); });
  ++coverage_["engine.lost_results"];
  note("some results are lost");
  complete();
}

void EngineInstance::fail_step() {
  ++coverage_["engine.failed_steps"];
  note("the step is lost");
  must_be_ok("complete", manager_->fail_step(manager_->schedule().step, false));
  is_open_ = false;
}

void EngineInstance::lose_rank(Random& random, bool device_too) {
  const auto rank = static_cast<uint32_t>(random.below(host_memory_.size()));
  note(fmt::format("rank {} dies{}", rank, device_too ? ", with its device memory" : ""));
  disks_.crash(rank, random);
  plane_->replace_rank(rank, make_worker(rank, random.next()), world_.clock.now());
  if (!device_too) return;
  ++coverage_["engine.device_lost"];
  seen_.clear();  // whoever was loading begins anew
  must_be_ok("complete", manager_->fail_step(is_open_ ? manager_->schedule().step : 0, true));
  is_open_ = false;
  model_->lose_memory(rank);
}

void EngineInstance::change_weights() {
  seen_.clear();  // whoever waited for something waits anew
  manager_->weights_changed(namespace_of(cache_config_.spec, world_.weights));
}

void EngineInstance::check() {
  if (disks_.exist()) disks_.check_bounds();
  if (std::string wrong = manager_->check(); !wrong.empty()) fail("manager", wrong);
  if (sabotage_.promises_only) return;
  if (std::string wrong = prefix_->check(); !wrong.empty()) fail("prefix", wrong);
  if (std::string wrong = cache_->check(false, prefix_->hold_count()); !wrong.empty()) {
    fail("check", wrong);
  }
}

bool EngineInstance::is_calm() const {
  return manager_->idle() && cache_->idle() && watched_->open() == 0;
}

void EngineInstance::check_quiet() {
  if (prefix_->stats().referenced_blocks != 0 || prefix_->leaving_blocks() != 0) {
    fail("leak",
         fmt::format("{} device blocks are still in use", prefix_->stats().referenced_blocks));
  }
  if (std::string wrong = cache_->check(true, prefix_->hold_count()); !wrong.empty()) {
    fail("calm", wrong);
  }
}

void EngineInstance::count(Coverage& coverage) const {
  const ResourceManagerStats stats = manager_->stats();
  coverage["manager.device_hit_tokens"] += stats.device_hit_tokens;
  coverage["manager.loaded_tokens"] += stats.loaded_tokens;
  coverage["manager.loads_short"] += stats.loads_short;
  coverage["manager.prefetches"] += stats.prefetches;
  coverage["manager.prefetches_late"] += stats.prefetches_late;
  coverage["manager.shared_waits"] += stats.shared_waits;
  coverage["manager.computed_waits"] += stats.computed_waits;
  coverage["manager.computed_waits_vain"] += stats.computed_waits_vain;
  coverage["manager.blocks_parted"] += stats.blocks_parted;
  coverage["manager.lost_tokens"] += stats.lost_tokens;
  coverage["manager.finished"] += stats.finished;
  coverage["manager.aborted"] += stats.aborted;
  for (const auto& [what, times] : watched_->answers()) coverage[what] += times;
}

}  // namespace tiercel::sim
