// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <algorithm>

#include <fmt/core.h>

#include "tiercel/local_cache.h"

#include "cache/host_geometry.h"
#include "model.h"
#include "oracle.h"
#include "sim_device.h"
#include "store/registry.h"
#include "switch_store.h"
#include "transfer/rank_worker.h"
#include "transfer/simulated_data_plane.h"
#include "watched_plane.h"

namespace tiercel::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Virtual time after which whatever is in flight must have ended: longer than every fault, deadline
// and hold.
constexpr int kCalmStepsMax = 4000;
constexpr Duration kCalmStep = milliseconds(25);
// How long a rank that has died stays away.
constexpr Duration kDownMax = milliseconds(500);
// Between two settled points of a long move of the clock.
constexpr int kFineStepsMax = 60;

template <typename T>
T must(Result<T> result) {
  if (!result) fail("setup", result.error().to_string());
  return *std::move(result);
}

Duration random_duration(Random& random, uint64_t low_us, uint64_t high_us) {
  return microseconds(static_cast<int64_t>(random.between(low_us, high_us)));
}

}  // namespace

struct Driver::World {
  World(const SimConfig& config, const Sabotage& sabotage, uint64_t seed, bool faultless,
        Coverage& coverage)
      : registry(make_store_registry()),
        device(config.cache.payload_bytes, config.device_blocks, config.cache.replicated_slices),
        model(config) {
    const SlotGeometry geometry = must(host_geometry(config.cache));
    std::vector<std::unique_ptr<RankWorker>> workers;
    const uint32_t rank_count = geometry.rank_count();
    host_memory.reserve(rank_count);
    copiers.reserve(rank_count);
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
      host_memory.emplace_back(geometry.tier_bytes(rank));
      copiers.push_back(must(ContiguousCopier::create(device.memory_of(rank))));
      workers.push_back(make_worker(config, sabotage, rank, seed));
    }
    plane = must(SimulatedDataPlane::create(std::move(workers), clock, seed, SimulatedFaults{},
                                            config.ops_in_flight_max));
    watched = std::make_unique<WatchedPlane>(
        *plane, config.ops_in_flight_max, config.cache.spec.block_tokens, !sabotage.promises_only);
    cache = must(CacheFactory::create(sabotage.protections, config.cache, *watched, clock));
    engine = std::make_unique<ToyEngine>(config, *cache, device, model, clock, coverage, faultless);
  }

  std::unique_ptr<RankWorker> make_worker(const SimConfig& config, const Sabotage& sabotage,
                                          uint32_t rank, uint64_t seed) {
    const SlotGeometry geometry = must(host_geometry(config.cache));
    RankWorkerOptions options;
    options.rank = rank;
    options.slice =
        config.cache.replicated_slices
            ? Slice::all()
            : Slice{static_cast<uint16_t>(rank), static_cast<uint16_t>(geometry.rank_count())};
    options.name_space = must(make_namespace(config.cache.spec));
    options.verify = sabotage.verify;
    options.store_batch_max = 4;
    std::unique_ptr<Store> store;
    if (config.cache.with_store) {
      store = std::make_unique<SwitchStore>(
          must(registry->open("memory:pool", StoreContext{clock})),
          must(registry->open(faulty_store_url(config, mix(seed + rank)), StoreContext{clock})),
          store_switch);
    }
    std::vector<std::byte>& memory = host_memory[config.cache.replicated_slices ? 0 : rank];
    return must(
        RankWorker::create(options, geometry, memory, &copiers[rank], std::move(store), clock));
  }

  // In this order: each uses what stands before it.
  ManualClock clock;
  std::shared_ptr<StoreRegistry> registry;
  SwitchState store_switch;
  std::vector<std::vector<std::byte>> host_memory;  // [rank]
  SimDevice device;
  std::vector<ContiguousCopier> copiers;  // [rank]
  std::unique_ptr<SimulatedDataPlane> plane;
  std::unique_ptr<WatchedPlane> watched;
  Model model;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<ToyEngine> engine;
};

Driver::Driver(const SimConfig& config, const Sabotage& sabotage, uint64_t episode_seed)
    : config_(config),
      sabotage_(sabotage),
      seed_(episode_seed),
      faultless_(mix(episode_seed) % 8 == 0 && !config.corruption),
      world_(std::make_unique<World>(config, sabotage, episode_seed, faultless_, coverage_)) {
  if (faultless_) ++coverage_["episodes.faultless"];
  if (!config.cache.with_store || mix(episode_seed + 1) % 4 == 0) return;
  Random random(mix(episode_seed + 2));
  world_->engine->warm_up(random, [&] { settle(); });
}

Driver::~Driver() = default;

void Driver::set_trace(std::function<void(const std::string&)> trace) {
  trace_ = std::move(trace);
  world_->engine->trace = trace_;
}

void Driver::note(const std::string& what) {
  if (trace_) trace_(what);
}

void Driver::step(uint64_t number) {
  if (number == 0 && trace_) note(faultless_ ? "an episode without faults" : "an episode");
  Random random(mix(seed_ ^ mix(number + 1)));
  ToyEngine& engine = *world_->engine;
  const uint64_t choice = random.below(1000);
  if (choice < 360) {
    engine.advance(random);
  } else if (choice < 460) {
    engine.start(random);
  } else if (choice < 490) {
    engine.end_one(random);
  } else if (choice < 700) {
    engine.poll(random.chance(0.3) ? random.between(0, 2) : 64);
  } else if (choice < 910) {
    move_clock(random);
  } else if (choice < 940) {
    engine.probe(random);
  } else if (choice < 960) {
    engine.bad_call(random);
  } else if (choice < 975) {
    pick_faults(random);
  } else if (choice < 990) {
    world_->store_switch.faulty = !faultless_ && !world_->store_switch.faulty;
    note(world_->store_switch.faulty ? "the store is faulty" : "the store is sound");
  } else if (choice < (config_.cache.with_store ? 996 : 992)) {
    if (!faultless_) engine.clear();
  } else if (config_.losses) {
    if (!faultless_) lose_rank(random);
  }
  check();
}

void Driver::pick_faults(Random& random) {
  SimulatedFaults faults;
  const double choice = random.real();
  if (faultless_ || choice < 0.3) {
    note("faults: none");
  } else {
    faults.slow_max = milliseconds(3000);
    faults.stall_max = milliseconds(800);
    if (choice < 0.6) {
      faults.slow = 0.1;
      faults.late_completion = 0.1;
      faults.fail = 0.05;
      faults.fail_after_run = 0.05;
      faults.stall = 0.02;
      note("faults: all kinds");
    } else if (choice < 0.8) {
      faults.slow = 0.4;
      faults.delay_max = milliseconds(50);
      note("faults: slow");
    } else {
      faults.late_completion = 0.4;
      faults.fail_after_run = 0.1;
      note("faults: late completions");
    }
    if (config_.corruption) faults.corrupt_slot = 0.1;
  }
  world_->plane->set_faults(faults);
}

void Driver::lose_rank(Random& random) {
  World& world = *world_;
  const auto rank = static_cast<uint32_t>(random.below(world.host_memory.size()));
  const Duration down = random.chance(0.5)
                            ? Duration(0)
                            : Duration(static_cast<int64_t>(random.below(kDownMax.count())));
  note(fmt::format("rank {} dies", rank));
  world.plane->replace_rank(rank, world.make_worker(config_, sabotage_, rank, random.next()),
                            world.clock.now() + down);
  world.engine->memory_lost();
}

void Driver::move_clock(Random& random) {
  const double choice = random.real();
  if (faultless_) {
    advance_clock(random_duration(random, 10, 8'000), true);
  } else if (choice < 0.6) {
    advance_clock(random_duration(random, 10, 3'000), random.chance(0.7));
  } else if (choice < 0.9) {
    advance_clock(random_duration(random, 3'000, 60'000), random.chance(0.7));
  } else if (choice < 0.98) {
    advance_clock(random_duration(random, 60'000, 1'500'000), random.chance(0.5));
  } else {
    advance_clock(random_duration(random, 1'500'000, 8'000'000), random.chance(0.5));
  }
}

void Driver::advance_clock(Duration by, bool finely) {
  const TimePoint target = world_->clock.now() + by;
  if (finely) {
    for (int i = 0; i < kFineStepsMax; ++i) {
      const TimePoint due = world_->plane->next_due();
      if (due >= target) break;
      world_->clock.set(due);
      world_->plane->run_due();
    }
  }
  world_->clock.set(target);
  world_->plane->run_due();
  if (trace_) {
    note(fmt::format(
        "clock at {} us",
        std::chrono::duration_cast<microseconds>(world_->clock.now().time_since_epoch()).count()));
  }
}

void Driver::check() {
  World& world = *world_;
  world.model.check_stats(*world.cache, *world.watched);
  world.engine->check();
  if (!sabotage_.promises_only) {
    if (std::string wrong = world.cache->check(false); !wrong.empty()) fail("check", wrong);
  }
  if (!faultless_) return;
  const CacheStats& stats = world.model.stats();
  if (stats.load_failed + stats.save_failed + stats.get_failed + stats.put_failed +
          stats.exists_failed + stats.stale_completions >
      0) {
    fail("faultless", "nothing fails in this run, but a failure was counted");
  }
  // From a store come blocks whose parents the engine has itself, or may fetch later.
  if (world.watched->open() == 0 && !config_.cache.with_store) {
    world.model.check_closure(*world.cache, world.engine->known_paths());
  }
}

void Driver::settle() {
  for (int i = 0; i < kCalmStepsMax; ++i) {
    advance_clock(kCalmStep, true);
    world_->engine->poll(64);
    check();
    if (world_->cache->idle() && world_->watched->open() == 0) return;
    const bool lost = world_->store_switch.outstanding > 0 && config_.drops;
    if (lost && i > kCalmStepsMax / 8) return;
  }
  fail("calm", fmt::format("something never ends: {} operations in flight; {}",
                           world_->watched->open(), world_->cache->check(true)));
}

void Driver::finish() {
  World& world = *world_;
  note("the storm is over");
  world.plane->set_faults(SimulatedFaults{});
  world.store_switch.faulty = false;
  // Ranks that are down come up.
  if (config_.losses) advance_clock(kDownMax, true);
  world.engine->end_all();
  settle();
  world.engine->poll(64);
  world.engine->check_quiet();
  if (world.store_switch.outstanding > 0) {
    lose_answers();
    return;
  }
  if (std::string wrong = world.cache->check(true); !wrong.empty()) fail("calm", wrong);
  world.engine->serve_normally([&] { settle(); });
  settle();
  world.engine->check_quiet();
  if (std::string wrong = world.cache->check(true); !wrong.empty()) fail("calm", wrong);
  close_down();
}

void Driver::lose_answers() {
  // What the store never answered for keeps its slots, and nothing else does.
  World& world = *world_;
  const CacheStats stats = world.cache->stats();
  const uint64_t gets = world.watched->open_of(OpKind::kStoreGet);
  const uint64_t puts = world.watched->open_of(OpKind::kStorePut);
  const uint64_t asked = world.watched->open_of(OpKind::kStoreExists);
  if (gets + puts + asked != world.watched->open()) {
    fail("calm", "a load or save has not ended, though only the store loses answers");
  }
  if (stats.host_slots_quarantined < gets || stats.host_slots_quarantined > gets + puts) {
    fail("calm", fmt::format("{} slots are in quarantine; {} gets and {} puts were never answered",
                             stats.host_slots_quarantined, gets, puts));
  }
  ++coverage_["episodes.answers_lost"];
  static_cast<void>(world.plane->close(world.clock.now() + milliseconds(10)).has_value());
  world.engine->poll(64);
  world.engine->poll(64);
  if (world.watched->open() != 0) fail("calm", "close has not ended every operation");
  if (std::string wrong = world.cache->check(true); !wrong.empty()) fail("calm", wrong);
}

void Driver::close_down() {
  World& world = *world_;
  const std::vector<std::vector<BlockKey>> paths = world.engine->known_paths();
  world.cache->close(world.clock.now() + milliseconds(100));
  const RequestId id(UINT64_MAX);
  for (const std::vector<BlockKey>& path : paths) {
    if (world.cache->match(path, 0).possible_blocks != 0) fail("close", "a closed cache matches");
  }
  const std::vector<DeviceBlockId> blocks(config_.cache.spec.groups.size(), DeviceBlockId(0));
  const auto started = world.cache->load(id, paths.front(), 0, blocks, world.clock.now());
  const auto prefetched = world.cache->prefetch(id, paths.front(), 0, world.clock.now());
  if (!started || *started != 0 || !prefetched || *prefetched) {
    fail("close", "a closed cache starts work");
  }
  if (!world.cache->finish(id)) fail("close", "a closed cache forgets a request");
  settle();
  if (!world.cache->closed()) fail("close", "nothing is in flight, but the cache is not closed");
  if (std::string wrong = world.cache->check(true); !wrong.empty()) fail("close", wrong);
}

Coverage Driver::take_coverage() {
  const SimulatedCounts counts = world_->plane->counts();
  coverage_["fault.executed"] += counts.executed;
  coverage_["fault.slow"] += counts.slow;
  coverage_["fault.late_completion"] += counts.late_completions;
  coverage_["fault.fail"] += counts.failed;
  coverage_["fault.fail_after_run"] += counts.failed_after_run;
  coverage_["fault.corrupt_slot"] += counts.corrupted_slots;
  coverage_["fault.stall"] += counts.stalls;
  coverage_["fault.reordered"] += counts.reordered;
  coverage_["fault.replaced_rank"] += counts.replaced_ranks;
  const CacheStats stats = world_->cache->stats();
  for (const NamedCounter& counter : cache_counters()) {
    coverage_[std::string("stats.") + counter.name] += stats.*counter.value;
  }
  for (const Coverage& more : {world_->watched->answers(), world_->store_switch.codes}) {
    for (const auto& [what, times] : more) coverage_[what] += times;
  }
  return std::move(coverage_);
}

}  // namespace tiercel::sim
