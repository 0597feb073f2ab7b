// SPDX-License-Identifier: Apache-2.0
//
// SlotIo: the slots of one rank as payload and frame; the only place where payloads are framed and
// proven.
//
// Invariant: hands out spans that lie inside the rank's host memory, for slots that exist in the
// geometry. Threads:   one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tiercel/frame.h"
#include "tiercel/transfer.h"

#include "tier/slot_geometry.h"
#include "transfer/device_copier.h"

namespace tiercel {

// Blocks of one call into the copier.
inline constexpr size_t kCopyBatchMax = 64;

class SlotIo {
 public:
  // `memory` is geometry.tier_bytes(rank) long and outlives this object.
  SlotIo(const SlotGeometry& geometry, uint32_t rank, Slice slice, const Namespace& name_space,
         uint64_t writer_epoch, std::span<std::byte> memory);

  struct Slot {
    std::span<std::byte> payload;
    std::span<std::byte, kFrameBytes> frame;
    std::span<std::byte> object;  // both, as a store has them
  };

  bool exists(SlotId slot, GroupId group) const;
  // The op's slot; it must exist.
  Slot slot_of(const BlockOp& op) const;
  // Payload, frame and padding.
  std::span<std::byte> whole(const BlockOp& op) const;
  ObjectKey object_key(const BlockOp& op) const;

  // kOk if the slot's frame is what the op believes it to be, else kCorrupt; *checksum is then what
  // the frame promises of the payload. The payload is not looked at.
  Code check(const BlockOp& op, uint32_t* checksum) const;
  // As check(), and the payload has the promised checksum.
  Code verify(const BlockOp& op) const;

  // Device → slots: payload, checksum and frame, in one call into the copier. `ops` are of one
  // group, at most kCopyBatchMax, and name no slot twice; codes[i] is how ops[i] ended. A slot
  // whose device failed has no frame that proves it.
  void save(std::span<const BlockOp> ops, DeviceCopier& copier, std::span<Code> codes) const;
  // Slots → device; kCorrupt if `verify` and the slot does not prove to be the op's block. As save,
  // but naming no device block twice.
  void load(std::span<const BlockOp> ops, DeviceCopier& copier, bool verify,
            std::span<Code> codes) const;
  // One block.
  Code save(const BlockOp& op, DeviceCopier& copier) const {
    Code code = Code::kOk;
    save({&op, 1}, copier, {&code, 1});
    return code;
  }
  Code load(const BlockOp& op, DeviceCopier& copier, bool verify) const {
    Code code = Code::kOk;
    load({&op, 1}, copier, verify, {&code, 1});
    return code;
  }

  const SlotGeometry& geometry() const { return geometry_; }
  std::span<std::byte> memory() const { return memory_; }
  uint64_t payload_bytes(GroupId group) const { return geometry_.payload_bytes(group, rank_); }

 private:
  Frame frame_of(const BlockOp& op) const;

  SlotGeometry geometry_;
  uint32_t rank_;
  Slice slice_;
  Namespace name_space_;
  uint64_t writer_epoch_;
  std::span<std::byte> memory_;
};

}  // namespace tiercel
