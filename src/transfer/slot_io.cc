// SPDX-License-Identifier: Apache-2.0
#include "transfer/slot_io.h"

#include <algorithm>
#include <array>

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

std::span<std::byte> SlotIo::whole(const BlockOp& op) const {
  const std::optional<uint64_t> offset = geometry_.offset(op.slot, op.group, rank_);
  TIERCEL_ASSERT(offset, "the slot of an operation is checked when it is submitted");
  return memory_.subspan(*offset, geometry_.stride_bytes(op.group, rank_));
}

SlotIo::Slot SlotIo::slot_of(const BlockOp& op) const {
  const std::span<std::byte> slot = whole(op);
  const uint64_t bytes = payload_bytes(op.group);
  return {slot.first(bytes), slot_frame(slot, bytes), slot.first(bytes + kFrameBytes)};
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

void SlotIo::save(std::span<const BlockOp> ops, DeviceCopier& copier, std::span<Code> codes) const {
  TIERCEL_ASSERT(ops.size() <= kCopyBatchMax && ops.size() == codes.size(), "one batch");
  if (ops.empty()) return;
  std::array<DeviceCopy, kCopyBatchMax> copies;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Slot slot = slot_of(ops[i]);
    // What the frame promised is over, also if the copy fails half-way.
    std::fill(slot.frame.begin(), slot.frame.end(), std::byte{0});
    copies[i] = {.block = ops[i].device_block, .payload = slot.payload};
  }
  const Status copied = copier.gather(ops[0].group, std::span(copies).first(ops.size()), nullptr);
  for (size_t i = 0; i < ops.size(); ++i) {
    codes[i] = copied.code();
    if (!copied) continue;
    Frame frame = frame_of(ops[i]);
    frame.checksum = copies[i].checksum;
    encode_frame(frame, slot_of(ops[i]).frame);
  }
}

void SlotIo::load(std::span<const BlockOp> ops, DeviceCopier& copier, bool verify,
                  std::span<Code> codes) const {
  TIERCEL_ASSERT(ops.size() <= kCopyBatchMax && ops.size() == codes.size(), "one batch");
  if (ops.empty()) return;
  std::array<DeviceCopy, kCopyBatchMax> copies;
  std::array<uint32_t, kCopyBatchMax> promised{};
  size_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    codes[i] = verify ? check(ops[i], &promised[i]) : Code::kOk;
    if (codes[i] != Code::kOk) {
      codes[i] = Code::kCorrupt;
      continue;
    }
    copies[count++] = {.block = ops[i].device_block, .payload = slot_of(ops[i]).payload};
  }
  const Status copied = copier.scatter(ops[0].group, std::span(copies).first(count), nullptr);
  count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (codes[i] != Code::kOk) continue;
    const uint32_t written = copies[count++].checksum;
    codes[i] = copied.code();
    if (copied && verify && written != promised[i]) codes[i] = Code::kCorrupt;
  }
}

}  // namespace tiercel
