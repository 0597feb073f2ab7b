// SPDX-License-Identifier: Apache-2.0
//
// How the rank worker uses its device copier: few calls for many blocks, and what becomes of a
// device that fails.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "transfer/rank_fixture.h"
#include "transfer/rank_worker.h"
#include "transfer/slot_io.h"

namespace tiercel {
namespace {

using namespace testing;

// Counts calls, and fails where it is told to.
class SpyCopier final : public DeviceCopier {
 public:
  explicit SpyCopier(DeviceCopier& inner) : inner_(inner) {}

  uint32_t block_count(GroupId group) const override { return inner_.block_count(group); }
  uint32_t layer_count(GroupId group) const override { return inner_.layer_count(group); }
  uint64_t payload_bytes(GroupId group) const override { return inner_.payload_bytes(group); }
  Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override {
    TIERCEL_TRY(call(copies));
    return inner_.gather(group, copies, observer);
  }
  Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override {
    TIERCEL_TRY(call(copies));
    return inner_.scatter(group, copies, observer);
  }

  std::vector<size_t> calls;  // blocks of each
  bool fails = false;

 private:
  Status call(std::span<const DeviceCopy> copies) {
    calls.push_back(copies.size());
    if (!fails) return {};
    for (const DeviceCopy& copy : copies) copy.payload[0] ^= std::byte{1};
    return Error(Code::kUnavailable, "the device is lost");
  }

  DeviceCopier& inner_;
};

class RankWorkerCopyTest : public ::testing::Test {
 protected:
  RankWorkerCopyTest() : rank_(geometry_, 0, 8), spy_(rank_.copier()) {
    worker_ = RankWorker::create(rank_.options(), geometry_, rank_.host(), &spy_, nullptr, clock_)
                  .value();
  }
  SlotId slot(uint32_t n, uint8_t group = 0) { return nth_slot(geometry_, GroupId(group), n); }
  std::vector<Code> run(std::vector<BlockOp> ops, uint32_t ops_max = 100) {
    for (uint32_t i = 0; i < ops.size(); ++i) ops[i].item = i;
    worker_->submit(ops);
    while (worker_->progress(ops_max)) {
    }
    std::vector<Completion> completions(ops.size());
    EXPECT_EQ(worker_->take(completions), ops.size());
    std::vector<Code> codes(ops.size());
    for (const Completion& completion : completions) codes[completion.item] = completion.code;
    return codes;
  }
  static std::vector<Code> all(size_t count, Code code) { return std::vector<Code>(count, code); }

  ManualClock clock_;
  SlotGeometry geometry_ = uneven_geometry();
  TestRank rank_;
  SpyCopier spy_;
  std::unique_ptr<RankWorker> worker_;
};

TEST_F(RankWorkerCopyTest, ManyBlocksAreOneCall) {
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 6; ++i) ops.push_back(make_op(OpKind::kSave, i, slot(i), i));
  EXPECT_EQ(run(ops), all(6, Code::kOk));
  EXPECT_EQ(spy_.calls, std::vector<size_t>{6});
  for (BlockOp& op : ops) op.kind = OpKind::kLoad;
  spy_.calls.clear();
  EXPECT_EQ(run(ops, 4), all(6, Code::kOk));
  EXPECT_EQ(spy_.calls, (std::vector<size_t>{4, 2}));
}

TEST_F(RankWorkerCopyTest, ACallIsAboutOneGroupAndWritesNoPlaceTwice) {
  // The third slot is in an extent that no other one uses.
  EXPECT_EQ(run({make_op(OpKind::kSave, 0, slot(0), 0), make_op(OpKind::kSave, 1, slot(1), 1),
                 make_op(OpKind::kSave, 2, slot(10, 1), 0, GroupId(1))}),
            all(3, Code::kOk));
  EXPECT_EQ(spy_.calls, (std::vector<size_t>{2, 1}));

  // The last one wins, as if they had come one by one. Reading a place twice is nothing special.
  spy_.calls.clear();
  EXPECT_EQ(run({make_op(OpKind::kSave, 3, slot(2), 3), make_op(OpKind::kSave, 4, slot(3), 3),
                 make_op(OpKind::kSave, 5, slot(2), 4)}),
            all(3, Code::kOk));
  EXPECT_EQ(spy_.calls, (std::vector<size_t>{2, 1}));
  const auto saved = rank_.slot_payload(slot(2), GroupId(0));
  EXPECT_TRUE(std::equal(saved.begin(), saved.end(), rank_.device_block(GroupId(0), 4).begin()));

  spy_.calls.clear();
  EXPECT_EQ(run({make_op(OpKind::kLoad, 0, slot(0), 6), make_op(OpKind::kLoad, 1, slot(1), 6),
                 make_op(OpKind::kLoad, 1, slot(1), 7)}),
            all(3, Code::kOk));
  EXPECT_EQ(spy_.calls, (std::vector<size_t>{1, 2}));
  const auto source = rank_.slot_payload(slot(1), GroupId(0));
  EXPECT_TRUE(std::equal(source.begin(), source.end(), rank_.device_block(GroupId(0), 6).begin()));
}

TEST_F(RankWorkerCopyTest, LateAndUnprovenBlocksAreLeftOutOfTheCall) {
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 4; ++i) ops.push_back(make_op(OpKind::kSave, i, slot(i), i));
  ASSERT_EQ(run(ops), all(4, Code::kOk));
  for (BlockOp& op : ops) op.kind = OpKind::kLoad;
  ops[0].key = test_key(77);                                   // its frame says otherwise
  rank_.slot_payload(slot(2), GroupId(0))[5] ^= std::byte{1};  // found only by the checksum
  rank_.take_picture();
  spy_.calls.clear();
  EXPECT_EQ(run(ops), (std::vector<Code>{Code::kCorrupt, Code::kOk, Code::kCorrupt, Code::kOk}));
  EXPECT_EQ(spy_.calls, std::vector<size_t>{3});
  EXPECT_TRUE(
      rank_.only_changed({rank_.device_range(GroupId(0), 1), rank_.device_range(GroupId(0), 2),
                          rank_.device_range(GroupId(0), 3)}));
}

TEST_F(RankWorkerCopyTest, AFailedDeviceFailsItsBlocksAndLeavesNoSlotThatProves) {
  const BlockOp save = make_op(OpKind::kSave, 0, slot(0), 0);
  BlockOp load = save;
  load.kind = OpKind::kLoad;
  ASSERT_EQ(run({save}), all(1, Code::kOk));
  spy_.fails = true;
  EXPECT_EQ(run({save, make_op(OpKind::kSave, 1, slot(1), 1)}), all(2, Code::kUnavailable));
  spy_.fails = false;
  // Not even its frame: a put looks at nothing else.
  uint32_t checksum = 0;
  EXPECT_EQ(SlotIo(geometry_, 0, rank_.options().slice, test_namespace(), 5, rank_.host())
                .check(save, &checksum),
            Code::kCorrupt);
  EXPECT_EQ(run({load}), all(1, Code::kCorrupt));
  ASSERT_EQ(run({save}), all(1, Code::kOk));
  spy_.fails = true;
  EXPECT_EQ(run({load}), all(1, Code::kUnavailable));
  const RankStats stats = worker_->stats();
  EXPECT_EQ(stats.path(OpKind::kSave).failed, 2u);
  EXPECT_EQ(stats.path(OpKind::kLoad).failed, 2u);
  EXPECT_EQ(stats.path(OpKind::kLoad).corrupt, 1u);
}

}  // namespace
}  // namespace tiercel
