// SPDX-License-Identifier: Apache-2.0
//
// Random requests over small tiers, with transfers that end in any order, in any way, late or
// twice. The test keeps its own picture of what stands in every slot on every rank: no transfer may
// ever read a slot that holds another block, or meet another that writes to its slot.
#include <map>
#include <set>

#include "cache/disk_cache_fixture.h"
#include "index/block_index.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

// What may go wrong in a run.
struct Weather {
  bool failures = true;  // transfers end badly or late, memory is lost, disks are given up
};

class RandomRun : public DiskCacheFixture {
 protected:
  void TestBody() override {}

 public:
  RandomRun(uint64_t seed, Weather weather) : random_(seed), weather_(weather) {}

  // What went wrong first; empty if nothing did.
  std::string run(uint32_t steps) {
    open_at_random();
    for (uint32_t i = 0; i < steps && wrong_.empty(); ++i) {
      step();
      look();
    }
    if (wrong_.empty()) come_to_rest();
    return wrong_;
  }

  CacheStats stats() const { return cache->stats(); }

 private:
  struct Living {
    std::vector<BlockKey> keys;
    bool loads = false;
  };
  struct Slot {
    std::optional<BlockKey> holds;
    uint64_t put = 0;  // disk: which submission wrote the record
  };

  bool one_in(uint64_t n) { return random_.below(n) == 0; }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  void open_at_random() {
    CacheConfig config = test_config(static_cast<uint32_t>(4 + random_.below(12)),
                                     static_cast<uint32_t>(1 + random_.below(3)), one_in(2));
    if (one_in(2)) {
      config.spec = test_spec(2);
      config.spec.groups[1].attention = AttentionKind::kWindow;
      config.spec.groups[1].window_tokens = 8;
      config.payload_bytes.push_back(config.payload_bytes[0]);
    }
    config.host_extents = static_cast<uint32_t>(1 + random_.below(4));
    config.request_blocks_max = 16;
    config.host_to_disk = std::array{WritePolicy::kWriteThrough, WritePolicy::kWriteBack,
                                     WritePolicy::kWriteThroughSelective}[random_.below(3)];
    config.eviction_policy = one_in(2) ? "lru" : "s3fifo";
    config.job_blocks_max = static_cast<uint32_t>(1 + random_.below(8));
    config.jobs_in_flight_max = static_cast<uint32_t>(4 + random_.below(60));
    config.prefetch_blocks_max = static_cast<uint32_t>(1 + random_.below(16));
    config.disk_put_queue_max = static_cast<uint32_t>(1 + random_.below(16));
    config.sweep_nodes_per_poll = static_cast<uint32_t>(1 + random_.below(64));
    config.completions_per_poll_max = static_cast<uint32_t>(1 + random_.below(64));
    config.save_deadline = weather_.failures ? Duration(500ms) : Duration(1h);
    config.hold_limit = 5s;
    config.replicated_slices = one_in(3);
    bounds_puts = one_in(2);
    open_disk(config, static_cast<uint32_t>(4 + random_.below(24)), {},
              static_cast<size_t>(8 + random_.below(200)));
    plane->memory_epochs.resize(plane->rank_count());
    host_.resize(plane->rank_count());
    disk_.resize(plane->rank_count());
    cleared_.resize(plane->rank_count());
    for (uint32_t path = 0; path < 8; ++path) paths_.push_back(make_path(path));
  }

  // Paths share beginnings: path n leaves path n / 2 at some block.
  std::vector<BlockKey> make_path(uint32_t path) {
    Sequence sequence(make_root(*make_namespace(config_.spec), Scope{}), 4);
    std::vector<TokenId> tokens;
    for (uint32_t block = 0; block < 10; ++block) {
      const uint32_t branch = block < 3 ? path / 4 : block < 6 ? path / 2 : path;
      for (uint32_t token = 0; token < 4; ++token) tokens.push_back(branch * 100 + block);
    }
    sequence.append(tokens);
    return {sequence.keys().begin(), sequence.keys().end()};
  }

  void step() {
    const uint64_t choice = random_.below(100);
    if (choice < 8) return begin_request();
    if (choice < 16) return go_on();
    if (choice < 22) return end_request();
    if (choice < 75) return complete_one();
    if (choice < 92) return take_in();
    if (choice < 95) return clock.advance(Duration(std::chrono::milliseconds(random_.below(200))));
    if (choice < 96) return one_in(5) ? clear() : take_in();
    if (choice < 97 && weather_.failures) return one_in(3) ? lose_memory() : take_in();
    if (choice < 98 && weather_.failures) {
      set_disk(static_cast<uint32_t>(random_.below(plane->rank_count())),
               one_in(2) ? StoreCondition::kOpen : StoreCondition::kUp);
      return;
    }
    // An answer that nobody waits for.
    if (!plane->all.empty() && plane->all_polled()) {
      const BlockOp& op = plane->all[random_.below(plane->all.size())];
      const bool is_open = std::any_of(
          plane->open.begin(), plane->open.end(),
          [&](const auto& open) { return open.op.job == op.job && open.op.item == op.item; });
      if (!is_open) plane->raw(Completion{op.job, op.item, 0, Code::kOk, 0});
    }
  }

  TimePoint some_deadline() {
    if (!weather_.failures || one_in(3)) return kNoDeadline;
    return in(std::chrono::milliseconds(random_.below(300)));
  }

  void begin_request() {
    if (living_.size() >= 4) return;
    const std::vector<BlockKey>& path = paths_[random_.below(paths_.size())];
    const size_t count = 1 + random_.below(path.size());
    living_[++last_id_] = {.keys = {path.begin(), path.begin() + static_cast<ptrdiff_t>(count)}};
    cache->match(living_[last_id_].keys, 0);
    go_on(last_id_);
  }

  void go_on() {
    if (!living_.empty()) go_on(some_request());
  }
  uint64_t some_request() {
    return std::next(living_.begin(), static_cast<ptrdiff_t>(random_.below(living_.size())))->first;
  }
  void go_on(uint64_t id) {
    const std::vector<BlockKey>& keys = living_[id].keys;
    const auto count = static_cast<uint32_t>(keys.size());
    const uint32_t computed =
        weather_.failures && one_in(3) ? static_cast<uint32_t>(random_.below(count + 1)) : 0;
    switch (random_.below(3)) {
      case 0:
        (void)cache->prefetch(RequestId(id), keys, computed, some_deadline());
        break;
      case 1: {
        auto blocks = device(count - computed, static_cast<uint32_t>(id) * 100);
        (void)cache->load(RequestId(id), keys, computed, blocks, some_deadline());
        break;
      }
      default:
        EXPECT_TRUE(cache->save(RequestId(id), keys, 0,
                                device(count, static_cast<uint32_t>(id) * 100 + 50)));
        EXPECT_TRUE(cache->commit(RequestId(id), random_.below(uint64_t{count} * 4 + 1)));
    }
  }

  void end_request() {
    if (living_.empty()) return;
    const uint64_t id = some_request();
    living_.erase(id);
    EXPECT_TRUE(one_in(2) ? cache->finish(RequestId(id)) : cache->abort(RequestId(id)));
  }

  void take_in() {
    std::vector<CacheEvent> events(1 + random_.below(16));
    cache->poll(events);
    if (!clears_.empty() && cache->idle()) {
      for (const auto& slots : disk_) {
        for (const auto& [slot, content] : slots) {
          if (content.holds && content.put < clears_.back()) {
            fail("a record of before a clear is on disk after it");
          }
        }
      }
      clears_.clear();
    }
  }

  void clear() {
    cache->clear();
    clears_.push_back(plane->all.size());
  }

  void lose_memory() {
    const auto rank = static_cast<uint32_t>(random_.below(plane->rank_count()));
    // Where all ranks share one memory it is lost for all.
    for (uint32_t r = 0; r < plane->rank_count(); ++r) {
      if (r != rank && !config_.replicated_slices) continue;
      ++plane->memory_epochs[r];
      memory(r).clear();
      plane->spoil(r, Code::kUnavailable);
      for (size_t i = plane->open.size(); i-- > 0;) {
        if (plane->open[i].rank == r) complete(i, Code::kUnavailable);
      }
    }
    take_in();
  }

  std::map<uint32_t, Slot>& memory(uint32_t rank) {
    return host_[config_.replicated_slices ? 0 : rank];
  }

  void complete_one() {
    if (plane->open.empty()) return;
    Code code = Code::kOk;
    if (weather_.failures && one_in(8)) {
      code = std::array{Code::kUnavailable, Code::kCorrupt, Code::kNoSpace,
                        Code::kNotFound,    Code::kTimeout, Code::kInvalid}[random_.below(6)];
    } else if (one_in(20)) {
      const size_t at = random_.below(plane->open.size());
      // Disks refuse puts in fair weather too.
      if (plane->open[at].op.kind == OpKind::kDiskPut) return complete(at, Code::kUnavailable);
    }
    complete(random_.below(plane->open.size()), code);
  }

  // Carries it out in the picture.
  void complete(size_t index, Code code) {
    const BlockOp op = plane->open[index].op;
    const uint32_t rank = plane->open[index].rank;
    Slot& slot = memory(rank)[op.slot.value()];
    const bool lost = code == Code::kUnavailable;
    switch (op.kind) {
      case OpKind::kSave:
      case OpKind::kStoreGet:
        slot.holds.reset();
        if (code == Code::kOk) slot.holds = op.key;
        break;
      case OpKind::kDiskGet: {
        const Slot& from = disk_[rank][op.disk_slot.value()];
        if (code == Code::kOk && from.holds != op.key)
          fail("a disk slot is read for another block");
        slot.holds.reset();
        if (code == Code::kOk) slot.holds = op.key;
        break;
      }
      case OpKind::kLoad:
      case OpKind::kStorePut:
        if (!lost && slot.holds != op.key) {
          fail("a slot is read for another block by a " + std::string(to_string(op.kind)));
        }
        break;
      case OpKind::kDiskPut: {
        if (!lost && slot.holds != op.key) fail("a slot is put to disk for another block");
        Slot& to = disk_[rank][op.disk_slot.value()];
        to.holds.reset();
        if (code == Code::kOk) to = {op.key, is_cleared(op, rank) ? kCleared : submission_of(op)};
        break;
      }
      case OpKind::kDiskClear:
        if (code != Code::kOk) break;
        cleared_[rank] = std::max(cleared_[rank], submission_of(op));
        for (auto& [number, content] : disk_[rank]) {
          // Blocks of after it are still there.
          if (content.put < submission_of(op)) content.put = kCleared;
        }
        break;
      default:
        break;
    }
    plane->complete(index, code);
  }

  static constexpr uint64_t kCleared = UINT64_MAX;
  uint64_t submission_of(const BlockOp& op) const {
    const auto found = std::find_if(
        plane->all.rbegin(), plane->all.rend(),
        [&](const BlockOp& other) { return other.job == op.job && other.item == op.item; });
    return static_cast<uint64_t>(plane->all.rend() - found) - 1;
  }

  // A rank makes sure of it for puts that are under way when it clears.
  bool is_cleared(const BlockOp& op, uint32_t rank) const {
    return submission_of(op) < cleared_[rank];
  }

  static bool writes_host(OpKind kind) {
    return kind == OpKind::kSave || kind == OpKind::kStoreGet || kind == OpKind::kDiskGet;
  }

  void look() {
    if (std::string wrong = cache->check(false); !wrong.empty()) fail(wrong);
    // F58, F59: no count is ever below zero, and each level's add up.
    const CacheStats stats = cache->stats();
    if (stats.disk_slots_free > stats.disk_slots_total ||
        stats.host_slots_free > stats.host_slots_total) {
      fail("more slots are used than there are");
    }
    // Nobody meets a writer in a slot.
    std::map<std::pair<uint32_t, uint32_t>, std::set<JobId>> host_users, host_writers, disk_users,
        disk_writers;
    for (const auto& open : plane->open) {
      const auto host = std::pair(open.rank, open.op.slot.value());
      const auto disk = std::pair(open.rank, open.op.disk_slot.value());
      if (uses_slot(open.op.kind)) host_users[host].insert(open.op.job);
      if (writes_host(open.op.kind)) host_writers[host].insert(open.op.job);
      if (uses_disk_slot(open.op.kind)) disk_users[disk].insert(open.op.job);
      if (open.op.kind == OpKind::kDiskPut) disk_writers[disk].insert(open.op.job);
    }
    for (const auto& [slot, jobs] : host_writers) {
      if (host_users[slot].size() > 1) fail("two transfers in a host slot, one of which writes");
    }
    for (const auto& [slot, jobs] : disk_writers) {
      if (disk_users[slot].size() > 1) fail("two transfers in a disk slot, one of which writes");
    }
    if (!weather_.failures && plane->open_count(OpKind::kSave) == 0 &&
        plane->open_count(OpKind::kStoreGet) == 0 && plane->all_polled()) {
      look_at_closure();
    }
  }

  // What is in any tier has the block before it in some tier.
  void look_at_closure() {
    const BlockIndex& index = cache->index();
    for (const auto& path : paths_) {
      for (size_t i = 1; i < path.size(); ++i) {
        const NodeId node = index.find(path[i], GroupId(0));
        if (node == kNoNode || index.tiers(node) == 0) continue;
        const NodeId parent = index.find(path[i - 1], GroupId(0));
        if (parent == kNoNode || index.tiers(parent) == 0) {
          fail("block " + std::to_string(i) + " is in tiers " + std::to_string(index.tiers(node)) +
               " without the one before it");
        }
      }
    }
  }

  void come_to_rest() {
    for (uint32_t rank = 0; rank < plane->rank_count(); ++rank) set_disk(rank, StoreCondition::kUp);
    while (!living_.empty()) end_request();
    for (int round = 0; round < 2000 && wrong_.empty(); ++round) {
      while (!plane->open.empty()) complete(0, Code::kOk);
      take_in();
      if (plane->open.empty() && cache->idle()) {
        for (int i = 0; i < 20; ++i) take_in();
        if (plane->open.empty()) break;
      }
      clock.advance(10ms);
    }
    if (std::string wrong = cache->check(true); !wrong.empty()) {
      fail(wrong + "; last: " + std::string(to_string(plane->all.back().kind)));
    }
    const CacheStats stats = cache->stats();
    if (stats.disk_slots_quarantined != 0) fail("disk slots stay in quarantine");
    if (!takes_blocks_again()) fail("no block is stored any more");
  }

  // Whatever happened before. With several groups an extent may have to be emptied first.
  bool takes_blocks_again() {
    for (uint64_t i = 0; i < 40; ++i) {
      const RequestId id(1'000'000 + i);
      const auto keys = test_keys(1, 100000 + static_cast<uint32_t>(i) * 100);
      EXPECT_TRUE(cache->save(id, keys, 0, device(1)));
      EXPECT_TRUE(cache->commit(id, 4));
      for (int round = 0; round < 5; ++round) {
        while (!plane->open.empty()) complete(0, Code::kOk);
        take_in();
        clock.advance(1s);
      }
      EXPECT_TRUE(cache->finish(id));
      if (ready(keys) == 1) return true;
    }
    return false;
  }

  Random random_;
  const Weather weather_;
  std::string wrong_;
  std::vector<std::vector<BlockKey>> paths_;
  std::map<uint64_t, Living> living_;
  uint64_t last_id_ = 0;
  std::vector<size_t> clears_;  // submissions before each, since the cache was idle
  std::vector<std::map<uint32_t, Slot>> host_, disk_;  // [rank], by slot
  std::vector<uint64_t> cleared_;  // [rank]: the last clear that was carried out, as a submission
};

void run_all(uint64_t first_seed, uint64_t runs, Weather weather, CacheStats* sum) {
  for (uint64_t seed = first_seed; seed < first_seed + runs; ++seed) {
    RandomRun run(seed, weather);
    EXPECT_EQ(run.run(1500), "") << "seed " << seed;
    const CacheStats stats = run.stats();
    sum->disk_put_blocks += stats.disk_put_blocks;
    sum->disk_get_blocks += stats.disk_get_blocks;
    sum->disk_evicted_blocks += stats.disk_evicted_blocks;
    sum->load_blocks += stats.load_blocks;
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(CacheDiskRandom, NoTransferMeetsAnotherBlockOrAnotherTransferWhateverHappens) {
  CacheStats sum;
  run_all(1, 60, Weather{}, &sum);
  // The runs were of use.
  EXPECT_GT(sum.disk_put_blocks, 100u);
  EXPECT_GT(sum.disk_get_blocks, 100u);
  EXPECT_GT(sum.disk_evicted_blocks, 20u);
  EXPECT_GT(sum.load_blocks, 100u);
}

TEST(CacheDiskRandom, PrefixesStayClosedOverTheUnionOfTheTiers) {
  CacheStats sum;
  run_all(1000, 60, Weather{.failures = false}, &sum);
  EXPECT_GT(sum.disk_put_blocks, 100u);
  EXPECT_GT(sum.disk_get_blocks, 100u);
  EXPECT_GT(sum.disk_evicted_blocks, 20u);
}

}  // namespace
}  // namespace tiercel
