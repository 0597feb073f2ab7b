// SPDX-License-Identifier: Apache-2.0
#include "engine_driver.h"

#include <algorithm>

#include <fmt/core.h>

#include "tiercel/local_cache.h"

#include "oracle.h"
#include "rank_faults.h"

namespace tiercel::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kCalmStepsMax = 20000;
constexpr Duration kCalmStep = milliseconds(2);
// Between two settled points of a long move of the clock.
constexpr int kFineStepsMax = 60;
constexpr size_t kEndedMax = 8;
constexpr uint64_t kWeightsCount = 3;

Duration random_duration(Random& random, uint64_t low_us, uint64_t high_us) {
  return microseconds(static_cast<int64_t>(random.between(low_us, high_us)));
}

}  // namespace

EngineDriver::EngineDriver(const SimConfig& config, const Sabotage& sabotage, uint64_t episode_seed)
    : config_(config),
      sabotage_(sabotage),
      seed_(episode_seed),
      // What is given up because computing is quicker counts as a failure, too.
      faultless_(mix(episode_seed) % 8 == 0 && !config.corruption &&
                 !config.cache.load_or_recompute.enabled) {
  if (faultless_) ++coverage_["episodes.faultless"];
  world_.registry = make_store_registry();
  const std::vector<EngineRole> roles = config.engine->hand_over
                                            ? std::vector{EngineRole::kPrefill, EngineRole::kDecode}
                                            : std::vector{EngineRole::kMixed};
  for (const EngineRole role : roles) {
    instances_.push_back(std::make_unique<EngineInstance>(
        config_, role, sabotage_, mix(seed_ + instances_.size()), world_, coverage_));
    instances_.back()->change_weights();
  }
}

void EngineDriver::set_trace(std::function<void(const std::string&)> trace) {
  trace_ = std::move(trace);
  for (const auto& instance : instances_) instance->note = trace_;
}

void EngineDriver::note(const std::string& what) {
  if (trace_) trace_(what);
}

EngineInstance& EngineDriver::pick_instance(Random& random) {
  return *instances_[random.below(instances_.size())];
}

void EngineDriver::step(uint64_t number) {
  if (number == 0 && trace_) note(faultless_ ? "an episode without faults" : "an episode");
  Random random(mix(seed_ ^ mix(number + 1)));
  const uint64_t choice = random.below(1000);
  if (choice < 110) {
    add(random);
  } else if (choice < 135) {
    abort(random);
  } else if (choice < 640) {
    advance(random);
  } else if (choice < 920) {
    move_clock(random);
  } else if (choice < 940) {
    bad_call(random);
  } else if (choice < 960) {
    pick_faults(random);
  } else if (choice < 975) {
    world_.store_switch.faulty = !faultless_ && !world_.store_switch.faulty;
    note(world_.store_switch.faulty ? "the store is faulty" : "the store is sound");
  } else if (choice < 980) {
    change_weights(random);
  } else if (choice < 984) {
    note("clear");
    ++coverage_["engine.clear"];
    pick_instance(random).prefix().clear();
  } else if (choice < 990 && config_.losses && !faultless_) {
    pick_instance(random).lose_rank(random, config_.engine->device_loss && random.chance(0.5));
  }
  check();
}

EngineRequest EngineDriver::make_request(Random& random, RequestId id) const {
  const uint64_t pool_tokens = uint64_t{config_.device_blocks} * config_.cache.spec.block_tokens;
  const uint64_t longest = std::min(pool_tokens, config_.engine->manager.context_tokens_max - 1);
  EngineRequest request;
  if (!ended_.empty() && random.chance(0.3)) {  // another turn
    request = ended_[random.below(ended_.size())];
    request.prompt.insert(request.prompt.end(), request.outputs.begin(), request.outputs.end());
    request.outputs.clear();
    for (uint64_t i = random.between(1, 6); i > 0; --i) {
      request.prompt.push_back(static_cast<TokenId>(random.below(4)));
    }
    request.prompt.resize(std::min<uint64_t>(request.prompt.size(), longest));
    std::erase_if(request.items,
                  [&](const SequenceItem& item) { return item.end > request.prompt.size(); });
  } else {
    const uint64_t length = random.between(1, std::min<uint64_t>(longest, 48));
    // One of few beginnings, then one of few ways to go on at each block.
    TokenId way = static_cast<TokenId>(random.below(2));
    while (request.prompt.size() < length) {
      if (request.prompt.size() % config_.cache.spec.block_tokens == 0 && random.chance(0.15)) {
        way = static_cast<TokenId>(1 + way * 2 + random.below(2)) % 64;
      }
      request.prompt.push_back(way * 100 + static_cast<TokenId>(request.prompt.size()));
    }
    if (random.chance(0.2)) request.scope.tenant_salt = "tenant";
    if (random.chance(0.1)) {
      const uint64_t begin = random.below(length);
      request.items.push_back({"image", random.chance(0.5) ? "one" : "two", begin,
                               begin + 1 + random.below(length - begin)});
    }
  }
  request.id = id;
  request.output_tokens_max = static_cast<uint32_t>(random.between(1, 14));
  request.priority = static_cast<int32_t>(random.below(3));
  return request;
}

void EngineDriver::add(Random& random) {
  if (lives_.size() >= config_.lives_max) return;
  RequestId id(++last_id_);
  if (!ended_ids_.empty() && random.chance(0.3)) {
    id = ended_ids_[random.below(ended_ids_.size())];
    if (lives_.contains(id)) return;
    ++coverage_["engine.id_reused"];
  }
  Life life{make_request(random, id), 0, weights_changes_};
  start_life(std::move(life));
}

void EngineDriver::start_life(Life life) {
  EngineInstance& instance = *instances_[life.instance];
  const RequestId id = life.asked.id;
  note(fmt::format("request {} is added, {} tokens, {} outputs at most", id.value(),
                   life.asked.prompt.size(), life.asked.output_tokens_max));
  instance.begin_life(life.asked);
  lives_[id] = std::move(life);
}

void EngineDriver::end_life(RequestId id) {
  const auto life = lives_.find(id);
  instances_[life->second.instance]->end_life(id);
  lives_.erase(life);
  ended_ids_.push_back(id);
  if (ended_ids_.size() > kEndedMax) ended_ids_.erase(ended_ids_.begin());
}

void EngineDriver::abort(Random& random) {
  if (lives_.empty()) return;
  auto life = lives_.begin();
  std::advance(life, static_cast<ptrdiff_t>(random.below(lives_.size())));
  const RequestId id = life->first;
  EngineInstance& instance = *instances_[life->second.instance];
  const auto state = instance.manager().state(id);
  if (!state) fail("lifetime", fmt::format("request {} is gone", id.value()));
  ++coverage_["engine.aborted." + std::string(to_string(*state))];
  note(fmt::format("request {} is aborted, {}", id.value(), to_string(*state)));
  if (!instance.manager().abort(id)) fail("lifetime", "a living request cannot be aborted");
  if (instance.manager().state(id)) fail("lifetime", "an aborted request lives");
  end_life(id);
}

void EngineDriver::advance(Random& random) {
  EngineInstance& instance = pick_instance(random);
  if (!instance.is_open()) {
    instance.begin_step();
    take_finished(instance);         // of hand-overs
    if (random.chance(0.2)) return;  // others do something meanwhile
  }
  if (!instance.is_open()) return;
  const double choice = faultless_ ? 0 : random.real();
  if (choice < 0.9) {
    instance.complete();
  } else if (choice < 0.96) {
    instance.complete_partly(random);
  } else {
    instance.fail_step();
  }
  take_finished(instance);
}

void EngineDriver::take_finished(EngineInstance& instance) {
  while (auto finished = instance.manager().take_finished()) {
    const auto found = lives_.find(finished->id);
    if (found == lives_.end()) fail("lifetime", "a request ended that does not live");
    const Life life = found->second;
    note(
        fmt::format("request {} has ended: {}", finished->id.value(), to_string(finished->reason)));
    if (finished->reason == FinishReason::kHandedOver) {
      hand_over(life, *finished);
      continue;
    }
    ++coverage_["finished." + std::string(to_string(finished->reason))];
    if (finished->outputs.empty() || finished->outputs.size() > life.asked.output_tokens_max) {
      fail("outputs", fmt::format("request {} has {} output tokens", finished->id.value(),
                                  finished->outputs.size()));
    }
    if (life.weights_changes == weights_changes_) {
      const auto expected = AttentionModel::outputs_of(
          life.asked, world_.weights, static_cast<uint32_t>(finished->outputs.size()), true);
      if (finished->outputs != expected) {
        fail("outputs", fmt::format("request {} has other outputs than without a cache",
                                    finished->id.value()));
      }
    } else {
      ++coverage_["engine.lived_through_other_weights"];
    }
    instance.model().forget(finished->id);
    end_life(finished->id);
    ended_.push_back(life.asked);
    ended_.back().outputs = finished->outputs;
    if (ended_.size() > kEndedMax) ended_.erase(ended_.begin());
  }
}

void EngineDriver::hand_over(const Life& life, const FinishedRequest& finished) {
  const uint64_t prompt = life.asked.prompt.size();
  if (finished.stored_tokens > prompt || finished.outputs.size() != 1) {
    fail("outputs",
         fmt::format("request {} is handed over with {} tokens in the store, {} outputs",
                     finished.id.value(), finished.stored_tokens, finished.outputs.size()));
  }
  ++coverage_[finished.stored_tokens == prompt ? "finished.handed_over.whole"
                                               : "finished.handed_over.in_part"];
  instances_[life.instance]->model().forget(finished.id);
  Life next = life;
  end_life(finished.id);
  next.instance = 1;
  next.asked.outputs = finished.outputs;
  start_life(std::move(next));
}

void EngineDriver::bad_call(Random& random) {
  EngineInstance& instance = pick_instance(random);
  ResourceManager& manager = instance.manager();
  const ResourceManagerStats before = manager.stats();
  EngineRequest request = make_request(random, RequestId(UINT64_MAX));
  bool refused = false;
  switch (random.below(6)) {
    case 0:
      request.prompt.clear();
      refused = manager.add(request).code() == Code::kInvalid;
      break;
    case 1:
      request.prompt.resize(config_.engine->manager.context_tokens_max);
      refused = manager.add(request).code() == Code::kInvalid;
      break;
    case 2:
      if (instance.living().empty()) return;
      request.id = instance.living()[random.below(instance.living().size())];
      refused = manager.add(request).code() == Code::kInvalid;
      break;
    case 3:
      refused = manager.abort(RequestId(UINT64_MAX)).code() == Code::kNotFound;
      break;
    case 4:
      refused = manager.complete(UINT64_MAX, {}).code() == Code::kInvalid;
      break;
    default: {
      const StepResult nobody{RequestId(UINT64_MAX), 1, false};
      const uint64_t step = instance.is_open() ? manager.schedule().step : 0;
      refused = manager.complete(step, {&nobody, 1}).code() == Code::kInvalid;
      break;
    }
  }
  if (!refused) fail("lifetime", "a call that makes no sense was not refused");
  const ResourceManagerStats after = manager.stats();
  if (after.added != before.added || after.aborted != before.aborted) {
    fail("lifetime", "a refused call has done something");
  }
  ++coverage_["engine.bad_call"];
}

void EngineDriver::change_weights(Random& random) {
  world_.weights = random.below(kWeightsCount);
  ++weights_changes_;
  ++coverage_["engine.weights_changed"];
  note(fmt::format("other weights: {}", world_.weights));
  for (const auto& instance : instances_) instance->change_weights();
}

void EngineDriver::pick_faults(Random& random) {
  const RankFaults picked = pick_rank_faults(random, faultless_,
                                             {.slow_max = milliseconds(300),
                                              .stall_max = milliseconds(200),
                                              .slow = 0.5,
                                              .delay_max = milliseconds(20),
                                              .corruption = config_.corruption});
  note(std::string(picked.note));
  for (const auto& instance : instances_) {
    instance->plane().set_faults(picked.faults);
    if (faultless_ || !config_.disk_faults) continue;
    note("disk faults: " + instance->disks().pick_faults(random));
  }
}

void EngineDriver::move_clock(Random& random) {
  const double choice = random.real();
  if (faultless_) {
    advance_clock(random_duration(random, 10, 3'000), true);
  } else if (choice < 0.7) {
    advance_clock(random_duration(random, 10, 3'000), random.chance(0.7));
  } else if (choice < 0.97) {
    advance_clock(random_duration(random, 3'000, 60'000), random.chance(0.7));
  } else {
    advance_clock(random_duration(random, 60'000, 1'500'000), random.chance(0.5));
  }
}

void EngineDriver::advance_clock(Duration by, bool finely) {
  const TimePoint target = world_.clock.now() + by;
  const auto run_due = [&] {
    for (const auto& instance : instances_) instance->plane().run_due();
  };
  for (int i = 0; finely && i < kFineStepsMax; ++i) {
    TimePoint due = kNoDeadline;
    for (const auto& instance : instances_) due = std::min(due, instance->plane().next_due());
    if (due >= target) break;
    world_.clock.set(due);
    run_due();
  }
  world_.clock.set(target);
  run_due();
}

void EngineDriver::check() {
  for (const auto& instance : instances_) instance->check();
  if (!faultless_) return;
  for (const auto& instance : instances_) {
    const CacheStats stats = instance->cache().stats();
    if (stats.load_failed + stats.save_failed + stats.get_failed + stats.put_failed +
            stats.disk_get_failed + stats.disk_put_failed >
        0) {
      fail("faultless", "nothing fails in this run, but a failure was counted");
    }
  }
}

void EngineDriver::settle() {
  for (int i = 0; i < kCalmStepsMax; ++i) {
    bool is_calm = lives_.empty();
    for (const auto& instance : instances_) {
      if (!instance->is_open()) instance->begin_step();
      if (instance->is_open()) instance->complete();
      take_finished(*instance);
      is_calm = is_calm && instance->is_calm();
    }
    check();
    if (is_calm) return;
    advance_clock(kCalmStep, true);
  }
  std::string who;
  for (const auto& [id, life] : lives_) {
    const auto state = instances_[life.instance]->manager().state(id);
    who += fmt::format(" {} ({})", id.value(), state ? to_string(*state) : "gone");
  }
  fail("calm", fmt::format("something never ends; living are{}; {}", who,
                           instances_.front()->cache().check(true)));
}

void EngineDriver::finish() {
  note("the storm is over");
  for (const auto& instance : instances_) {
    instance->plane().set_faults(SimulatedFaults{});
    instance->disks().heal();
  }
  world_.store_switch.faulty = false;
  settle();
  for (const auto& instance : instances_) instance->check_quiet();
  // What is served now is served well, and what was computed is found.
  for (int turn = 0; turn < 2; ++turn) {
    EngineRequest request;
    request.id = RequestId(++last_id_);
    for (TokenId token = 0; token < 17; ++token) request.prompt.push_back(60'000 + token);
    start_life(Life{std::move(request), 0, weights_changes_});
    settle();
  }
  for (const auto& instance : instances_) instance->check_quiet();
}

Coverage EngineDriver::take_coverage() {
  for (const auto& instance : instances_) instance->count(coverage_);
  instances_.clear();
  for (const auto& [what, times] : world_.store_switch.codes) coverage_[what] += times;
  return std::move(coverage_);
}

}  // namespace tiercel::sim
