// SPDX-License-Identifier: Apache-2.0
#include "watched_plane.h"

#include <string>

#include <fmt/core.h>

namespace tiercel::sim {
namespace {

bool writes_slot(OpKind kind) {
  return kind == OpKind::kSave || kind == OpKind::kStoreGet || kind == OpKind::kDiskGet;
}

}  // namespace

bool WatchedPlane::submit(std::span<const BlockOp> ops) {
  if (checks_) {
    for (const BlockOp& op : ops) begin(op);
  }
  if (!inner_.submit(ops)) {
    for (const BlockOp& op : ops) {
      if (checks_) end(op);
    }
    return false;
  }
  for (const BlockOp& op : ops) {
    ++open_of_kind_[static_cast<size_t>(op.kind)];
    open_.emplace(std::pair(op.job.value(), op.item),
                  Open{op, op.only_rank == kEveryRank ? rank_count() : 1});
  }
  if (open_.size() > ops_in_flight_max_) {
    fail("bounds",
         fmt::format("{} operations in flight; allowed: {}", open_.size(), ops_in_flight_max_));
  }
  return true;
}

size_t WatchedPlane::poll(std::span<Completion> out) {
  const size_t count = inner_.poll(out);
  for (const Completion& completion : out.first(count)) {
    const auto found = open_.find(std::pair(completion.job.value(), completion.item));
    if (found == open_.end()) fail("plane", "an operation completed that was not in flight");
    ++answers_[fmt::format("answer.{}.{}", to_string(found->second.op.kind),
                           to_string(completion.code))];
    if (--found->second.ranks_open > 0) continue;
    --open_of_kind_[static_cast<size_t>(found->second.op.kind)];
    if (checks_) end(found->second.op);
    open_.erase(found);
  }
  return count;
}

bool WatchedPlane::writes_device(GroupId group, DeviceBlockId block) const {
  const auto found = device_blocks_.find({group.value(), block.value()});
  return found != device_blocks_.end() && found->second.writers > 0;
}

bool WatchedPlane::reads_device(GroupId group, DeviceBlockId block) const {
  const auto found = device_blocks_.find({group.value(), block.value()});
  return found != device_blocks_.end() && found->second.readers > 0;
}

void WatchedPlane::begin(const BlockOp& op) {
  if (op.token_count != block_tokens_) fail("plane", "an operation has a wrong token count");
  if (uses_slot(op.kind)) {
    Users& users = slots_[op.slot.value()];
    const bool writes = writes_slot(op.kind);
    if (writes ? users.all() > 0 : users.writers > 0) {
      fail("slot_reuse",
           fmt::format("{} is started on slot {} while {} transfers may still read "
                       "and {} may still write it",
                       to_string(op.kind), op.slot.value(), users.readers, users.writers));
    }
    ++(writes ? users.writers : users.readers);
  }
  if (uses_disk_slot(op.kind)) {
    Users& users = disk_slots_[op.disk_slot.value()];
    const bool writes = op.kind == OpKind::kDiskPut;
    if (writes ? users.all() > 0 : users.writers > 0) {
      fail("disk_slot_reuse",
           fmt::format("{} is started on disk slot {} while {} transfers may still read "
                       "and {} may still write it",
                       to_string(op.kind), op.disk_slot.value(), users.readers, users.writers));
    }
    ++(writes ? users.writers : users.readers);
  }
  if (uses_device(op.kind)) {
    Users& users = device_blocks_[{op.group.value(), op.device_block.value()}];
    const bool writes = op.kind == OpKind::kLoad;
    if (writes ? users.all() > 0 : users.writers > 0) {
      fail("device_reuse",
           fmt::format("{} is started on device block {} of group {} while {} transfers may still "
                       "read and {} may still write it",
                       to_string(op.kind), op.device_block.value(), op.group.value(), users.readers,
                       users.writers));
    }
    ++(writes ? users.writers : users.readers);
  }
}

void WatchedPlane::end(const BlockOp& op) {
  if (uses_slot(op.kind)) {
    const auto slot = slots_.find(op.slot.value());
    --(writes_slot(op.kind) ? slot->second.writers : slot->second.readers);
    if (slot->second.all() == 0) slots_.erase(slot);
  }
  if (uses_disk_slot(op.kind)) {
    const auto slot = disk_slots_.find(op.disk_slot.value());
    --(op.kind == OpKind::kDiskPut ? slot->second.writers : slot->second.readers);
    if (slot->second.all() == 0) disk_slots_.erase(slot);
  }
  if (uses_device(op.kind)) {
    const auto block = device_blocks_.find({op.group.value(), op.device_block.value()});
    --(op.kind == OpKind::kLoad ? block->second.writers : block->second.readers);
    if (block->second.all() == 0) device_blocks_.erase(block);
  }
}

}  // namespace tiercel::sim
