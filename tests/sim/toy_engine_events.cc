// SPDX-License-Identifier: Apache-2.0
//
// What the toy engine does with the cache's events, and what it checks of its own accord.
#include <algorithm>

#include <fmt/core.h>

#include "toy_engine.h"

namespace tiercel::sim {
namespace {

using std::chrono::milliseconds;

// Shares nothing with the others.
constexpr const char* kLastPath = "zXYZ";

}  // namespace

void ToyEngine::poll(size_t event_span) {
  std::vector<CacheEvent> events(event_span);
  const size_t got = cache_.poll(events);
  note(fmt::format("poll -> {} events", got));
  for (const CacheEvent& event : std::span(events).first(got)) on_event(event);
  if (cache_.next_deadline() <= clock_.now()) {
    fail("deadline", "next_deadline() is not in the future right after poll()");
  }
  if (got == event_span) return;  // more may wait
  for (const Life& life : lives_) {
    if (life.expects_load && life.load_due <= clock_.now()) {
      fail("deadline", fmt::format("the load of request {} has passed its deadline without event",
                                   life.id.value()));
    }
    if (life.expects_prefetch && life.prefetch_due <= clock_.now()) {
      fail("deadline",
           fmt::format("the prefetch of request {} has passed its deadline without event",
                       life.id.value()));
    }
  }
}

ToyEngine::Life* ToyEngine::life_of(const CacheEvent& event) {
  for (Life& life : lives_) {
    if (life.id != event.request) continue;
    if (life.generation != 0 && life.generation != event.generation) return nullptr;
    return &life;
  }
  return nullptr;
}

void ToyEngine::on_event(const CacheEvent& event) {
  note(fmt::format("  event {} request {} generation {} code {} blocks {}{}",
                   static_cast<int>(event.kind), event.request.value(), event.generation,
                   to_string(event.code), event.blocks, event.device_busy ? " busy" : ""));
  if (event.kind == EventKind::kDeviceReleased) {
    count("event.device_released");
    on_released(event);
    return;
  }
  Life* life = life_of(event);
  const bool load = event.kind == EventKind::kLoadDone;
  if (life == nullptr || !(load ? life->expects_load : life->expects_prefetch)) {
    fail("event", fmt::format("a {} came for request {}, generation {}, that nobody expects",
                              load ? "kLoadDone" : "kPrefetchDone", event.request.value(),
                              event.generation));
  }
  life->generation = event.generation;
  count(fmt::format("event.{}.{}", load ? "load_done" : "prefetch_done", to_string(event.code)));
  if (load) {
    on_load_done(*life, event);
  } else {
    on_prefetch_done(*life, event);
  }
}

void ToyEngine::on_prefetch_done(Life& life, const CacheEvent& event) {
  life.expects_prefetch = false;
  if (life.phase == Phase::kPrefetching) life.phase = Phase::kNew;
  if (event.blocks < life.own_blocks || event.blocks > loadable(life).size()) {
    fail("event",
         fmt::format("kPrefetchDone says {} blocks of {}", event.blocks, loadable(life).size()));
  }
  for (uint32_t position = life.own_blocks; position < event.blocks; ++position) {
    if (!model_.is_committed(life.keys[position])) {
      fail("uncommitted", fmt::format("kPrefetchDone says {} blocks are ready, but block {} was "
                                      "never committed",
                                      event.blocks, position));
    }
  }
}

void ToyEngine::on_load_done(Life& life, const CacheEvent& event) {
  life.expects_load = false;
  const uint32_t end = life.load_first + life.load_count;
  if (event.blocks < life.load_first || event.blocks > end ||
      (event.code == Code::kOk) != (event.blocks == end)) {
    fail("event", fmt::format("kLoadDone of the blocks {} to {} says {} blocks with code {}",
                              life.load_first, end, event.blocks, to_string(event.code)));
  }
  // What lies on disk comes by way of the host tier, where there may be no room.
  const bool short_of_room = config_.disk_blocks > 0 && event.code == Code::kNoSpace;
  if (faultless_ && event.code != Code::kOk && !short_of_room && !cache_closes_) {
    fail("faultless",
         fmt::format("nothing fails in this run, but a load ended with {}", to_string(event.code)));
  }
  if (event.device_busy) count("race.device_busy_after_load");
  for (uint32_t group = 0; group < groups(); ++group) {
    const GroupId id(static_cast<uint8_t>(group));
    const uint32_t first_needed = model_.first_needed(group, event.blocks, life.load_first);
    for (uint32_t position = life.load_first; position < end; ++position) {
      Place& place = life.places[group][position];
      if (place.content == Content::kKv) continue;
      if (position < event.blocks && position >= first_needed) {
        device_.expect_loaded(id, place.block, life.keys[position]);
        place.content = Content::kKv;
      } else if (position < event.blocks || !event.device_busy) {
        device_.write_garbage(id, place.block);
        place.content = Content::kGarbage;
      }
    }
  }
  life.held_first = life.load_first;
  life.held_blocks = event.blocks;
  life.computed_tokens = event.blocks * block_tokens();
  life.phase = Phase::kComputing;
  if (!event.device_busy) return;
  life.expects_release = true;
  if (life.id.value() % 2 == 0) {
    life.phase = Phase::kWaiting;  // for its own blocks
    return;
  }
  // Goes on with other blocks; those that are behind the cut are left to the transfers.
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = event.blocks; position < end; ++position) {
      Place& place = life.places[group][position];
      if (place.content == Content::kKv) continue;
      life.parked.emplace_back(GroupId(static_cast<uint8_t>(group)), place.block);
      place.content = Content::kNothing;
    }
  }
}

void ToyEngine::on_released(const CacheEvent& event) {
  const auto owed = owed_.find(std::pair(event.request.value(), event.generation));
  if (owed != owed_.end()) {
    for (const auto& [group, block] : owed->second) device_.free(group, block);
    owed_.erase(owed);
    return;
  }
  Life* life = life_of(event);
  if (life == nullptr || !life->expects_release) {
    fail("event", fmt::format("a kDeviceReleased came for request {}, generation {}, that nobody "
                              "expects",
                              event.request.value(), event.generation));
  }
  life->expects_release = false;
  for (const auto& [group, block] : life->parked) device_.free(group, block);
  life->parked.clear();
  if (life->phase != Phase::kWaiting) return;
  life->phase = Phase::kComputing;
  for (uint32_t group = 0; group < groups(); ++group) {
    for (Place& place : life->places[group]) {
      if (place.content != Content::kOffered) continue;
      device_.write_garbage(GroupId(static_cast<uint8_t>(group)), place.block);
      place.content = Content::kGarbage;
    }
  }
}

void ToyEngine::check() {
  device_.check();
  const uint64_t hold_limit_hits = model_.stats().hold_limit_hits;
  if (hold_limit_hits != hold_limit_hits_) {
    hold_limit_hits_ = hold_limit_hits;
    for (Life& life : lives_) life.lost_holds = true;
  }
  if (config_.corruption) return;  // a block that turns out bad is dropped whoever holds it
  for (const Life& life : lives_) {
    if (life.lost_holds || life.held_blocks <= life.held_first) continue;
    const Match match = cache_.match(std::span(life.keys).first(life.held_blocks), life.held_first);
    if (match.ready_blocks < life.held_blocks) {
      fail("hold", fmt::format("request {} has loaded {} blocks and lives, but only {} are still "
                               "there",
                               life.id.value(), life.held_blocks, match.ready_blocks));
    }
  }
}

void ToyEngine::check_quiet() const {
  if (!owed_.empty()) {
    fail("leak", fmt::format("{} ended requests were never told that their device blocks are free",
                             owed_.size()));
  }
  if (!device_.all_free()) fail("leak", "device blocks have not come back");
}

void ToyEngine::warm_up(Random& random, const std::function<void()>& settle) {
  for (int i = 0; i < 3; ++i) {
    Life life = make_life(random, RequestId(next_id_++));
    for (uint32_t position = 0; position < config_.cache.request_blocks_max; ++position) {
      allocate(life, position);
      for (uint32_t group = 0; group < groups(); ++group) {
        Place& place = life.places[group][position];
        device_.write_oracle(GroupId(static_cast<uint8_t>(group)), place.block,
                             life.keys[position]);
        place.content = Content::kKv;
      }
      // One by one, so that no queue is ever full.
      life.computed_tokens = (position + 1) * block_tokens();
      declare(life, position, position + 1);
      commit(life, life.computed_tokens);
      settle();
    }
    lives_.push_back(std::move(life));
    end_life(lives_.size() - 1, false);
    settle();
  }
  cache_.clear();
  settle();
}

void ToyEngine::serve_normally(const std::function<void()>& settle) {
  const std::vector<BlockKey> keys = keys_of(kLastPath);
  // Write policies may wait for another hit, and where the host tier is full of blocks that may not
  // be evicted before they are on disk, the first request finds no room.
  const uint32_t rounds = config_.cache.selective_hits + (config_.disk_blocks > 0 ? 2 : 0);
  for (uint32_t round = 0; round < rounds; ++round) {
    const RequestId id(next_id_++);
    std::vector<DeviceBlockId> blocks;  // group-major
    for (size_t group = 0; group < groups(); ++group) {
      const GroupId group_id(static_cast<uint8_t>(group));
      for (const BlockKey& key : keys) {
        blocks.push_back(*device_.allocate(group_id));
        device_.write_oracle(group_id, blocks.back(), key);
        model_.committed(key);
      }
    }
    if (!cache_.save(id, keys, 0, blocks) || !cache_.commit(id, keys.size() * block_tokens())) {
      fail("next_request", "after the storm a request can not be saved");
    }
    settle();
    const auto farewell = cache_.finish(id);
    if (!farewell || farewell->device_busy) fail("next_request", "the saves never end");
    for (size_t i = 0; i < blocks.size(); ++i) {
      device_.free(GroupId(static_cast<uint8_t>(i / keys.size())), blocks[i]);
    }
  }
  if (const Match match = model_.check_match(cache_, keys, 0); match.ready_blocks != keys.size()) {
    fail("next_request", fmt::format("after the storm a request is saved, but of its {} blocks "
                                     "only {} are found",
                                     keys.size(), match.ready_blocks));
  }
  load_normally(keys, config_.disk_blocks > 0 ? 3 : 1, settle);
}

void ToyEngine::load_again(const std::function<void()>& settle) {
  const std::vector<BlockKey> keys = keys_of(kLastPath);
  const Match match = model_.check_match(cache_, keys, 0);
  if (match.ready_blocks == 0) return;
  count("restart.loaded_again");
  load_normally(std::span(keys).first(match.ready_blocks), 3, settle);
}

void ToyEngine::load_normally(std::span<const BlockKey> keys, int tries,
                              const std::function<void()>& settle) {
  // What the storm has made of the speeds, an engine may well be faster.
  if (config_.cache.load_or_recompute.enabled) return;
  Life life;
  life.id = RequestId(next_id_++);
  life.path = kLastPath;
  life.keys = {keys.begin(), keys.end()};
  life.prompt_tokens = life.total_tokens = static_cast<uint32_t>(keys.size()) * block_tokens() + 1;
  life.known = life.expects_load = true;
  life.load_due = clock_.now() + milliseconds(10'000);
  life.places.assign(groups(), std::vector<Place>(kPathBlocks));
  life.phase = Phase::kLoading;
  std::vector<DeviceBlockId> blocks;  // group-major
  for (size_t group = 0; group < groups(); ++group) {
    const GroupId group_id(static_cast<uint8_t>(group));
    for (size_t position = 0; position < keys.size(); ++position) {
      blocks.push_back(*device_.allocate(group_id));
      device_.set_busy(group_id, blocks.back());
      life.places[group][position] = {blocks.back(), Content::kOffered};
    }
  }
  const auto started = cache_.load(life.id, keys, 0, blocks, life.load_due);
  if (!started || *started != keys.size()) {
    fail("next_request", "after the storm a request can not be loaded");
  }
  life.load_count = *started;
  lives_.push_back(std::move(life));
  settle();
  const uint32_t loaded = lives_.back().held_blocks;
  end_all();
  if (loaded == keys.size()) return;
  settle();
  if (tries > 1) return load_normally(keys, tries - 1, settle);
  fail("next_request", "after the storm a load does not end well");
}

}  // namespace tiercel::sim
