// SPDX-License-Identifier: Apache-2.0
//
// F12: protection was by time only. A read that lasted longer than its lease returned bytes of
// another object, because the memory had been freed and filled again while the transfer went on.
//
// A real cache over a real rank worker, on a clock that is moved by hand. The store answers when
// the test says so: then the bytes of a get that is long over are written to the slot that it was
// given.
#include <algorithm>
#include <array>
#include <vector>

#include "cache/cache_fixture.h"
#include "cache/host_geometry.h"
#include "cache/protections.h"
#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"
#include "transfer/simulated_data_plane.h"

namespace tiercel {
namespace {

using std::chrono::seconds;

constexpr uint32_t kHostBlocks = 12;
constexpr uint32_t kLateBlocks = 4;
constexpr uint32_t kDeviceBlocks = 32;

CacheConfig late_config() {
  CacheConfig config = test_config(kHostBlocks, 1, true);
  config.quarantine_slots_max = kHostBlocks;
  config.host_to_store = WritePolicy::kNone;
  return config;
}

class LateTransfer {
 public:
  explicit LateTransfer(bool quarantine) : rank_(*host_geometry(late_config()), 0, kDeviceBlocks) {
    std::vector<std::unique_ptr<RankWorker>> workers;
    workers.push_back(rank_.make_worker(store_.make(), clock_));
    SimulatedFaults none;
    none.delay_max = Duration(0);
    plane_ = SimulatedDataPlane::create(std::move(workers), clock_, 1, none, 1024).value();
    Protections protections;
    protections.quarantine = quarantine;
    cache_ = CacheFactory::create(protections, late_config(), *plane_, clock_).value();
  }

  Cache& cache() { return *cache_; }

  // Polls until only the store is waited for; the code of the last prefetch or load that ended.
  Code run() {
    Code ended = Code::kOk;
    for (int quiet = 0; quiet < 3;) {
      plane_->run_due();
      std::array<CacheEvent, 16> events;
      const size_t count = cache_->poll(events);
      for (size_t i = 0; i < count; ++i) {
        if (events[i].kind != EventKind::kDeviceReleased) ended = events[i].code;
        if (events[i].kind == EventKind::kLoadDone) loaded_ = events[i].blocks;
      }
      quiet = count == 0 ? quiet + 1 : 0;
    }
    return ended;
  }

  // Device blocks from `first` on hold what belongs to the keys of `prompt`.
  void compute(uint64_t prompt, uint32_t count, uint32_t first) {
    for (uint32_t i = 0; i < count; ++i) {
      testing::fill_random(rank_.device_block(GroupId(0), first + i), prompt * 1000 + i);
    }
  }
  bool has(uint64_t prompt, uint32_t count, uint32_t first) {
    for (uint32_t i = 0; i < count; ++i) {
      std::vector<std::byte> expected(rank_.device_block(GroupId(0), 0).size());
      testing::fill_random(expected, prompt * 1000 + i);
      const auto is = rank_.device_block(GroupId(0), first + i);
      if (!std::equal(is.begin(), is.end(), expected.begin())) return false;
    }
    return true;
  }
  static std::vector<BlockKey> keys(uint64_t prompt, uint32_t count) {
    return test_keys(count, static_cast<uint32_t>(prompt) * 10'000);
  }
  static std::vector<DeviceBlockId> device(uint32_t first, uint32_t count) {
    std::vector<DeviceBlockId> blocks;
    for (uint32_t i = 0; i < count; ++i) blocks.emplace_back(first + i);
    return blocks;
  }

  void save(uint64_t prompt, uint32_t count) {
    compute(prompt, count, 0);
    const RequestId request(++last_request_);
    ASSERT_TRUE(cache_->save(request, keys(prompt, count), 0, device(0, count)));
    ASSERT_TRUE(cache_->commit(request, uint64_t{count} * 4));
    run();
    ASSERT_TRUE(cache_->finish(request));
    run();
  }
  // Blocks that arrive as ok; false if one of them is not the prompt's own.
  bool load(uint64_t prompt, uint32_t count, uint32_t* blocks) {
    const RequestId request(++last_request_);
    loaded_ = 0;
    const uint32_t first = kDeviceBlocks / 2;
    EXPECT_TRUE(cache_->load(request, keys(prompt, count), 0, device(first, count), kNoDeadline));
    run();
    EXPECT_TRUE(cache_->finish(request));
    run();
    *blocks = loaded_;
    return has(prompt, loaded_, first);
  }

  // Objects of prompt 0, as another engine has stored them.
  void fill_store() {
    const SlotId slot = testing::nth_slot(*host_geometry(late_config()), GroupId(0), 0);
    auto writer = rank_.make_worker(store_.make(), clock_);
    const auto blocks = keys(0, kLateBlocks);
    compute(0, kLateBlocks, 0);
    for (uint32_t i = 0; i < kLateBlocks; ++i) {
      BlockOp op = testing::make_op(OpKind::kSave, 0, slot, i);
      op.key = blocks[i];
      op.token_count = 4;
      ASSERT_EQ(testing::run_op(*writer, op), Code::kOk);
      op.kind = OpKind::kStorePut;
      ASSERT_EQ(testing::run_op(*writer, op), Code::kOk);
    }
  }

  // Starts to fetch them, with a second to go, and comes to where only the store is waited for.
  void start_late_get() {
    late_request_ = RequestId(++last_request_);
    ASSERT_TRUE(
        *cache_->prefetch(late_request_, keys(0, kLateBlocks), 0, clock_.now() + seconds(1)));
    store_.state->hold(true);
    for (int round = 0; round < 100; ++round) {
      run();
      const auto calls = store_.state->calls();
      if (calls.back().kind == OpKind::kStoreGet && store_.state->held() > 0) return;
      if (calls.back().kind == OpKind::kStoreExists) store_.state->release(1);
    }
    FAIL() << "the get never came";
  }
  // The lease is over.
  Code pass_the_deadline() {
    clock_.advance(seconds(2));
    const Code code = run();
    EXPECT_TRUE(cache_->finish(late_request_));
    return code;
  }
  void answer_the_get() {
    store_.state->hold(false);
    store_.state->release(100);
    run();
  }

 private:
  ManualClock clock_;
  testing::FakeStoreHandle store_;
  testing::TestRank rank_;
  std::unique_ptr<SimulatedDataPlane> plane_;
  std::unique_ptr<Cache> cache_;
  uint64_t last_request_ = 0;
  RequestId late_request_;
  uint32_t loaded_ = 0;
};

// One round: the get is answered after `pause` of the saves that fight for its memory. False if a
// block that the cache promised did not arrive, or arrived with other bytes.
bool all_promises_are_kept(bool quarantine, uint64_t seed) {
  constexpr uint32_t kPrompts = 4;
  Random random(seed);
  LateTransfer late(quarantine);
  late.fill_store();
  late.start_late_get();
  EXPECT_EQ(late.pass_the_deadline(), Code::kTimeout);
  if (quarantine) {
    EXPECT_EQ(late.cache().stats().host_slots_quarantined, kLateBlocks);
  }
  const uint64_t pause = random.below(kPrompts + 1);
  bool kept = true;
  for (uint64_t prompt = 1; prompt <= kPrompts + 1; ++prompt) {
    if (prompt == pause + 1) late.answer_the_get();
    if (prompt > kPrompts) break;
    const auto count = static_cast<uint32_t>(random.between(1, 6));
    late.save(prompt, count);
    EXPECT_GT(late.cache().match(LateTransfer::keys(prompt, count), 0).ready_blocks, 0u);
  }
  for (uint64_t prompt = 0; prompt <= kPrompts; ++prompt) {
    const auto keys = LateTransfer::keys(prompt, 6);
    const uint32_t promised = late.cache().match(keys, 0).ready_blocks;
    uint32_t blocks = 0;
    kept = late.load(prompt, 6, &blocks) && blocks == promised && kept;
    // What came too late is for nobody.
    if (prompt == 0) {
      EXPECT_EQ(promised, 0u);
    }
  }
  if (quarantine) {
    EXPECT_EQ(late.cache().check(true), "");
  }
  return kept;
}

TEST(FieldCaseF12, AReadThatOutlivesItsDeadlineNeverMeetsANewOwnerOfItsMemory) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ASSERT_TRUE(all_promises_are_kept(true, seed)) << "seed " << seed;
  }
  uint32_t broken = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) broken += all_promises_are_kept(false, seed) ? 0 : 1;
  EXPECT_GT(broken, 0u) << "the quarantine is not what protects them: this proves nothing";
}

}  // namespace
}  // namespace tiercel
