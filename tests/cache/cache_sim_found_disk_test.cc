// SPDX-License-Identifier: Apache-2.0
//
// Faults around the disk tier that the simulation has found, each in the fewest steps that show it.
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_fixture.h"
#include "cache/protections.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A plane whose ranks may lose their memory.
class ForgetfulPlane final : public DataPlane {
 public:
  explicit ForgetfulPlane(FakeDataPlane& inner) : inner_(inner) {}
  uint32_t rank_count() const override { return inner_.rank_count(); }
  size_t submit_capacity() const override { return inner_.submit_capacity(); }
  bool submit(std::span<const BlockOp> ops) override { return inner_.submit(ops); }
  size_t poll(std::span<Completion> out) override { return inner_.poll(out); }
  int completion_fd() const override { return -1; }
  RankStats stats(uint32_t rank) const override { return inner_.stats(rank); }
  uint64_t memory_epoch(uint32_t /*rank*/) const override { return epoch; }
  Status close(TimePoint deadline) override { return inner_.close(deadline); }

  uint64_t epoch = 0;  // of every rank

 private:
  FakeDataPlane& inner_;
};

class SimFoundDisk : public CacheFixture {
 protected:
  // `on_disk`: what a restart has found, a path.
  void open_with_disk(const CacheConfig& config, const std::vector<BlockKey>& on_disk = {},
                      size_t capacity = 4096) {
    config_ = config;
    plane = std::make_unique<FakeDataPlane>(
        static_cast<uint32_t>(config.payload_bytes.front().size()), capacity);
    forgetful = std::make_unique<ForgetfulPlane>(*plane);
    DiskParts parts{SlotGeometry::for_blocks(config.payload_bytes, 16, 1).value(), {}};
    for (uint32_t i = 0; i < on_disk.size(); ++i) {
      parts.contents.blocks.push_back({.slot = SlotId(i),
                                       .group = GroupId(0),
                                       .has_parent = i > 0,
                                       .key = on_disk[i],
                                       .parent = i > 0 ? on_disk[i - 1] : BlockKey{},
                                       .sequence = i + 1});
    }
    auto created = CacheFactory::create(Protections{}, config, *forgetful, clock, &parts);
    ASSERT_TRUE(created) << created.error().to_string();
    cache = *std::move(created);
  }

  void commit_all(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(count)));
    ASSERT_TRUE(cache->commit(RequestId(request), uint64_t{count} * 4));
  }

  std::unique_ptr<ForgetfulPlane> forgetful;
};

// A clear that fails is tried again, and what was put to disk meanwhile would go with it.
TEST_F(SimFoundDisk, NothingIsPutToDiskBeforeAClearIsThrough) {
  open_with_disk(test_config(16));
  cache->clear();
  poll();
  ASSERT_EQ(plane->open_count(OpKind::kDiskClear), 1u);
  commit_all(1, test_keys(2));
  plane->complete_all(OpKind::kSave);
  poll();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 0u);
  plane->complete_all(OpKind::kDiskClear, Code::kUnavailable);
  poll();
  clock.advance(seconds(1));
  poll();
  ASSERT_EQ(plane->open_count(OpKind::kDiskClear), 1u);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 0u);
  plane->complete_all(OpKind::kDiskClear);
  poll();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 2u);
}

TEST_F(SimFoundDisk, ADiskThatDoesNotClearHoldsUpNoSecondClear) {
  open_with_disk(test_config(16));
  cache->clear();
  poll();
  commit_all(1, test_keys(2));
  plane->complete_all(OpKind::kSave);
  poll();  // their puts wait for the disk
  cache->clear();
  cache->clear();
  for (int i = 0; i < 4; ++i) poll();
  commit_all(2, test_keys(2, 100));
  plane->complete_all(OpKind::kSave);
  poll();
  EXPECT_EQ(ready(test_keys(2, 100)), 2u);
}

// The second has to wait for a request that still holds a block of before the first.
TEST_F(SimFoundDisk, IsNotIdleBeforeEveryClearHasBegun) {
  open_with_disk(test_config(16));
  const auto keys = test_keys(2);
  store(1, keys);
  ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(2), in(seconds(1))).value_or(0), 2u);
  settle();
  cache->clear();
  settle();
  cache->clear();
  plane->complete_all(OpKind::kDiskClear);
  for (int i = 0; i < 4; ++i) {
    poll();
    plane->complete_all(OpKind::kDiskClear);
  }
  EXPECT_FALSE(cache->idle());
  ASSERT_TRUE(cache->finish(RequestId(2)));
  settle();
  const size_t submitted = plane->all.size();
  for (int i = 0; i < 4; ++i) poll();
  EXPECT_EQ(plane->all.size(), submitted);
}

TEST_F(SimFoundDisk, AClearThatWaitsForRoomHasADeadlineAhead) {
  open_with_disk(test_config(16), {}, 4);
  commit_all(1, test_keys(2));
  while (plane->submit_capacity() > 0) {
    plane->open.push_back({BlockOp{}, 0});  // of somebody else
  }
  cache->clear();
  clock.advance(milliseconds(1));
  poll();
  ASSERT_EQ(plane->count(OpKind::kDiskClear), 0u);
  EXPECT_GT(cache->next_deadline(), clock.now());
}

// One rank has its part of the block, the other loses its own after it has said so.
TEST_F(SimFoundDisk, ABlockThatARankLosesOnTheWayIsNotPublished) {
  open_with_disk(test_config(16, 2));
  const auto keys = test_keys(1);
  commit_all(1, keys);
  ASSERT_EQ(plane->open_count(OpKind::kSave), 2u);
  plane->complete(0);
  poll();
  ++forgetful->epoch;
  poll();
  plane->complete_all(OpKind::kSave);
  poll();
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(cache->stats().save_failed, 1u);
}

// Of two records of a block a restart takes the newer one. If that is not the one that the cache
// knows of, its slot may be half written over by then, and the whole copy beside it is lost.
TEST_F(SimFoundDisk, ABlockIsNotPutAgainWhileThePutOfACopyThatIsGoneMayStillEndWell) {
  open_with_disk(test_config(16, 2));
  const auto keys = test_keys(1);
  commit_all(1, keys);
  plane->complete_all(OpKind::kSave);
  poll();
  ASSERT_EQ(plane->open_count(OpKind::kDiskPut), 2u);
  plane->complete(0);
  poll();  // what the first rank has said of it holds, whatever becomes of its memory
  ++forgetful->epoch;
  poll();
  commit_all(2, keys);
  plane->complete_all(OpKind::kSave);
  poll();
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 1u);
  plane->complete_all(OpKind::kDiskPut);
  settle();
  EXPECT_EQ(cache->stats().disk_put_blocks, 1u);
  EXPECT_EQ(plane->count(OpKind::kDiskPut), 1u);
}

TEST_F(SimFoundDisk, ABlockWhosePutFailsAfterItsCopyIsGoneIsPutAgainAtTheNextSave) {
  open_with_disk(test_config(16, 2));
  const auto keys = test_keys(1);
  commit_all(1, keys);
  plane->complete_all(OpKind::kSave);
  poll();
  ++forgetful->epoch;
  poll();
  plane->complete_all(OpKind::kDiskPut, Code::kUnavailable);
  poll();
  commit_all(2, keys);
  settle();
  EXPECT_EQ(cache->stats().disk_put_blocks, 1u);
}

// Blocks that were not put to disk must stay in the host tier as long as others behind them are on
// disk: when there is nothing else left, they go to disk, or those behind them go.
TEST_F(SimFoundDisk, AHostTierFullOfBlocksThatMayNotGoMakesRoom) {
  const auto keys = test_keys(5);
  open_with_disk(test_config(4), keys);
  const std::vector<BlockKey> head(keys.begin(), keys.begin() + 4);
  ASSERT_EQ(cache->load(RequestId(1), head, 0, device(4), in(seconds(1))).value_or(0), 4u);
  plane->complete_all(OpKind::kDiskGet, Code::kCorrupt);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  commit_all(2, head);
  plane->complete_all(OpKind::kSave);
  poll();
  plane->complete_all(OpKind::kDiskPut, Code::kUnavailable);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(2)));
  ASSERT_TRUE(cache->idle());
  ASSERT_EQ(cache->stats().host_slots_free, 0u);
  const auto others = test_keys(1, 100);
  commit_all(3, others);
  settle();
  EXPECT_EQ(ready(others), 1u);
}

}  // namespace
}  // namespace tiercel
