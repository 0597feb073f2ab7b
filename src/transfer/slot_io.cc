// SPDX-License-Identifier: Apache-2.0
#include "transfer/slot_io.h"

#include "base/assert.h"
#include "base/checksum.h"

namespace tiercel {

SlotIo::SlotIo(const SlotGeometry& geometry, uint32_t rank, Slice slice,
               const Namespace& name_space, uint64_t writer_epoch, std::span<std::byte> memory)
    : geometry_(geometry),
      rank_(rank),
      slice_(slice),
      name_space_(name_space),
      writer_epoch_(writer_epoch),
      memory_(memory) {}

bool SlotIo::exists(SlotId slot, GroupId group) const {
  return geometry_.offset(slot, group, rank_).has_value();
}

SlotIo::Slot SlotIo::slot_of(const BlockOp& op) const {
  const std::optional<uint64_t> offset = geometry_.offset(op.slot, op.group, rank_);
  TIERCEL_ASSERT(offset, "the slot of an operation is checked when it is submitted");
  const std::span<std::byte> whole =
      memory_.subspan(*offset, geometry_.stride_bytes(op.group, rank_));
  return {whole.first(payload_bytes(op.group)), whole.last<kFrameBytes>()};
}

ObjectKey SlotIo::object_key(const BlockOp& op) const {
  return ObjectKey(name_space_, op.group, slice_, op.key);
}

Frame SlotIo::frame_of(const BlockOp& op) const {
  Frame frame;
  frame.name_space = name_space_;
  frame.key = op.key;
  frame.group = op.group;
  frame.slice = slice_;
  frame.token_count = op.token_count;
  frame.stored_bytes = payload_bytes(op.group);
  frame.raw_bytes = frame.stored_bytes;
  frame.writer_epoch = writer_epoch_;
  return frame;
}

Code SlotIo::check(const BlockOp& op, uint32_t* checksum) const {
  return check_frame(slot_of(op).frame, frame_of(op), checksum);
}

Code SlotIo::verify(const BlockOp& op) const {
  uint32_t promised = 0;
  if (check(op, &promised) != Code::kOk) return Code::kCorrupt;
  return crc32c(slot_of(op).payload) == promised ? Code::kOk : Code::kCorrupt;
}

void SlotIo::save(const BlockOp& op, DeviceCopier& copier) const {
  const Slot slot = slot_of(op);
  Frame frame = frame_of(op);
  frame.checksum = copier.gather(op.group, op.device_block, slot.payload);
  encode_frame(frame, slot.frame);
}

Code SlotIo::load(const BlockOp& op, DeviceCopier& copier, bool verify) const {
  uint32_t promised = 0;
  if (verify && check(op, &promised) != Code::kOk) return Code::kCorrupt;
  const uint32_t written = copier.scatter(op.group, slot_of(op).payload, op.device_block);
  return verify && written != promised ? Code::kCorrupt : Code::kOk;
}

}  // namespace tiercel
