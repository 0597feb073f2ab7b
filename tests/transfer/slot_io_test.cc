// SPDX-License-Identifier: Apache-2.0
#include "transfer/slot_io.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class SlotIoTest : public ::testing::Test {
 protected:
  SlotIoTest() : rank_(geometry_, 1, 4) {}
  SlotIo io(Namespace name_space = test_namespace(), Slice slice = {1, 3}) {
    return SlotIo(geometry_, 1, slice, name_space, 9, rank_.host());
  }
  SlotGeometry geometry_ = uneven_geometry();
  TestRank rank_;
};

TEST_F(SlotIoTest, SavedSlotSaysEverythingThatIsTrueOfIt) {
  const SlotId slot = nth_slot(geometry_, GroupId(1), 2);
  const BlockOp op = make_op(OpKind::kSave, 7, slot, 3, GroupId(1));
  io().save(op, rank_.copier());
  const Frame frame = decode_frame(rank_.slot_frame(slot, GroupId(1))).value();
  EXPECT_EQ(frame.name_space, test_namespace());
  EXPECT_EQ(frame.key, op.key);
  EXPECT_EQ(frame.group, GroupId(1));
  EXPECT_EQ(frame.slice, (Slice{1, 3}));
  EXPECT_EQ(frame.token_count, kTestTokens);
  EXPECT_EQ(frame.stored_bytes, geometry_.payload_bytes(GroupId(1), 1));
  EXPECT_EQ(frame.raw_bytes, frame.stored_bytes);
  EXPECT_EQ(frame.writer_epoch, 9u);
  EXPECT_EQ(frame.checksum, crc32c(rank_.device_block(GroupId(1), 3)));
  EXPECT_EQ(io().verify(op), Code::kOk);
}

TEST_F(SlotIoTest, EverySingleBitOfPayloadAndFrameCounts) {
  const GroupId group(1);
  const SlotId slot = nth_slot(geometry_, group, 0);
  const BlockOp op = make_op(OpKind::kSave, 7, slot, 0, group);
  const SlotIo slots = io();
  slots.save(op, rank_.copier());
  const auto flip_all = [&](std::span<std::byte> bytes) {
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const std::byte mask = std::byte{1} << (bit % 8);
      bytes[bit / 8] ^= mask;
      // The epoch of the writer is for diagnosis, but the frame's own checksum covers it.
      ASSERT_EQ(slots.verify(op), Code::kCorrupt) << "bit " << bit;
      ASSERT_EQ(slots.load(op, rank_.copier(), true), Code::kCorrupt) << "bit " << bit;
      bytes[bit / 8] ^= mask;
    }
  };
  flip_all(rank_.slot_payload(slot, group));
  flip_all(rank_.slot_frame(slot, group));
  EXPECT_EQ(slots.verify(op), Code::kOk);
}

TEST_F(SlotIoTest, NoOtherIdentityIsAccepted) {
  const SlotId slot = nth_slot(geometry_, GroupId(0), 1);
  const BlockOp op = make_op(OpKind::kSave, 7, slot);
  io().save(op, rank_.copier());
  ASSERT_EQ(io().verify(op), Code::kOk);

  BlockOp other = op;
  other.key = test_key(8);
  EXPECT_EQ(io().verify(other), Code::kCorrupt);
  other = op;
  other.token_count = kTestTokens - 1;
  EXPECT_EQ(io().verify(other), Code::kCorrupt);
  EXPECT_EQ(io(test_namespace(1)).verify(op), Code::kCorrupt);
  EXPECT_EQ(io(test_namespace(), Slice{0, 3}).verify(op), Code::kCorrupt);
  EXPECT_EQ(io(test_namespace(), Slice{1, 4}).verify(op), Code::kCorrupt);
  EXPECT_EQ(io(test_namespace(), Slice::all()).verify(op), Code::kCorrupt);
}

TEST_F(SlotIoTest, SwappedSlotsAreFound) {
  const SlotId a = nth_slot(geometry_, GroupId(0), 0);
  const SlotId b = nth_slot(geometry_, GroupId(0), 1);
  const BlockOp op_a = make_op(OpKind::kSave, 1, a, 0);
  const BlockOp op_b = make_op(OpKind::kSave, 2, b, 1);
  io().save(op_a, rank_.copier());
  io().save(op_b, rank_.copier());
  std::swap_ranges(rank_.slot_payload(a, GroupId(0)).begin(),
                   rank_.slot_payload(a, GroupId(0)).end(),
                   rank_.slot_payload(b, GroupId(0)).begin());
  EXPECT_EQ(io().verify(op_a), Code::kCorrupt);
  EXPECT_EQ(io().verify(op_b), Code::kCorrupt);
  const auto frame_a = rank_.slot_frame(a, GroupId(0));
  std::swap_ranges(frame_a.begin(), frame_a.end(), rank_.slot_frame(b, GroupId(0)).begin());
  EXPECT_EQ(io().verify(op_a), Code::kCorrupt);
  EXPECT_EQ(io().verify(op_b), Code::kCorrupt);
}

TEST_F(SlotIoTest, LoadThatIsRefusedByItsFrameLeavesTheDeviceAlone) {
  const SlotId slot = nth_slot(geometry_, GroupId(0), 1);
  io().save(make_op(OpKind::kSave, 7, slot), rank_.copier());
  rank_.take_picture();
  EXPECT_EQ(io().load(make_op(OpKind::kLoad, 8, slot, 2), rank_.copier(), true), Code::kCorrupt);
  EXPECT_TRUE(rank_.only_changed());
}

TEST_F(SlotIoTest, WithoutVerificationTheBytesAreTakenAsTheyAre) {
  const SlotId slot = nth_slot(geometry_, GroupId(0), 1);
  const BlockOp op = make_op(OpKind::kLoad, 7, slot, 2);
  io().save(op, rank_.copier());
  const auto payload = rank_.slot_payload(slot, GroupId(0));
  payload[0] ^= std::byte{1};
  EXPECT_EQ(io().load(op, rank_.copier(), false), Code::kOk);
  EXPECT_TRUE(
      std::equal(payload.begin(), payload.end(), rank_.device_block(GroupId(0), 2).begin()));
}

}  // namespace
}  // namespace tiercel
