// SPDX-License-Identifier: Apache-2.0
#include "toy_engine.h"

#include <algorithm>

#include <fmt/core.h>

#include "cache/request_table.h"

namespace tiercel::sim {
namespace {

using std::chrono::milliseconds;

}  // namespace

ToyEngine::ToyEngine(const SimConfig& config, Cache& cache, SimDevice& device, Model& model,
                     ManualClock& clock, Coverage& coverage, bool faultless)
    : config_(config),
      cache_(cache),
      device_(device),
      model_(model),
      clock_(clock),
      coverage_(coverage),
      faultless_(faultless) {}

void ToyEngine::note(const std::string& what) {
  if (trace) trace(what);
}

std::vector<BlockKey> ToyEngine::keys_of(const std::string& path) {
  std::vector<BlockKey>& keys = model_.known_paths[path];
  if (!keys.empty()) return keys;
  Scope scope;
  if (path.front() != 'a') scope.tenant_salt = path.substr(0, 1);
  const auto name_space = make_namespace(config_.cache.spec);
  if (!name_space) fail("engine", name_space.error().to_string());
  BlockKey parent = root_as_parent(make_root(*name_space, scope));
  for (const char letter : path.substr(1)) {
    const auto first = static_cast<TokenId>(letter) * block_tokens();
    std::vector<TokenId> tokens(block_tokens());
    for (uint32_t i = 0; i < block_tokens(); ++i) tokens[i] = first + i;
    parent = chain_block_key(parent, tokens);
    keys.push_back(parent);
  }
  return keys;
}

std::vector<std::vector<BlockKey>> ToyEngine::known_paths() const {
  std::vector<std::vector<BlockKey>> paths;
  for (const auto& [path, keys] : model_.known_paths) paths.push_back(keys);
  return paths;
}

ToyEngine::Life ToyEngine::make_life(Random& random, RequestId id) {
  Life life;
  life.id = id;
  // Few letters, the first of them most often: prefixes are shared, branch, and come back.
  life.path = random.chance(0.8) ? "a" : "b";
  for (uint32_t i = 0; i < kPathBlocks; ++i) {
    const double choice = random.real();
    life.path += choice < 0.75 ? 'A' : choice < 0.95 ? 'B' : 'C';
  }
  life.keys = keys_of(life.path);
  life.prompt_tokens = static_cast<uint32_t>(random.between(1, kPathBlocks * block_tokens()));
  life.total_tokens = std::min(kPathBlocks * block_tokens(),
                               life.prompt_tokens + static_cast<uint32_t>(random.below(16)));
  life.declares_early = random.chance(0.4);
  life.places.assign(groups(), std::vector<Place>(kPathBlocks));
  return life;
}

TimePoint ToyEngine::pick_deadline(Random& random, bool patient) const {
  if (faultless_) return clock_.now() + milliseconds(30'000);
  const double choice = patient ? 0.7 + random.real() * 0.3 : random.real();
  const auto some = [&](uint64_t low_us, uint64_t high_us) {
    return clock_.now() +
           std::chrono::microseconds(static_cast<int64_t>(random.between(low_us, high_us)));
  };
  if (choice < 0.1) return clock_.now() - Duration(static_cast<int64_t>(random.below(2)));
  if (choice < 0.35) return some(1, 5'000);
  if (choice < 0.8) return some(5'000, 200'000);
  return some(200'000, 5'000'000);
}

std::span<const BlockKey> ToyEngine::loadable(const Life& life) const {
  // At least one token has to be computed, so that there is something to run.
  return std::span(life.keys).first((life.prompt_tokens - 1) / block_tokens());
}

void ToyEngine::start(Random& random) {
  if (lives_.size() >= config_.lives_max) return;
  RequestId id(next_id_);
  if (!ended_ids_.empty() && random.chance(0.5)) {
    const size_t which = random.below(ended_ids_.size());
    id = ended_ids_[which];
    ended_ids_.erase(ended_ids_.begin() + static_cast<ptrdiff_t>(which));
  } else {
    ++next_id_;
  }
  Life life = make_life(random, id);
  if (random.chance(0.25)) {
    // The engine has the head itself.
    const auto own = static_cast<uint32_t>(random.below(loadable(life).size() + 1));
    while (life.own_blocks < own && allocate(life, life.own_blocks)) {
      for (uint32_t group = 0; group < groups(); ++group) {
        Place& place = life.places[group][life.own_blocks];
        device_.write_oracle(GroupId(static_cast<uint8_t>(group)), place.block,
                             life.keys[life.own_blocks]);
        place.content = Content::kKv;
      }
      ++life.own_blocks;
    }
    life.computed_tokens = life.own_blocks * block_tokens();
  }
  note(fmt::format("start request {} path {} prompt {} own {}", id.value(), life.path,
                   life.prompt_tokens, life.own_blocks));
  lives_.push_back(std::move(life));
}

void ToyEngine::advance(Random& random) {
  if (lives_.empty()) return;
  const size_t index = random.below(lives_.size());
  Life& life = lives_[index];
  switch (life.phase) {
    case Phase::kNew:
      if (config_.cache.with_store && random.chance(0.6)) {
        begin_prefetch(life, random);
      } else {
        begin_load(life, random);
      }
      break;
    case Phase::kPrefetching:
      if (random.chance(0.05)) begin_load(life, random);  // does not wait
      break;
    case Phase::kLoading:
    case Phase::kWaiting:
      break;
    case Phase::kComputing:
      if (life.computed_tokens >= life.total_tokens && life.committed_tokens >= life.total_tokens) {
        end_life(index, false);
      } else {
        compute(life, random);
      }
      break;
  }
}

void ToyEngine::begin_prefetch(Life& life, Random& random) {
  const TimePoint deadline = pick_deadline(random, random.chance(0.8));
  const auto started = cache_.prefetch(life.id, loadable(life), life.own_blocks, deadline);
  note(fmt::format("prefetch request {} -> {}", life.id.value(),
                   started ? (*started ? "started" : "nothing") : started.error().to_string()));
  if (!started) {
    if (started.code() != Code::kBusy) fail("engine", started.error().to_string());
    count("busy.prefetch");
    begin_load(life, random);
    return;
  }
  life.known = true;
  if (!*started) {
    begin_load(life, random);
    return;
  }
  life.expects_prefetch = true;
  life.prefetch_due = deadline;
  life.phase = Phase::kPrefetching;
}

void ToyEngine::begin_load(Life& life, Random& random) {
  const std::span<const BlockKey> keys = loadable(life);
  const uint32_t first = life.own_blocks;
  const Match match = model_.check_match(cache_, keys, first);
  uint32_t wanted = std::max(match.ready_blocks, first) - first;
  // The engine may have blocks of some groups itself, at any position.
  const bool mixed = groups() > 1 && random.chance(0.15);
  if (mixed || random.chance(0.3)) wanted = static_cast<uint32_t>(keys.size()) - first;
  if (random.chance(0.1)) wanted /= 2;
  uint32_t offered = 0;
  while (offered < wanted && allocate(life, first + offered)) ++offered;
  std::vector<DeviceBlockId> blocks;
  for (uint32_t group = 0; group < groups(); ++group) {
    const double own_share = mixed ? random.real() : 0;
    for (uint32_t i = 0; i < offered; ++i) {
      Place& place = life.places[group][first + i];
      blocks.push_back(random.chance(own_share) ? kNoDeviceBlock : place.block);
      if (blocks.back() != kNoDeviceBlock) continue;
      device_.write_oracle(GroupId(static_cast<uint8_t>(group)), place.block, life.keys[first + i]);
      place.content = Content::kKv;
    }
  }
  const TimePoint deadline = pick_deadline(random, false);
  const auto started = cache_.load(life.id, keys, first, blocks, deadline);
  note(fmt::format("load request {} first {} offered {} ready {} -> {}", life.id.value(), first,
                   offered, match.ready_blocks,
                   started ? std::to_string(*started) : started.error().to_string()));
  life.phase = Phase::kComputing;
  life.computed_tokens = first * block_tokens();
  if (!started) {
    if (started.code() != Code::kBusy) fail("engine", started.error().to_string());
    count("busy.load");
    return;
  }
  life.known = true;
  life.lost_holds = life.lost_holds || mixed;  // match() does not know what the engine has
  if (*started > offered || (!mixed && first + *started > std::max(first, match.ready_blocks))) {
    fail("load", fmt::format("load of request {} moves {} blocks; ready were {}, offered {}",
                             life.id.value(), *started, match.ready_blocks - first, offered));
  }
  if (*started == 0) return;
  life.expects_load = true;
  life.load_due = deadline;
  life.load_first = first;
  life.load_count = *started;
  life.phase = Phase::kLoading;
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = first; position < first + *started; ++position) {
      Place& place = life.places[group][position];
      if (place.content == Content::kKv) continue;
      device_.set_busy(GroupId(static_cast<uint8_t>(group)), place.block);
      place.content = Content::kOffered;
    }
  }
}

bool ToyEngine::allocate(Life& life, uint32_t position) {
  for (uint32_t group = 0; group < groups(); ++group) {
    if (life.places[group][position].content == Content::kNothing &&
        device_.free_count(GroupId(static_cast<uint8_t>(group))) == 0) {
      return false;
    }
  }
  for (uint32_t group = 0; group < groups(); ++group) {
    Place& place = life.places[group][position];
    if (place.content != Content::kNothing) continue;
    place.block = *device_.allocate(GroupId(static_cast<uint8_t>(group)));
    place.content = Content::kGarbage;
  }
  return true;
}

void ToyEngine::compute(Life& life, Random& random) {
  if (life.declares_early && life.declared_blocks == 0) {
    // Before anything is computed: the blocks behind the loaded ones hold garbage.
    const uint32_t end = life.prompt_tokens / block_tokens();
    uint32_t position = life.computed_tokens / block_tokens();
    while (position < end && allocate(life, position)) ++position;
    declare(life, random.chance(0.5) ? 0 : life.computed_tokens / block_tokens(), position);
    if (life.declared_blocks == 0) life.declares_early = false;
    return;
  }
  if (life.computed_tokens < life.total_tokens) {
    const auto target = std::min<uint32_t>(
        life.total_tokens, life.computed_tokens + static_cast<uint32_t>(random.between(1, 20)));
    while (life.computed_tokens < target) {
      const uint32_t position = life.computed_tokens / block_tokens();
      if (!allocate(life, position)) break;
      const uint32_t end = std::min(target, (position + 1) * block_tokens());
      for (uint32_t group = 0; group < groups(); ++group) {
        Place& place = life.places[group][position];
        const GroupId id(static_cast<uint8_t>(group));
        if (end % block_tokens() == 0) {
          device_.write_oracle(id, place.block, life.keys[position]);
          place.content = Content::kKv;
        } else {
          device_.write_half(id, place.block, life.keys[position]);
        }
      }
      life.computed_tokens = end;
    }
    note(fmt::format("compute request {} to token {}", life.id.value(), life.computed_tokens));
    if (life.computed_tokens < target) {
      // No device block to be had: preempted, to make room.
      count("engine.preempted");
      end_life(static_cast<size_t>(&life - lives_.data()), random.chance(0.5));
      return;
    }
    if (random.chance(0.3)) return;  // the commit comes later
  }
  const uint32_t full = life.computed_tokens / block_tokens();
  if (random.chance(0.9) && life.declared_blocks < full) {
    declare(life, random.chance(0.1) ? 0 : life.declared_blocks, full);
  }
  if (random.chance(0.05)) commit(life, life.committed_tokens / 2);
  commit(life, random.chance(0.2) ? random.between(0, life.computed_tokens) : life.computed_tokens);
}

void ToyEngine::declare(Life& life, uint32_t first, uint32_t end) {
  if (end <= first) return;
  std::vector<DeviceBlockId> blocks;
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = first; position < end; ++position) {
      const Place& place = life.places[group][position];
      // What lies before a window was never loaded, and what has been loaded is never computed.
      const bool will_hold_kv =
          place.content == Content::kKv ||
          (place.content == Content::kGarbage && position >= life.computed_tokens / block_tokens());
      blocks.push_back(will_hold_kv ? place.block : kNoDeviceBlock);
    }
  }
  const Status saved = cache_.save(life.id, life.keys, first, blocks);
  note(fmt::format("save request {} positions {} to {} -> {}", life.id.value(), first, end,
                   saved ? "ok" : saved.error().to_string()));
  if (!saved) {
    if (saved.code() != Code::kBusy) fail("engine", saved.error().to_string());
    count("busy.save");
    return;
  }
  life.known = true;
  life.declared_blocks = std::max(life.declared_blocks, end);
}

void ToyEngine::commit(Life& life, uint64_t tokens) {
  for (uint32_t position = 0; position < tokens / block_tokens(); ++position) {
    model_.committed(life.keys[position]);
  }
  life.committed_tokens = std::max(life.committed_tokens, static_cast<uint32_t>(tokens));
  const Status committed = cache_.commit(life.id, tokens);
  note(fmt::format("commit request {} to token {} -> {}", life.id.value(), tokens,
                   to_string(committed.code())));
  if (committed.code() != (life.known ? Code::kOk : Code::kNotFound)) {
    fail("lifetime",
         fmt::format("commit of request {} says {}", life.id.value(), to_string(committed.code())));
  }
}

void ToyEngine::end_one(Random& random) {
  if (lives_.empty()) return;
  end_life(random.below(lives_.size()), random.chance(0.4));
}

void ToyEngine::end_all() {
  while (!lives_.empty()) end_life(lives_.size() - 1, lives_.size() % 2 == 0);
}

void ToyEngine::end_life(size_t index, bool aborted) {
  Life life = std::move(lives_[index]);
  lives_.erase(lives_.begin() + static_cast<ptrdiff_t>(index));
  check_why(life.id);
  const Result<Farewell> farewell = aborted ? cache_.abort(life.id) : cache_.finish(life.id);
  note(fmt::format("{} request {} -> {}", aborted ? "abort" : "finish", life.id.value(),
                   farewell ? fmt::format("generation {}{}", farewell->generation,
                                          farewell->device_busy ? ", busy" : "")
                            : to_string(farewell.code())));
  if (farewell.code() != (life.known ? Code::kOk : Code::kNotFound)) {
    fail("lifetime",
         fmt::format("the end of request {} says {}", life.id.value(), to_string(farewell.code())));
  }
  count(aborted ? "engine.aborted" : "engine.finished");
  if (life.expects_load) count("race.ended_while_loading");
  if (life.expects_prefetch) count("race.ended_while_prefetching");
  ended_ids_.push_back(life.id);
  if (ended_ids_.size() > 4) ended_ids_.erase(ended_ids_.begin());
  if (farewell) {
    if (life.generation != 0 && life.generation != farewell->generation) {
      fail("lifetime", fmt::format("request {} had generation {} and ends with {}", life.id.value(),
                                   life.generation, farewell->generation));
    }
    if (!ended_generations_.insert(farewell->generation).second) {
      fail("lifetime",
           fmt::format("two lives have ended with generation {}", farewell->generation));
    }
    life.generation = farewell->generation;
  }
  give_back(life, farewell.has_value() && farewell->device_busy);
}

void ToyEngine::give_back(Life& life, bool busy) {
  std::vector<Owned> owned = std::move(life.parked);
  for (uint32_t group = 0; group < groups(); ++group) {
    for (const Place& place : life.places[group]) {
      if (place.content != Content::kNothing) {
        owned.emplace_back(GroupId(static_cast<uint8_t>(group)), place.block);
      }
    }
  }
  if (!busy) {
    for (const auto& [group, block] : owned) device_.free(group, block);
    return;
  }
  count("race.device_busy_at_end");
  if (!owed_.emplace(std::pair(life.id.value(), life.generation), std::move(owned)).second) {
    fail("lifetime", fmt::format("two lives of request {} have generation {}", life.id.value(),
                                 life.generation));
  }
}

void ToyEngine::bad_call(Random& random) {
  const RequestId nobody(1'000'000 + random.below(10));
  const uint64_t unknown = cache_.stats().unknown_requests;
  const std::vector<BlockKey> keys = keys_of("aAAAA");
  const std::vector<DeviceBlockId> blocks(keys.size() * groups() + 1, DeviceBlockId(0));
  bool refused = false;
  uint64_t counted = 0;
  switch (random.below(6)) {
    case 0:
      refused = cache_.finish(nobody).code() == Code::kNotFound;
      counted = 1;
      break;
    case 1:
      refused = cache_.abort(nobody).code() == Code::kNotFound;
      counted = 1;
      break;
    case 2:
      refused = cache_.commit(nobody, 8).code() == Code::kNotFound;
      counted = 1;
      break;
    case 3:
      refused = cache_.save(nobody, keys, 1, blocks).code() == Code::kInvalid;
      break;
    case 4:
      refused = cache_.load(nobody, keys, 99, {}, clock_.now()).code() == Code::kInvalid;
      break;
    default:
      refused = cache_.prefetch(nobody, keys, 99, clock_.now()).code() == Code::kInvalid;
      break;
  }
  if (!refused) fail("lifetime", "a call that makes no sense was not refused");
  if (cache_.stats().unknown_requests != unknown + counted) {
    fail("stats", "unknown_requests does not count the calls for unknown requests");
  }
  if (cache_.commit(nobody, 0).code() != Code::kNotFound) {
    fail("lifetime", "a refused call has made a request");
  }
  count("engine.bad_call");
}

void ToyEngine::probe(Random& random) {
  if (model_.known_paths.empty()) return;
  auto path = model_.known_paths.begin();
  std::advance(path, static_cast<ptrdiff_t>(random.below(model_.known_paths.size())));
  const std::vector<BlockKey>& keys = path->second;
  const auto length = static_cast<uint32_t>(random.between(0, keys.size()));
  const uint32_t computed =
      random.chance(0.7) ? 0 : static_cast<uint32_t>(random.between(0, length));
  model_.check_match(cache_, std::span(keys).first(length), computed);
}

void ToyEngine::clear(Random& random) {
  count("engine.clear");
  if (config_.cache.with_store || random.chance(0.3)) {
    note("clear");
    cache_.clear();
    model_.cleared();
    for (Life& life : lives_) life.lost_holds = true;
    return;
  }
  note("clear, and other weights");
  count("engine.weights_changed");
  // What they have computed is of no use any more.
  while (!lives_.empty()) end_life(lives_.size() - 1, true);
  cache_.clear();
  model_.weights_changed();
  device_.set_weights(model_.weights());
}

void ToyEngine::memory_lost() {
  model_.cleared();
  for (Life& life : lives_) life.lost_holds = true;
}

void ToyEngine::cache_closes() {
  cache_closes_ = true;
  for (Life& life : lives_) life.lost_holds = true;
}

void ToyEngine::check_why(RequestId id) {
  const WhyRecord* why = cache_.why(id);
  if (why == nullptr) return;
  if (why->request != id) fail("why", "a why-record of another request");
  for (const WhySpan& span : why->spans()) {
    if (span.count == 0 || span.first + span.count > kPathBlocks) {
      fail("why", fmt::format("a reason for blocks {} to {}; the request has {}", span.first,
                              span.first + span.count, kPathBlocks));
    }
    count("why." + std::string(to_string(span.reason)));
  }
}

}  // namespace tiercel::sim
