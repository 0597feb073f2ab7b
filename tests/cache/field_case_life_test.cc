// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about the life of a request: abort, preemption, an id used again, while
// transfers are in flight.
#include <optional>

#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class FieldCaseLife : public FieldCase {
 protected:
  // A prefetch is ended at one of five stages; its data arrives before its deadline or after it.
  void abort_a_prefetch(int stage, bool late) {
    const auto keys = test_keys(4);
    cache->clear();
    poll();
    ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, in(50ms)), true);
    uint32_t arrived = 0;
    if (stage > 0) {  // running
      plane->complete_all(OpKind::kStoreExists);
      ASSERT_TRUE(poll().empty());
    }
    if (stage > 1) {  // partly there
      plane->complete(0);
      ASSERT_TRUE(poll().empty());
      arrived = 1;
    }
    if (stage > 2) {  // finished, but nobody has taken the event
      plane->complete_all(OpKind::kStoreGet);
      ASSERT_EQ(cache->poll({}), 0u);
      arrived = 4;
    }
    if (stage > 3) {  // finished and consumed
      ASSERT_EQ(poll().size(), 1u);
    }
    ASSERT_TRUE(cache->abort(RequestId(1)));
    ASSERT_EQ(cache->stats().requests, 0u);
    const size_t running = plane->open_count(OpKind::kStoreGet);
    if (late) {
      clock.advance(50ms);
      ASSERT_TRUE(poll().empty());
      ASSERT_EQ(cache->stats().host_slots_used, arrived) << "given up at the deadline";
      ASSERT_EQ(cache->stats().host_slots_quarantined, running);
    }
    plane->complete_all(OpKind::kStoreExists);
    plane->complete_all(OpKind::kStoreGet);
    ASSERT_TRUE(poll().empty());
    ASSERT_EQ(ready(keys), late ? arrived : arrived + running) << "late data is thrown away";
    ASSERT_EQ(cache->check(true), "");
  }

  // R's four stores stand still after `stored` of them; R is preempted and comes back.
  std::string come_back_while_saving(uint32_t stored, bool aborted,
                                     const Protections& protections = {}) {
    open_bytes(field_config(16), 32, protections);
    const auto keys = test_keys(4);
    const std::vector<BlockKey> head(keys.begin(), keys.begin() + stored);
    write_kv(keys, 0);
    declare(1, keys, 0);
    for (uint32_t i = 0; i < stored; ++i) carry_out(0);
    poll();
    const auto farewell = aborted ? cache->abort(RequestId(1)) : cache->finish(RequestId(1));
    if (!farewell || farewell->device_busy != (stored < 4)) return "a wrong farewell";
    if (ready(keys) != stored) return "what is half stored is promised";
    const auto started = cache->load(RequestId(1), keys, 0, device(4, 8), kNoDeadline);
    if (!started || *started != stored) return "what is half stored is loaded";
    if (stored > 0) {
      carry_out_all(OpKind::kLoad);
      const auto events = poll();
      if (events.size() != 1 || events[0].blocks != stored) return "the load did not end well";
      if (const auto wrong = wrong_bytes(head, 8); !wrong.empty()) return wrong;
    }
    for (uint32_t i = stored; i < 4; ++i) write_block(keys[i], GroupId(0), 8 + i);
    declare(1, keys, 8);
    settle_bytes();  // the stores of the first life end only now
    if (!cache->finish(RequestId(1))) return "the second life is not known";
    poll();
    if (const auto wrong = wrong_after_load(9, keys, 16); !wrong.empty()) return wrong;
    if (cache->stats().save_blocks != 4) return "a block was stored twice";
    return cache->check(true);
  }

  // A is aborted after `arrived` of its four blocks have come; B gets A's device blocks.
  std::string give_blocks_on_while_loading(uint32_t arrived, const Protections& protections = {}) {
    open_bytes(field_config(16), 24, protections);
    const auto keys = test_keys(4);
    store_bytes(1, keys, 0);
    const auto started = cache->load(RequestId(2), keys, 0, device(4, 8), kNoDeadline);
    if (!started || *started != 4) return "the load was not started";
    for (uint32_t i = 0; i < arrived; ++i) carry_out(0);
    const auto farewell = cache->abort(RequestId(2));
    if (!farewell) return "the request is not known";
    const auto others = test_keys(4, 1000);
    const auto compute_others = [&] {
      write_kv(others, 8);
      declare(3, others, 8);
    };
    if (!farewell->device_busy) compute_others();
    carry_out_all(OpKind::kLoad);  // the sender goes on
    const auto events = poll();
    if (farewell->device_busy) {
      if (events.size() != 1 || events[0].kind != EventKind::kDeviceReleased ||
          events[0].generation != farewell->generation) {
        return "the blocks never come back";
      }
      compute_others();
    }
    if (const auto wrong = wrong_bytes(others, 8); !wrong.empty()) return wrong;
    settle_bytes();
    if (!cache->finish(RequestId(3))) return "the second request is not known";
    if (const auto wrong = wrong_after_load(4, others, 16); !wrong.empty()) return wrong;
    return cache->check(true);
  }
};

// F18: aborting requests while their prefetch ran ate the host pool.
TEST_F(FieldCaseLife, F18AnAbortAtAnyStageOfAPrefetchGivesEverySlotBack) {
  open(test_config(16, 1, true));
  for (int round = 0; round < 1000; ++round) {
    ASSERT_NO_FATAL_FAILURE(abort_a_prefetch(round % 5, round / 5 % 2 == 1)) << "round " << round;
  }
}

// F19: late, doubled and foreign completions stopped the engine. Sending and receiving end in the
// same step here, all for a request that is gone, under an id that lives again.
TEST_F(FieldCaseLife, F19LateAnswersOfBothDirectionsDoNotTouchTheNextLifeOfTheId) {
  open(test_config(16));
  const auto keys = test_keys(4);
  const std::vector<BlockKey> head(keys.begin(), keys.begin() + 2);
  store(1, head);
  ASSERT_TRUE(cache->save(RequestId(5), keys, 2, device(2, 20)));
  ASSERT_TRUE(cache->commit(RequestId(5), 16));
  ASSERT_EQ(cache->load(RequestId(5), head, 0, device(2, 30), kNoDeadline), 2u);
  const auto farewell = cache->abort(RequestId(5));
  ASSERT_TRUE(farewell);
  ASSERT_TRUE(farewell->device_busy);
  const auto old = plane->open;
  ASSERT_EQ(old.size(), 4u);
  ASSERT_EQ(cache->load(RequestId(5), head, 0, device(2, 40), kNoDeadline), 2u);
  for (size_t i = 0; i < 4; ++i) plane->complete(0);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kDeviceReleased);
  EXPECT_EQ(events[0].generation, farewell->generation);
  // The same answers again, when other jobs stand where theirs did.
  ASSERT_EQ(cache->load(RequestId(6), head, 0, device(2, 50), kNoDeadline), 2u);
  ASSERT_EQ(cache->load(RequestId(7), head, 0, device(2, 60), kNoDeadline), 2u);
  for (const auto& [op, rank] : old) plane->raw({op.job, op.item, 0, Code::kCorrupt, 0});
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(cache->stats().stale_completions, 4u);
  EXPECT_EQ(ready(keys), 4u);
  plane->complete_all(OpKind::kLoad);
  events = poll();
  ASSERT_EQ(events.size(), 3u);
  for (const CacheEvent& event : events) {
    EXPECT_EQ(event.blocks, 2u);
    EXPECT_EQ(event.code, Code::kOk);
    EXPECT_NE(event.generation, farewell->generation);
  }
  for (const uint64_t id : {uint64_t{5}, uint64_t{6}, uint64_t{7}})
    ASSERT_TRUE(cache->finish(RequestId(id)));
  EXPECT_EQ(cache->check(true), "");
}

// F20: a preempted request that met its own half-finished stores tripped an assertion.
TEST_F(FieldCaseLife, F20ARequestThatComesBackLoadsWhatItsStoresHaveFinished) {
  for (uint32_t stored = 0; stored <= 4; ++stored) {
    for (const bool aborted : {true, false}) {
      EXPECT_EQ(come_back_while_saving(stored, aborted), "") << stored << " " << aborted;
    }
  }
}

TEST_F(FieldCaseLife, F20WithoutPublishingWhenDoneItLoadsHalfABlock) {
  EXPECT_NE(come_back_while_saving(2, true, without(&Protections::publish_when_done)), "");
}

// F21: after a preemption the same blocks were created and committed a second time.
TEST_F(FieldCaseLife, F21ARequestPreemptedAtAnyPointsStoresEachBlockOnce) {
  constexpr uint32_t kBlocks = 8;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    open(test_config(64, 1, true));
    const auto keys = test_keys(kBlocks);
    uint64_t preemptions = random.between(1, 5);
    uint32_t computed = 0;
    bool admitted = false;
    for (int step = 0; computed < kBlocks * 4 || preemptions > 0; ++step) {
      ASSERT_LT(step, 10000);
      if (!admitted) {
        const auto started = cache->load(RequestId(1), keys, 0, device(kBlocks), kNoDeadline);
        ASSERT_TRUE(started);
        plane->complete_all(OpKind::kLoad);
        const auto events = poll();
        const bool loaded = !events.empty() && events.back().kind == EventKind::kLoadDone;
        computed = loaded ? events.back().blocks * 4 : 0;
        ASSERT_EQ(computed, *started * 4);
        ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(kBlocks)));
        admitted = true;
      }
      computed = std::min(kBlocks * 4, computed + static_cast<uint32_t>(random.between(1, 6)));
      ASSERT_TRUE(cache->commit(RequestId(1), computed));
      if (!plane->open.empty() && random.chance(0.5)) {
        plane->complete(random.below(plane->open.size()));
      }
      poll();
      if (preemptions == 0 || !random.chance(0.3)) continue;
      --preemptions;
      ASSERT_TRUE(random.chance(0.5) ? cache->abort(RequestId(1)) : cache->finish(RequestId(1)));
      admitted = false;
      computed = 0;
    }
    settle();
    if (admitted) {
      ASSERT_TRUE(cache->finish(RequestId(1)));
    }
    settle();
    ASSERT_EQ(ready(keys), kBlocks) << "seed " << seed;
    ASSERT_EQ(plane->count(OpKind::kSave), kBlocks) << "seed " << seed;
    ASSERT_EQ(plane->count(OpKind::kStorePut), kBlocks) << "seed " << seed;
    const CacheStats stats = cache->stats();
    ASSERT_EQ(stats.save_failed + stats.save_dropped + stats.save_no_space + stats.put_failed, 0u);
    ASSERT_EQ(cache->check(true), "") << "seed " << seed;
  }
}

// F60: an aborted request's blocks went to another, and late data of the first came into them.
TEST_F(FieldCaseLife, F60DeviceBlocksAreKeptBackUntilTheSenderHasLetGo) {
  for (uint32_t arrived = 0; arrived < 4; ++arrived) {
    EXPECT_EQ(give_blocks_on_while_loading(arrived), "") << arrived;
  }
}

TEST_F(FieldCaseLife, F60WithoutTheReleaseLateDataComesIntoTheNextRequestsBlocks) {
  EXPECT_NE(give_blocks_on_while_loading(2, without(&Protections::device_release)), "");
}

// The engine's own pool of device blocks, shared by count. Names a block that is given back too
// often, or becomes free while a transfer may still touch it.
class ToyPool {
 public:
  ToyPool(uint32_t blocks, const FakeDataPlane& plane) : users_(blocks), plane_(plane) {}

  std::optional<DeviceBlockId> take() {
    for (uint32_t block = 0; block < users_.size(); ++block) {
      if (users_[block] > 0) continue;
      users_[block] = 1;
      return DeviceBlockId(block);
    }
    return std::nullopt;
  }
  void share(DeviceBlockId block) { ++users_[block.value()]; }
  void give_back(const std::vector<DeviceBlockId>& blocks) {
    for (const DeviceBlockId block : blocks) {
      if (users_[block.value()] == 0) {
        wrong = "a block is given back twice";
        return;
      }
      if (--users_[block.value()] > 0) continue;
      for (const auto& [op, rank] : plane_.open) {
        if (uses_device(op.kind) && op.device_block == block) {
          wrong = "a block is free while a transfer touches it";
        }
      }
    }
  }
  bool all_free() const {
    return std::all_of(users_.begin(), users_.end(), [](uint32_t users) { return users == 0; });
  }

  std::string wrong;

 private:
  std::vector<uint32_t> users_;
  const FakeDataPlane& plane_;
};

// Few lives over a small pool, with shared prefixes; ends come at any time and often twice.
class ToyLives {
 public:
  ToyLives(uint64_t seed, Cache& cache, FakeDataPlane& plane, ManualClock& clock)
      : random_(seed), cache_(cache), plane_(plane), clock_(clock), pool_(16, plane) {}

  std::string run(uint32_t steps) {
    for (uint32_t step = 0; step < steps && pool_.wrong.empty(); ++step) one_step();
    while (!lives_.empty() && pool_.wrong.empty()) end(0);
    for (int round = 0; round < 100 && pool_.wrong.empty(); ++round) {
      while (!plane_.open.empty()) plane_.complete(0);
      poll();
      if (plane_.open.empty() && cache_.idle()) break;
    }
    if (!pool_.wrong.empty()) return pool_.wrong;
    if (!parked_.empty()) return "device blocks were never released";
    if (!pool_.all_free()) return "device blocks were not given back";
    return cache_.check(true);
  }

 private:
  struct Life {
    RequestId id;
    uint32_t family = 0;
    std::vector<DeviceBlockId> blocks;
    uint32_t computed = 0;  // leading blocks with KV
    bool waits = false;     // for its load, or for its blocks
  };
  struct Parked {
    RequestId id;
    uint32_t generation = 0;
    std::vector<DeviceBlockId> blocks;
  };

  static const std::vector<BlockKey>& keys_of(uint32_t family) {
    static const std::vector<std::vector<BlockKey>> keys = {test_keys(5), test_keys(5, 1000),
                                                            test_keys(5, 2000)};
    return keys[family];
  }
  std::vector<BlockKey> keys_of(const Life& life) const {
    const auto& keys = keys_of(life.family);
    return {keys.begin(), keys.begin() + static_cast<ptrdiff_t>(life.blocks.size())};
  }

  void one_step() {
    const uint64_t choice = random_.below(6);
    if (choice == 0 || lives_.empty()) {
      start();
    } else if (choice == 1) {
      compute(lives_[random_.below(lives_.size())]);
    } else if (choice == 2) {
      end(random_.below(lives_.size()));
    } else if (choice == 3 && !plane_.open.empty()) {
      const double fate = random_.real();
      plane_.complete(random_.below(plane_.open.size()), fate < 0.8   ? Code::kOk
                                                         : fate < 0.9 ? Code::kCorrupt
                                                                      : Code::kUnavailable);
    } else if (choice == 4) {
      clock_.advance(Duration(random_.below(2'000'000)));
    }
    poll();
  }

  void start() {
    Life life;
    life.family = static_cast<uint32_t>(random_.below(3));
    // Ids come back soon: a preempted request under its own id.
    life.id = RequestId(random_.below(6));
    for (const Life& other : lives_) {
      if (other.id == life.id) return;
    }
    const auto count = static_cast<uint32_t>(random_.between(1, 5));
    for (const Life& other : lives_) {
      if (other.family != life.family || other.waits) continue;
      for (uint32_t i = life.computed; i < std::min(other.computed, count); ++i) {
        life.blocks.push_back(other.blocks[i]);
        pool_.share(life.blocks.back());
        ++life.computed;
      }
    }
    while (life.blocks.size() < count) {
      const auto block = pool_.take();
      if (!block) {
        pool_.give_back(life.blocks);
        return;
      }
      life.blocks.push_back(*block);
    }
    if (random_.chance(0.7)) {
      const auto started =
          cache_.load(life.id, keys_of(life), life.computed,
                      std::span(life.blocks).subspan(life.computed), clock_.now() + 1ms);
      if (!started) pool_.wrong = started.error().to_string();
      life.waits = started && *started > 0;
    }
    lives_.push_back(std::move(life));
  }

  void compute(Life& life) {
    if (life.waits) return;
    const auto blocks = static_cast<uint32_t>(random_.between(0, life.blocks.size()));
    life.computed = std::max(life.computed, blocks);
    if (!cache_.save(life.id, keys_of(life), 0, life.blocks) ||
        !cache_.commit(life.id, uint64_t{life.computed} * 4)) {
      pool_.wrong = "a save was refused";
    }
  }

  void end(size_t index) {
    Life life = std::move(lives_[index]);
    lives_.erase(lives_.begin() + static_cast<ptrdiff_t>(index));
    const auto farewell = random_.chance(0.5) ? cache_.finish(life.id) : cache_.abort(life.id);
    if (farewell && farewell->device_busy) {
      parked_.push_back({life.id, farewell->generation, std::move(life.blocks)});
    } else {
      pool_.give_back(life.blocks);
    }
    // Finish after preempt, abort after finish: refused, and nothing comes of it.
    if (random_.chance(0.5) && (cache_.finish(life.id) || cache_.abort(life.id))) {
      pool_.wrong = "a second end was taken";
    }
  }

  void poll() {
    CacheEvent events[16];
    for (const CacheEvent& event : std::span(events).first(cache_.poll(events))) {
      const auto parked = std::find_if(parked_.begin(), parked_.end(), [&](const Parked& p) {
        return p.id == event.request && p.generation == event.generation;
      });
      const auto life = std::find_if(lives_.begin(), lives_.end(),
                                     [&](const Life& l) { return l.id == event.request; });
      if (event.kind == EventKind::kLoadDone && life != lives_.end()) {
        life->computed = std::max(life->computed, event.blocks);
        life->waits = event.device_busy;
      } else if (event.kind == EventKind::kDeviceReleased && parked != parked_.end()) {
        pool_.give_back(parked->blocks);
        parked_.erase(parked);
      } else if (event.kind == EventKind::kDeviceReleased && life != lives_.end()) {
        life->waits = false;
      } else {
        pool_.wrong = "an event for nobody";
      }
    }
  }

  Random random_;
  Cache& cache_;
  FakeDataPlane& plane_;
  ManualClock& clock_;
  ToyPool pool_;
  std::vector<Life> lives_;
  std::vector<Parked> parked_;
};

class FieldCaseBlocks : public FieldCase {
 protected:
  void open_for_lives(const Protections& protections = {}) {
    plane = std::make_unique<FakeDataPlane>();
    cache = CacheFactory::create(protections, test_config(8), *plane, clock).value();
  }
  std::string random_lives(uint64_t seed) {
    plane->all.clear();
    return ToyLives(seed, *cache, *plane, clock).run(200);
  }
};

// F17: blocks were recycled more than once when requests ended in more than one way.
TEST_F(FieldCaseBlocks, F17ABlockComesBackOnceAndOnlyWhenItsLastUserIsGone) {
  open_for_lives();
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    ASSERT_EQ(random_lives(seed), "") << "seed " << seed;
  }
}

TEST_F(FieldCaseBlocks, F17WithoutTheReleaseABlockComesBackTooEarly) {
  open_for_lives(without(&Protections::device_release));
  std::string wrong;
  for (uint64_t seed = 0; seed < 100 && wrong.empty(); ++seed) {
    wrong = random_lives(seed);
  }
  EXPECT_EQ(wrong, "a block is free while a transfer touches it");
}

}  // namespace
}  // namespace tiercel
