// SPDX-License-Identifier: Apache-2.0
//
// RankWorker and its rank's disk: over files in memory, with faults and hangs below.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tier/disk/rank_disk_rig.h"
#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"
#include "transfer/rank_worker.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;
using namespace testing;

class RankWorkerDiskTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kHostBlocks = 16;

  RankWorkerDiskTest()
      : geometry_(
            SlotGeometry::for_blocks(
                {{RankDiskRig::kPayloadBytes}, {RankDiskRig::kSmallPayloadBytes}}, kHostBlocks, 4)
                .value()),
        rank_(geometry_, 0, kHostBlocks) {}

  RankWorkerOptions options() const { return rank_.options(); }
  void open(std::unique_ptr<Store> store = nullptr) { open(options(), std::move(store)); }
  void open(const RankWorkerOptions& options, std::unique_ptr<Store> store = nullptr) {
    worker_.reset();
    rig_.stop();
    rig_.open();
    worker_ = rank_.make_worker(std::move(store), rig_.clock, options, std::move(rig_.rank_disk));
  }

  SlotId host_slot(uint32_t n, GroupId group = GroupId(0)) const {
    return nth_slot(geometry_, group, n);
  }
  SlotId disk_slot(uint32_t n, GroupId group = GroupId(0)) const {
    return nth_slot(*rig_.geometry, group, n);
  }
  // Block `block` in the host slot and in the disk slot of this number.
  BlockOp disk_op(OpKind kind, uint64_t block, uint32_t slot, uint32_t on_disk,
                  GroupId group = GroupId(0)) const {
    BlockOp op = make_op(kind, block, host_slot(slot, group), 0, group);
    if (uses_disk_slot(kind)) op.disk_slot = disk_slot(on_disk, group);
    op.item = next_item_++;
    return op;
  }

  // Goes on until the disk has done all it can for now.
  void settle() {
    for (int i = 0; i < 64; ++i) worker_->progress(8);
    std::vector<Completion> all(worker_->ops_in_flight());
    all.resize(worker_->take(all));
    for (const Completion& completion : all) {
      EXPECT_TRUE(ended_.emplace(completion.item, completion.code).second)
          << "item " << completion.item << " ended twice";
    }
  }
  void submit(const BlockOp& op) { worker_->submit({&op, 1}); }
  bool has_ended(const BlockOp& op) const { return ended_.contains(op.item); }
  Code code_of(const BlockOp& op) const {
    const auto found = ended_.find(op.item);
    return found == ended_.end() ? Code::kInternal : found->second;
  }
  Code run(const BlockOp& op) {
    submit(op);
    settle();
    EXPECT_TRUE(has_ended(op)) << to_string(op.kind);
    return code_of(op);
  }

  // Block `block` from the device into a host slot; the device block of the same number.
  void save(uint64_t block, uint32_t slot, GroupId group = GroupId(0)) {
    fill_random(rank_.device_block(group, slot), block);
    BlockOp op = disk_op(OpKind::kSave, block, slot, 0, group);
    op.device_block = DeviceBlockId(slot);
    ASSERT_EQ(run(op), Code::kOk);
  }
  // The same, and on to the disk slot of the same number.
  void put(uint64_t block, uint32_t slot, GroupId group = GroupId(0)) {
    save(block, slot, group);
    ASSERT_EQ(run(disk_op(OpKind::kDiskPut, block, slot, slot, group)), Code::kOk);
  }
  void wipe(uint32_t slot, GroupId group = GroupId(0)) {
    const auto frame = rank_.slot_frame(host_slot(slot, group), group);
    std::fill(frame.begin(), frame.end(), std::byte{0});
    const auto payload = rank_.slot_payload(host_slot(slot, group), group);
    std::fill(payload.begin(), payload.end(), std::byte{0});
  }
  std::vector<std::byte> payload(uint32_t slot, GroupId group = GroupId(0)) {
    const auto bytes = rank_.slot_payload(host_slot(slot, group), group);
    return {bytes.begin(), bytes.end()};
  }

  // What the disk was asked for, in order.
  std::vector<DiskIoRequest> requests() const {
    std::vector<DiskIoRequest> all;
    for (const auto& batch : rig_.batches) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  }
  size_t count(DiskIoKind kind) const { return rig_.request_count(kind, DiskFile::kData); }
  void hang(DiskIoKind kind, uint64_t count = 1) {
    rig_.faulty->add(
        {.action = DiskFaultAction::kHang, .kind = kind, .file = DiskFile::kData, .count = count});
  }

  SlotGeometry geometry_;
  RankDiskRig rig_;
  TestRank rank_;
  std::map<uint32_t, Code> ended_;  // by item
  std::unique_ptr<RankWorker> worker_;

 private:
  mutable uint32_t next_item_ = 0;
};

TEST_F(RankWorkerDiskTest, WhatWasPutComesBackAndTouchesNothingElse) {
  open();
  for (const GroupId group : {GroupId(0), GroupId(1)}) {
    put(7, 3, group);
    const auto saved = payload(3, group);
    rank_.take_picture();
    ASSERT_EQ(run(disk_op(OpKind::kDiskGet, 7, 5, 3, group)), Code::kOk);
    const size_t begin = rank_.slot_payload_range(host_slot(5, group), group).begin;
    EXPECT_TRUE(rank_.only_changed({{0, begin, begin + rig_.stride(group)}}));
    EXPECT_EQ(payload(5, group), saved);
    BlockOp load = disk_op(OpKind::kLoad, 7, 5, 0, group);
    load.device_block = DeviceBlockId(9);
    ASSERT_EQ(run(load), Code::kOk);
    const auto device = rank_.device_block(group, 9);
    EXPECT_TRUE(std::equal(saved.begin(), saved.end(), device.begin(), device.end()));
  }
}

TEST_F(RankWorkerDiskTest, TheRecordSaysWhatTheOperationSaid) {
  open();
  save(1, 0);
  BlockOp op = disk_op(OpKind::kDiskPut, 1, 0, 4);
  op.has_parent = 1;
  op.parent = test_key(99);
  ASSERT_EQ(run(op), Code::kOk);
  const auto records = rig_.records();
  ASSERT_EQ(records.size(), 1u);
  const DiskRecord& record = records.begin()->second;
  EXPECT_EQ(record.slot, op.disk_slot);
  EXPECT_EQ(record.key, test_key(1));
  EXPECT_EQ(record.parent, test_key(99));
  EXPECT_EQ(record.token_count, kTestTokens);
  EXPECT_EQ(record.name_space, options().name_space);
}

TEST_F(RankWorkerDiskTest, ABlockComesBackAfterARestart) {
  open();
  put(1, 0);
  const auto saved = payload(0);
  wipe(0);
  open();
  ASSERT_EQ(run(disk_op(OpKind::kDiskGet, 1, 0, 0)), Code::kOk);
  EXPECT_EQ(payload(0), saved);
}

TEST_F(RankWorkerDiskTest, ABitThatFlipsInPayloadOrFrameIsCorrupt) {
  open();
  put(1, 0, GroupId(1));
  const uint64_t payload_bits = RankDiskRig::kSmallPayloadBytes * 8;
  std::vector<uint64_t> bits;
  for (uint64_t bit = 0; bit < payload_bits; bit += 37) bits.push_back(bit);
  bits.push_back(payload_bits - 1);
  const uint64_t object_bits = payload_bits + kFrameBytes * 8;
  for (uint64_t bit = payload_bits; bit < object_bits; bit += 7) bits.push_back(bit);
  for (const uint64_t bit : bits) {
    wipe(2, GroupId(1));
    rig_.faulty->clear();
    rig_.faulty->add({.action = DiskFaultAction::kFlipBit, .bit = bit, .kind = DiskIoKind::kRead});
    EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 2, 0, GroupId(1))), Code::kCorrupt) << bit;
  }
  // Padding is nobody's.
  rig_.faulty->clear();
  rig_.faulty->add(
      {.action = DiskFaultAction::kFlipBit, .bit = object_bits + 800, .kind = DiskIoKind::kRead});
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 2, 0, GroupId(1))), Code::kOk);
  EXPECT_EQ(worker_->stats().path(OpKind::kDiskGet).corrupt, bits.size());
}

TEST_F(RankWorkerDiskTest, AReadThatDidNotHappenIsCorruptThoughTheDiskSaysOk) {
  open();
  put(1, 0);
  save(2, 5);  // what stands in memory already
  rig_.faulty->add({.action = DiskFaultAction::kLost, .kind = DiskIoKind::kRead});
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kCorrupt);
}

TEST_F(RankWorkerDiskTest, AnotherBlockThanAskedForIsCorrupt) {
  open();
  put(1, 0);
  put(2, 1);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 2, 5, 0)), Code::kCorrupt);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 9)), Code::kCorrupt) << "never written";
  BlockOp op = disk_op(OpKind::kDiskGet, 1, 5, 0);
  op.token_count = kTestTokens - 1;
  EXPECT_EQ(run(op), Code::kCorrupt);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kOk);
}

TEST_F(RankWorkerDiskTest, ABlockOfAnotherNamespaceOrSliceIsCorrupt) {
  open();
  put(1, 0);
  RankWorkerOptions other = options();
  other.name_space = test_namespace(1);
  open(other);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kCorrupt);
  other = options();
  other.slice = Slice{1, 2};
  open(other);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kCorrupt);
  open();
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kOk);
}

TEST_F(RankWorkerDiskTest, ASlotThatDoesNotHoldTheBlockIsNotPut) {
  open();
  put(1, 0);
  const size_t writes = count(DiskIoKind::kWrite);
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 2, 0, 0)), Code::kCorrupt) << "another block's slot";
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 3, 4, 0)), Code::kCorrupt) << "nothing was saved there";
  EXPECT_EQ(count(DiskIoKind::kWrite), writes);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kOk) << "what stood there still does";
  EXPECT_EQ(worker_->stats().path(OpKind::kDiskPut).corrupt, 2u);
}

TEST_F(RankWorkerDiskTest, WithoutVerificationAGetBringsWhatStandsThere) {
  RankWorkerOptions trusting = options();
  trusting.verify = false;
  open(trusting);
  put(1, 0);
  rig_.faulty->add({.action = DiskFaultAction::kFlipBit, .bit = 5, .kind = DiskIoKind::kRead});
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 5, 0)), Code::kOk);
}

TEST_F(RankWorkerDiskTest, SlotsThatAreNotThereAreInvalid) {
  open();
  put(1, 0);
  const size_t before = requests().size();
  for (const OpKind kind : {OpKind::kDiskGet, OpKind::kDiskPut}) {
    for (const SlotId slot : {SlotId(RankDiskRig::kSlots), SlotId(1u << 20), SlotId(UINT32_MAX)}) {
      BlockOp op = disk_op(kind, 1, 0, 0);
      op.disk_slot = slot;
      EXPECT_EQ(run(op), Code::kInvalid) << slot.value();
    }
    BlockOp op = disk_op(kind, 1, 0, 0);
    op.slot = SlotId(1u << 20);
    EXPECT_EQ(run(op), Code::kInvalid);
    op = disk_op(kind, 1, 0, 0);
    op.token_count = 0;
    EXPECT_EQ(run(op), Code::kInvalid);
    op = disk_op(kind, 1, 0, 0);
    op.group = GroupId(2);
    EXPECT_EQ(run(op), Code::kInvalid);
  }
  EXPECT_EQ(requests().size(), before);
}

TEST_F(RankWorkerDiskTest, FieldsThatMeanNothingMustBeEmpty) {
  open();
  put(1, 0);
  const size_t before = requests().size();
  for (const OpKind kind : {OpKind::kDiskGet, OpKind::kDiskPut, OpKind::kDiskClear}) {
    for (size_t byte = 0; byte < BlockOp{}.reserved.size(); ++byte) {
      BlockOp op = disk_op(kind, 1, 0, 0);
      op.reserved[byte] = 1;
      EXPECT_EQ(run(op), Code::kInvalid);
    }
    BlockOp op = disk_op(kind, 1, 0, 0);
    op.replace = 1;
    EXPECT_EQ(run(op), Code::kInvalid);
    op = disk_op(kind, 1, 0, 0);
    op.only_rank = 1;
    EXPECT_EQ(run(op), Code::kInvalid);
    op = disk_op(kind, 1, 0, 0);
    op.has_parent = kind == OpKind::kDiskPut ? 2 : 1;
    EXPECT_EQ(run(op), Code::kInvalid);
  }
  BlockOp store = disk_op(OpKind::kStorePut, 1, 0, 0);
  store.has_parent = 1;
  EXPECT_EQ(run(store), Code::kInvalid);
  EXPECT_EQ(requests().size(), before);
}

TEST_F(RankWorkerDiskTest, WithoutADiskItsOperationsAreUnavailable) {
  worker_ = rank_.make_worker(nullptr, rig_.clock);
  EXPECT_EQ(worker_->disk_fd(), -1);
  for (const OpKind kind : {OpKind::kDiskGet, OpKind::kDiskPut, OpKind::kDiskClear}) {
    EXPECT_EQ(run(disk_op(kind, 1, 0, 0)), Code::kUnavailable);
  }
  EXPECT_EQ(worker_->next_due(), kNoDeadline);
  EXPECT_EQ(worker_->stats().disk.condition, StoreCondition::kNone);
}

TEST_F(RankWorkerDiskTest, GetsGoBeforePutsAndBothBehindLoads) {
  open();
  for (uint32_t i = 0; i < 4; ++i) put(i, i);
  const size_t before = requests().size();
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 4; ++i) ops.push_back(disk_op(OpKind::kDiskPut, i, i, 10 + i));
  for (uint32_t i = 0; i < 4; ++i) ops.push_back(disk_op(OpKind::kDiskGet, i, 8 + i, i));
  for (uint32_t i = 0; i < 4; ++i) ops.push_back(disk_op(OpKind::kLoad, i, i, 0));
  for (uint32_t i = 0; i < 4; ++i) ops[8 + i].device_block = DeviceBlockId(i);
  worker_->submit(ops);
  // Two of the loads: the gets are asked for, the puts wait.
  EXPECT_TRUE(worker_->progress(2));
  auto asked = requests();
  ASSERT_EQ(asked.size(), before + 4);
  for (size_t i = before; i < asked.size(); ++i) EXPECT_EQ(asked[i].kind, DiskIoKind::kRead);
  settle();
  asked = requests();
  for (size_t i = before + 4; i < asked.size(); ++i) EXPECT_EQ(asked[i].kind, DiskIoKind::kWrite);
  for (const BlockOp& op : ops) EXPECT_EQ(code_of(op), Code::kOk);
}

TEST_F(RankWorkerDiskTest, PutsLeaveRoomForGetsAndAreNotWaitedForInALoop) {
  RankWorkerOptions few_puts = options();
  few_puts.disk_puts_max = 3;
  open(few_puts);
  for (uint32_t i = 0; i < 8; ++i) save(i, i);
  put(100, 9);
  hang(DiskIoKind::kWrite, kDiskFaultForEver);
  const size_t writes = count(DiskIoKind::kWrite);
  std::vector<BlockOp> puts;
  for (uint32_t i = 0; i < 8; ++i) puts.push_back(disk_op(OpKind::kDiskPut, i, i, i));
  worker_->submit(puts);
  settle();
  EXPECT_EQ(count(DiskIoKind::kWrite), writes + 3);
  EXPECT_FALSE(worker_->progress(8)) << "there is nothing to do until the disk answers";
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 100, 10, 9)), Code::kOk);
  rig_.faulty->clear();
  rig_.faulty->release();
  settle();
  for (const BlockOp& op : puts) EXPECT_EQ(code_of(op), Code::kOk);
}

TEST_F(RankWorkerDiskTest, ABusyDiskIsAskedAgain) {
  rig_.options.operations_max = 2;
  open();
  for (uint32_t i = 0; i < 6; ++i) put(i, i);
  hang(DiskIoKind::kRead, 2);
  std::vector<BlockOp> gets;
  for (uint32_t i = 0; i < 6; ++i) gets.push_back(disk_op(OpKind::kDiskGet, i, 8 + i, i));
  worker_->submit(gets);
  settle();
  EXPECT_FALSE(worker_->progress(8));
  EXPECT_LE(worker_->next_due(), rig_.clock.now() + 1ms) << "this disk has no descriptor";
  rig_.faulty->release();
  settle();
  for (const BlockOp& op : gets) EXPECT_EQ(code_of(op), Code::kOk);
}

TEST_F(RankWorkerDiskTest, AnOperationThatWaitsPastItsDeadlineEnds) {
  rig_.options.operations_max = 1;
  open();
  put(1, 0);
  put(2, 1);
  hang(DiskIoKind::kRead);
  const BlockOp first = disk_op(OpKind::kDiskGet, 1, 8, 0);
  submit(first);
  settle();
  BlockOp second = disk_op(OpKind::kDiskGet, 2, 9, 1);
  BlockOp third = disk_op(OpKind::kDiskPut, 2, 1, 2);
  BlockOp fourth = disk_op(OpKind::kDiskClear, 0, 0, 0);
  for (BlockOp* op : {&second, &third, &fourth}) {
    op->deadline_ns = (rig_.clock.now() + 10ms).time_since_epoch().count();
    if (op->kind != OpKind::kDiskClear) submit(*op);
  }
  settle();
  EXPECT_FALSE(has_ended(second));
  EXPECT_LE(worker_->next_due(), rig_.clock.now() + 10ms);
  submit(fourth);  // the put that waits is cancelled
  rig_.clock.advance(10ms);
  settle();
  EXPECT_EQ(code_of(second), Code::kTimeout);
  EXPECT_EQ(code_of(third), Code::kCancelled);
  EXPECT_EQ(code_of(fourth), Code::kTimeout);
  EXPECT_FALSE(has_ended(first)) << "the disk has not let go of its memory";
  rig_.faulty->release();
  settle();
  EXPECT_EQ(code_of(first), Code::kOk);
}

TEST_F(RankWorkerDiskTest, AHangStopsNobodyElse) {
  FakeStoreHandle store;
  open(store.make());
  for (uint32_t i = 0; i < 4; ++i) put(i, i);
  hang(DiskIoKind::kRead);
  const BlockOp hung = disk_op(OpKind::kDiskGet, 0, 8, 0);
  submit(hung);
  settle();
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 9, 1)), Code::kOk);
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 2, 2, 10)), Code::kOk);
  BlockOp load = disk_op(OpKind::kLoad, 3, 3, 0);
  EXPECT_EQ(run(load), Code::kOk);
  submit(disk_op(OpKind::kStoreExists, 3, 0, 0));
  settle();
  EXPECT_FALSE(store.state->calls().empty());
  EXPECT_FALSE(has_ended(hung));
}

TEST_F(RankWorkerDiskTest, ADiskThatDoesNotAnswerIsGivenUpAndComesBack) {
  rig_.options.breaker.failures = 3;
  rig_.options.stuck_after = 2s;
  open();
  put(1, 0);
  worker_->progress(1);
  EXPECT_EQ(worker_->stats().disk.condition, StoreCondition::kUp);
  hang(DiskIoKind::kRead);
  const BlockOp hung = disk_op(OpKind::kDiskGet, 1, 8, 0);
  submit(hung);
  settle();
  EXPECT_LE(worker_->next_due(), rig_.clock.now() + 2s);
  rig_.clock.advance(2s);
  settle();
  EXPECT_EQ(worker_->stats().disk.condition, StoreCondition::kOpen);
  EXPECT_EQ(worker_->stats().disk.cause, Code::kTimeout);
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 9, 0)), Code::kUnavailable);
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 1, 0, 1)), Code::kUnavailable);
  rig_.faulty->release();
  settle();
  EXPECT_EQ(code_of(hung), Code::kOk);
  for (int i = 0; i < 10; ++i) {
    rig_.clock.advance(10s);
    run(disk_op(OpKind::kDiskGet, 1, 9, 0));
  }
  EXPECT_EQ(worker_->stats().disk.condition, StoreCondition::kUp);
}

TEST_F(RankWorkerDiskTest, ADiskThatFailsSaysHow) {
  open();
  save(1, 0);
  rig_.faulty->add({.action = DiskFaultAction::kError,
                    .error = ENOSPC,
                    .kind = DiskIoKind::kWrite,
                    .file = DiskFile::kData});
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 1, 0, 0)), Code::kNoSpace);
  rig_.faulty->add({.action = DiskFaultAction::kError,
                    .error = EIO,
                    .kind = DiskIoKind::kWrite,
                    .file = DiskFile::kMetadata});
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 1, 0, 0)), Code::kUnavailable);
  EXPECT_EQ(run(disk_op(OpKind::kDiskPut, 1, 0, 0)), Code::kOk);
  rig_.faulty->add({.action = DiskFaultAction::kError, .error = EIO, .kind = DiskIoKind::kRead});
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 8, 0)), Code::kUnavailable);
}

TEST_F(RankWorkerDiskTest, ClosingWaitsForWhatIsWithTheDiskAndCancelsTheRest) {
  rig_.options.operations_max = 1;
  FakeStoreHandle store;
  open(store.make());
  put(1, 0);
  hang(DiskIoKind::kRead);
  const BlockOp hung = disk_op(OpKind::kDiskGet, 1, 8, 0);
  submit(hung);
  settle();
  const BlockOp waiting = disk_op(OpKind::kDiskGet, 1, 9, 0);
  const BlockOp put_behind = disk_op(OpKind::kDiskPut, 1, 0, 1);
  submit(waiting);
  submit(put_behind);
  const Status status = worker_->close(rig_.clock.now() + 1s);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.code(), Code::kTimeout);
  settle();
  EXPECT_EQ(code_of(waiting), Code::kCancelled);
  EXPECT_EQ(code_of(put_behind), Code::kCancelled);
  EXPECT_FALSE(has_ended(hung));
  EXPECT_EQ(run(disk_op(OpKind::kDiskGet, 1, 10, 0)), Code::kUnavailable);
  EXPECT_EQ(worker_->ops_in_flight(), 1u);
  rig_.faulty->release();
  settle();
  EXPECT_EQ(code_of(hung), Code::kOk);
  EXPECT_TRUE(worker_->close(rig_.clock.now() + 1s));
  EXPECT_EQ(worker_->ops_in_flight(), 0u);
}

TEST_F(RankWorkerDiskTest, ClosingEndsPutsThatTheDiskStillCarriesOut) {
  open();
  std::vector<BlockOp> puts;
  for (uint32_t i = 0; i < 4; ++i) save(i, i);
  for (uint32_t i = 0; i < 4; ++i) puts.push_back(disk_op(OpKind::kDiskPut, i, i, i));
  worker_->submit(puts);
  worker_->progress(1);
  ASSERT_TRUE(worker_->close(rig_.clock.now() + 1s));
  settle();
  for (const BlockOp& op : puts) EXPECT_EQ(code_of(op), Code::kOk);
  EXPECT_EQ(rig_.records().size(), 4u);
}

TEST_F(RankWorkerDiskTest, AClearCancelsPutsThatWaitAndOutlastsThoseUnderWay) {
  RankWorkerOptions one_put = options();
  one_put.disk_puts_max = 1;
  open(one_put);
  for (uint32_t i = 0; i < 4; ++i) save(i, i);
  put(50, 9);
  hang(DiskIoKind::kWrite);
  const BlockOp under_way = disk_op(OpKind::kDiskPut, 0, 0, 0);
  const BlockOp waiting = disk_op(OpKind::kDiskPut, 1, 1, 1);
  submit(under_way);
  submit(waiting);
  settle();
  const BlockOp clear = disk_op(OpKind::kDiskClear, 0, 0, 0);
  const BlockOp after = disk_op(OpKind::kDiskPut, 2, 2, 2);
  const BlockOp get = disk_op(OpKind::kDiskGet, 50, 10, 9);
  submit(clear);
  submit(after);
  submit(get);
  settle();
  EXPECT_EQ(code_of(waiting), Code::kCancelled);
  EXPECT_EQ(code_of(get), Code::kOk) << "what was cleared can still be read";
  rig_.faulty->release();
  settle();
  EXPECT_EQ(code_of(clear), Code::kOk);
  EXPECT_EQ(code_of(under_way), Code::kOk);
  EXPECT_EQ(code_of(after), Code::kOk);
  std::set<uint32_t> slots;
  for (const auto& [slot, record] : rig_.records()) slots.insert(slot);
  EXPECT_EQ(slots, std::set<uint32_t>{disk_slot(2).value()});
}

TEST_F(RankWorkerDiskTest, AClearNeedsNeitherSlotNorTokens) {
  open();
  put(1, 0);
  BlockOp clear;
  clear.kind = OpKind::kDiskClear;
  clear.item = 1'000'000;
  EXPECT_EQ(run(clear), Code::kOk);
  EXPECT_TRUE(rig_.records().empty());
}

TEST_F(RankWorkerDiskTest, TheDiskSaysWhenToCallAgain) {
  open();
  EXPECT_EQ(worker_->next_due(), kNoDeadline);
  put(1, 0);
  EXPECT_EQ(worker_->next_due(), kNoDeadline) << "nothing is under way";
  hang(DiskIoKind::kRead);
  submit(disk_op(OpKind::kDiskGet, 1, 8, 0));
  settle();
  EXPECT_EQ(worker_->disk_fd(), -1);
  EXPECT_LE(worker_->next_due(), rig_.clock.now() + 1ms);
}

TEST_F(RankWorkerDiskTest, StatsTellWhatTheDiskDid) {
  open();
  put(1, 0);
  put(2, 1);
  ASSERT_EQ(run(disk_op(OpKind::kDiskGet, 1, 8, 0)), Code::kOk);
  ASSERT_EQ(run(disk_op(OpKind::kDiskGet, 7, 8, 0)), Code::kCorrupt);
  ASSERT_EQ(run(disk_op(OpKind::kDiskClear, 0, 0, 0)), Code::kOk);
  const RankStats stats = worker_->stats();
  EXPECT_EQ(stats.path(OpKind::kDiskPut).ops, 2u);
  EXPECT_EQ(stats.path(OpKind::kDiskPut).bytes, 2 * RankDiskRig::kPayloadBytes);
  EXPECT_EQ(stats.path(OpKind::kDiskGet).ops, 2u);
  EXPECT_EQ(stats.path(OpKind::kDiskGet).failed, 1u);
  EXPECT_EQ(stats.path(OpKind::kDiskGet).corrupt, 1u);
  EXPECT_EQ(stats.path(OpKind::kDiskGet).bytes, RankDiskRig::kPayloadBytes);
  EXPECT_EQ(stats.path(OpKind::kDiskClear).ops, 1u);
  EXPECT_EQ(stats.path(OpKind::kDiskClear).bytes, 0u);
  EXPECT_EQ(stats.disk_read_bytes, 2 * rig_.stride());
  EXPECT_GE(stats.disk_written_bytes, 2 * (rig_.stride() + kDiskRecordBytes));
  EXPECT_GT(stats.disk_syncs, 0u);
  EXPECT_EQ(stats.disk.condition, StoreCondition::kUp);
}

}  // namespace
}  // namespace tiercel
