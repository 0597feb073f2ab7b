// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <algorithm>
#include <optional>

#include <fmt/core.h>

#include "tiercel/local_cache.h"

#include "base/arena.h"
#include "cache/host_geometry.h"
#include "disk_promises.h"
#include "model.h"
#include "oracle.h"
#include "rank_faults.h"
#include "sim_device.h"
#include "sim_disks.h"
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
// Closing a process: how often it is looked at, and until when.
constexpr Duration kCloseStep = milliseconds(5);
constexpr int kCloseStepsMax = 200;
constexpr int kSyncStepsMax =
    static_cast<int>((2 * kDiskSyncInterval + kDiskBackoffMax) / kCalmStep) + 4;
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

// What dies together: the engine, its device, the cache and the ranks.
struct Driver::Process {
  Process(const SimConfig& config, const Sabotage& sabotage, uint64_t seed, bool faultless,
          World& world, const DiskParts* disk_parts, Coverage& coverage);

  ~Process() {
    // What still waits for a rank uses memory of ours.
    cache.reset();
    plane.reset();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  std::unique_ptr<RankWorker> make_worker(const SimConfig& config, const Sabotage& sabotage,
                                          World& world, uint32_t rank, uint64_t seed);

  // In this order: each uses what stands before it.
  std::vector<std::unique_ptr<Arena>> host_memory;  // [rank]
  SimDevice device;
  std::vector<ContiguousCopier> copiers;  // [rank]
  std::unique_ptr<SimulatedDataPlane> plane;
  std::unique_ptr<WatchedPlane> watched;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<ToyEngine> engine;
};

// The machine, and what stays when a process ends.
struct Driver::World {
  World(const SimConfig& config, const Sabotage& sabotage)
      : registry(make_store_registry()),
        disks(config, sabotage, clock),
        model(config),
        promises(config, disks, model, !sabotage.promises_only) {}

  ManualClock clock;
  std::shared_ptr<StoreRegistry> registry;
  SwitchState store_switch;
  SimDisks disks;
  Model model;
  DiskPromises promises;
  std::unique_ptr<Process> process;
};

Driver::Process::Process(const SimConfig& config, const Sabotage& sabotage, uint64_t seed,
                         bool faultless, World& world, const DiskParts* disk_parts,
                         Coverage& coverage)
    : device(config.cache.payload_bytes, config.device_blocks, config.cache.replicated_slices,
             world.model.weights()) {
  const SlotGeometry geometry = must(host_geometry(config.cache));
  std::vector<std::unique_ptr<RankWorker>> workers;
  const uint32_t rank_count = geometry.rank_count();
  copiers.reserve(rank_count);
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    ArenaOptions arena;
    arena.huge_pages = false;
    host_memory.push_back(must(Arena::create(geometry.tier_bytes(rank), arena)));
    copiers.push_back(must(ContiguousCopier::create(device.memory_of(rank))));
    workers.push_back(make_worker(config, sabotage, world, rank, seed));
  }
  plane = must(SimulatedDataPlane::create(std::move(workers), world.clock, seed, SimulatedFaults{},
                                          config.ops_in_flight_max));
  watched = std::make_unique<WatchedPlane>(*plane, config.ops_in_flight_max,
                                           config.cache.spec.block_tokens, !sabotage.promises_only);
  cache = must(
      CacheFactory::create(sabotage.protections, config.cache, *watched, world.clock, disk_parts));
  engine = std::make_unique<ToyEngine>(config, *cache, device, world.model, world.clock, coverage,
                                       faultless);
}

std::unique_ptr<RankWorker> Driver::Process::make_worker(const SimConfig& config,
                                                         const Sabotage& sabotage, World& world,
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
  options.disk_puts_max = 4;
  std::unique_ptr<Store> store;
  if (config.cache.with_store) {
    store = std::make_unique<SwitchStore>(
        must(world.registry->open("memory:pool", StoreContext{world.clock})),
        must(world.registry->open(faulty_store_url(config, mix(seed + rank)),
                                  StoreContext{world.clock})),
        world.store_switch);
  }
  Arena& memory = *host_memory[config.cache.replicated_slices ? 0 : rank];
  return must(RankWorker::create(
      options, geometry, memory.memory().first(geometry.tier_bytes(rank)), &copiers[rank],
      std::move(store), world.clock, world.disks.open(rank, mix(seed ^ mix(rank)))));
}

Driver::Driver(const SimConfig& config, const Sabotage& sabotage, uint64_t episode_seed)
    : config_(config),
      sabotage_(sabotage),
      seed_(episode_seed),
      // Where loads are chosen by their cost, patience with them ends before what is merely slow.
      faultless_(mix(episode_seed) % 8 == 0 && !config.corruption &&
                 !config.cache.load_or_recompute.enabled),
      world_(std::make_unique<World>(config, sabotage)) {
  if (faultless_) ++coverage_["episodes.faultless"];
  const bool has_disks = world_->disks.exist();
  std::optional<DiskParts> parts;
  if (has_disks) parts = world_->disks.read();
  world_->process = std::make_unique<Process>(config_, sabotage_, seed_, faultless_, *world_,
                                              has_disks ? &*parts : nullptr, coverage_);
  if (!config.cache.with_store || mix(episode_seed + 1) % 4 == 0) return;
  Random random(mix(episode_seed + 2));
  world_->process->engine->warm_up(random, [&] { settle(); });
}

Driver::~Driver() = default;

void Driver::set_trace(std::function<void(const std::string&)> trace) {
  trace_ = std::move(trace);
  world_->process->engine->trace = trace_;
}

void Driver::note(const std::string& what) {
  if (trace_) trace_(what);
}

void Driver::step(uint64_t number) {
  if (number == 0 && trace_) note(faultless_ ? "an episode without faults" : "an episode");
  Random random(mix(seed_ ^ mix(number + 1)));
  ToyEngine& engine = *world_->process->engine;
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
    if (config_.disk_faults && (!config_.cache.with_store || random.chance(0.5))) {
      pick_disk_faults(random);
    } else {
      world_->store_switch.faulty = !faultless_ && !world_->store_switch.faulty;
      note(world_->store_switch.faulty ? "the store is faulty" : "the store is sound");
    }
  } else if (choice < (config_.cache.with_store ? 996 : 992)) {
    if (!faultless_) clear(random);
  } else if (config_.losses && (!config_.restarts || random.chance(0.5))) {
    if (!faultless_) lose_rank(random);
  } else if (config_.restarts) {
    restart(random);
  }
  check();
}

void Driver::pick_faults(Random& random) {
  const RankFaults picked = pick_rank_faults(random, faultless_,
                                             {.slow_max = milliseconds(3000),
                                              .stall_max = milliseconds(800),
                                              .slow = 0.4,
                                              .delay_max = milliseconds(50),
                                              .corruption = config_.corruption});
  note(std::string(picked.note));
  faults_ = picked.faults;
  world_->process->plane->set_faults(faults_);
}

void Driver::pick_disk_faults(Random& random) {
  if (!faultless_) note("disk faults: " + world_->disks.pick_faults(random));
}

void Driver::clear(Random& random) {
  world_->process->engine->clear(random);
  world_->promises.cleared();
}

void Driver::lose_rank(Random& random) {
  World& world = *world_;
  Process& process = *world.process;
  const auto rank = static_cast<uint32_t>(random.below(process.host_memory.size()));
  const Duration down = random.chance(0.5)
                            ? Duration(0)
                            : Duration(static_cast<int64_t>(random.below(kDownMax.count())));
  note(fmt::format("rank {} dies", rank));
  world.disks.crash(rank, random);
  process.plane->replace_rank(rank,
                              process.make_worker(config_, sabotage_, world, rank, random.next()),
                              world.clock.now() + down);
  process.engine->memory_lost();
}

void Driver::restart(Random& random) {
  const double choice = faultless_ ? 0 : random.real();
  if (choice >= 0.35) return begin_anew(random, choice < 0.65 ? Ending::kCrash : Ending::kPowerCut);
  if (close_process(random)) return begin_anew(random, Ending::kClosed);
  ++coverage_["restart.close_gave_up"];
  begin_anew(random, Ending::kCrash);
}

bool Driver::close_process(Random& random) {
  Process& process = *world_->process;
  note("the process is being closed");
  if (random.chance(0.5)) process.engine->end_all();
  process.engine->cache_closes();
  is_closing_ = true;
  process.cache->close(world_->clock.now() + random_duration(random, 1, 500'000));
  while (!process.cache->closed()) {
    advance_clock(kCloseStep, true);
    process.engine->poll(64);
    check();
  }
  for (int i = 0; i < kCloseStepsMax; ++i) {
    const bool is_closed = process.plane->close(world_->clock.now()).has_value();
    process.engine->poll(64);
    check();
    if (is_closed) return true;
    advance_clock(kCloseStep, true);
  }
  return false;
}

void Driver::begin_anew(Random& random, Ending ending, bool power_may_go) {
  World& world = *world_;
  const bool is_closed = ending == Ending::kClosed;
  const bool power_goes = ending == Ending::kPowerCut ||
                          (is_closed && power_may_go && !faultless_ && random.chance(0.3));
  const char* what = power_goes ? (is_closed ? "closed_power_cut" : "power_cut")
                                : (is_closed ? "closed" : "crash");
  note(fmt::format("restart: {}", what));
  ++coverage_[std::string("restart.") + what];
  world.promises.process_ends(is_closed, power_goes);
  if (power_goes) {
    world.disks.power_cut(random);
  } else if (!is_closed) {
    world.disks.crash_all(random);
  }
  count_process();
  world.process.reset();
  world.model.restarted();
  is_closing_ = false;
  world.clock.set(world.clock.now() + random_duration(random, 1, 2'000'000));
  world.disks.make_anew_what_has_no_header();
  const DiskParts parts = world.disks.read();
  world.promises.check_found(parts, coverage_);
  ++process_number_;
  world.process = std::make_unique<Process>(config_, sabotage_, mix(seed_ + process_number_),
                                            faultless_, world, &parts, coverage_);
  Process& process = *world.process;
  process.engine->trace = trace_;
  process.plane->set_faults(faults_);
  world.promises.check_adopted(*process.cache, parts);
  // Whoever cleared and did not see the end of it does it again.
  if (world.promises.clear_is_owed()) process.cache->clear();
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
      const TimePoint due = world_->process->plane->next_due();
      if (due >= target) break;
      world_->clock.set(due);
      world_->process->plane->run_due();
    }
  }
  world_->clock.set(target);
  world_->process->plane->run_due();
  if (trace_) {
    note(fmt::format(
        "clock at {} us",
        std::chrono::duration_cast<microseconds>(world_->clock.now().time_since_epoch()).count()));
  }
}

void Driver::check() {
  World& world = *world_;
  Process& process = *world.process;
  world.model.check_stats(*process.cache, *process.watched);
  process.engine->check();
  world.promises.note(*process.cache);
  if (!sabotage_.promises_only) {
    if (std::string wrong = process.cache->check(false); !wrong.empty()) fail("check", wrong);
    world.disks.check_bounds();
  }
  if (!faultless_ || is_closing_) return;
  const CacheStats& stats = world.model.stats();
  if (stats.load_failed + stats.save_failed + stats.get_failed + stats.put_failed +
          stats.exists_failed + stats.disk_get_failed + stats.disk_put_failed +
          stats.stale_completions >
      0) {
    fail("faultless", "nothing fails in this run, but a failure was counted");
  }
  // From a store come blocks whose parents the engine has itself, or may fetch later.
  if (process.watched->open() == 0 && !config_.cache.with_store) {
    world.model.check_closure(*process.cache, process.engine->known_paths());
  }
}

void Driver::settle() {
  for (int i = 0; i < kCalmStepsMax; ++i) {
    advance_clock(kCalmStep, true);
    world_->process->engine->poll(64);
    check();
    if (world_->process->cache->idle() && world_->process->watched->open() == 0) return;
    const bool lost = world_->store_switch.outstanding > 0 && config_.drops;
    if (lost && i > kCalmStepsMax / 8) return;
  }
  std::string open;
  for (size_t kind = 0; kind < kOpKindCount; ++kind) {
    const auto op = static_cast<OpKind>(kind);
    const uint64_t count = world_->process->watched->open_of(op);
    if (count > 0) open += fmt::format("{}{} {}", open.empty() ? "" : ", ", count, to_string(op));
  }
  fail("calm",
       fmt::format("something never ends: in flight are {}; {}",
                   open.empty() ? "no operations" : open, world_->process->cache->check(true)));
}

void Driver::finish() {
  World& world = *world_;
  Process& process = *world.process;
  note("the storm is over");
  faults_ = {};
  process.plane->set_faults(faults_);
  world.store_switch.faulty = false;
  world.disks.heal();
  // Ranks that are down come up.
  if (config_.losses) advance_clock(kDownMax, true);
  process.engine->end_all();
  settle();
  process.engine->poll(64);
  process.engine->check_quiet();
  if (world.store_switch.outstanding > 0) {
    lose_answers();
    return;
  }
  if (std::string wrong = process.cache->check(true); !wrong.empty()) fail("calm", wrong);
  process.engine->serve_normally([&] { settle(); });
  settle();
  process.engine->check_quiet();
  if (std::string wrong = process.cache->check(true); !wrong.empty()) fail("calm", wrong);
  if (world.disks.exist()) check_synced();
  close_down();
  if (world.disks.exist()) check_reopened();
}

void Driver::check_synced() {
  World& world = *world_;
  if (config_.disk_sync == DiskSync::kInterval) {
    for (int i = 0; i < kSyncStepsMax; ++i) advance_clock(kCalmStep, true);
    if (!world.disks.is_all_durable()) {
      fail("synced", "all is calm, but something is still to be lost with the power");
    }
  }
  if (world.model.stats().disk_slots_quarantined != 0) {
    fail("calm", fmt::format("{} disk slots are in quarantine",
                             world.model.stats().disk_slots_quarantined));
  }
}

void Driver::check_reopened() {
  Random random(mix(seed_ + 3));
  if (!close_process(random)) fail("close", "nothing is in flight, but a disk does not close");
  begin_anew(random, Ending::kClosed, config_.disk_sync != DiskSync::kNone);
  const auto calm = [&] { settle(); };
  calm();
  world_->process->engine->load_again(calm);
  settle();
  if (std::string wrong = world_->process->cache->check(true); !wrong.empty()) fail("calm", wrong);
}

void Driver::lose_answers() {
  // What the store never answered for keeps its slots, and nothing else does.
  World& world = *world_;
  Process& process = *world.process;
  const CacheStats stats = process.cache->stats();
  const uint64_t gets = process.watched->open_of(OpKind::kStoreGet);
  const uint64_t puts = process.watched->open_of(OpKind::kStorePut);
  const uint64_t asked = process.watched->open_of(OpKind::kStoreExists);
  if (gets + puts + asked != process.watched->open()) {
    fail("calm", "a load or save has not ended, though only the store loses answers");
  }
  if (stats.host_slots_quarantined < gets || stats.host_slots_quarantined > gets + puts) {
    fail("calm", fmt::format("{} slots are in quarantine; {} gets and {} puts were never answered",
                             stats.host_slots_quarantined, gets, puts));
  }
  ++coverage_["episodes.answers_lost"];
  static_cast<void>(process.plane->close(world.clock.now() + milliseconds(10)).has_value());
  process.engine->poll(64);
  process.engine->poll(64);
  if (process.watched->open() != 0) fail("calm", "close has not ended every operation");
  if (std::string wrong = process.cache->check(true); !wrong.empty()) fail("calm", wrong);
}

void Driver::close_down() {
  World& world = *world_;
  Process& process = *world.process;
  const std::vector<std::vector<BlockKey>> paths = process.engine->known_paths();
  process.cache->close(world.clock.now() + milliseconds(100));
  const RequestId id(UINT64_MAX);
  for (const std::vector<BlockKey>& path : paths) {
    if (process.cache->match(path, 0).possible_blocks != 0) fail("close", "a closed cache matches");
  }
  const std::vector<DeviceBlockId> blocks(config_.cache.spec.groups.size(), DeviceBlockId(0));
  const auto started = process.cache->load(id, paths.front(), 0, blocks, world.clock.now());
  const auto prefetched = process.cache->prefetch(id, paths.front(), 0, world.clock.now());
  if (!started || *started != 0 || !prefetched || *prefetched) {
    fail("close", "a closed cache starts work");
  }
  if (!process.cache->finish(id)) fail("close", "a closed cache forgets a request");
  settle();
  if (!process.cache->closed()) fail("close", "nothing is in flight, but the cache is not closed");
  if (std::string wrong = process.cache->check(true); !wrong.empty()) fail("close", wrong);
}

void Driver::count_process() {
  const Process& process = *world_->process;
  const SimulatedCounts counts = process.plane->counts();
  coverage_["fault.executed"] += counts.executed;
  coverage_["fault.slow"] += counts.slow;
  coverage_["fault.late_completion"] += counts.late_completions;
  coverage_["fault.fail"] += counts.failed;
  coverage_["fault.fail_after_run"] += counts.failed_after_run;
  coverage_["fault.corrupt_slot"] += counts.corrupted_slots;
  coverage_["fault.stall"] += counts.stalls;
  coverage_["fault.reordered"] += counts.reordered;
  coverage_["fault.replaced_rank"] += counts.replaced_ranks;
  const CacheStats stats = process.cache->stats();
  for (const NamedCounter& counter : cache_counters()) {
    coverage_[std::string("stats.") + counter.name] += stats.*counter.value;
  }
  coverage_["disk.breaker_opened"] += stats.disk.opened;
  for (const auto& [what, times] : process.watched->answers()) coverage_[what] += times;
}

Coverage Driver::take_coverage() {
  count_process();
  world_->process.reset();
  for (const Coverage& more : {world_->store_switch.codes, world_->disks.met()}) {
    for (const auto& [what, times] : more) coverage_[what] += times;
  }
  return std::move(coverage_);
}

}  // namespace tiercel::sim
