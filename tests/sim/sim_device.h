// SPDX-License-Identifier: Apache-2.0
//
// SimDevice: the device memory of the toy engine on all ranks, and what the engine believes stands
// in it. Every block is always either *settled*, then its bytes must be what the engine wrote last
// or accepted, or *busy*, then a transfer may write to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/key.h"

#include "transfer/device_copier.h"

namespace tiercel::sim {

class SimDevice {
 public:
  // `equal_slices`: what the engine computes is the same on every rank.
  SimDevice(const std::vector<std::vector<uint64_t>>& payload_bytes, uint32_t blocks_per_group,
            bool equal_slices, uint64_t weights);

  // What is computed from now on is computed with these.
  void set_weights(uint64_t weights) { weights_ = weights; }

  std::vector<ContiguousGroupMemory> memory_of(uint32_t rank);

  // The block that was freed last, so that a late write hits somebody else soon; it holds garbage.
  std::optional<DeviceBlockId> allocate(GroupId group);
  size_t free_count(GroupId group) const { return free_[group.value()].size(); }
  bool all_free() const;
  // The block must be the caller's and untouched by transfers from now on.
  void free(GroupId group, DeviceBlockId block);

  // What the engine does to a block that is its own.
  void write_oracle(GroupId group, DeviceBlockId block, const BlockKey& key);
  void write_half(GroupId group, DeviceBlockId block, const BlockKey& key);
  void write_garbage(GroupId group, DeviceBlockId block);

  // A transfer may write to the block from now on.
  void set_busy(GroupId group, DeviceBlockId block);
  // The block should hold the KV of `key` now, put there by a transfer: fails if it does not.
  void expect_loaded(GroupId group, DeviceBlockId block, const BlockKey& key);

  // Fails if a settled block has changed.
  void check() const;

 private:
  struct Block {
    bool busy = false;
    bool free = true;
  };
  std::span<std::byte> slice(std::vector<std::vector<std::vector<std::byte>>>& memory,
                             uint32_t rank, GroupId group, DeviceBlockId block);
  // The rank whose content the slice of `rank` has.
  uint32_t content_of(uint32_t rank) const { return equal_slices_ ? 0 : rank; }
  template <typename Fill>
  void write(GroupId group, DeviceBlockId block, Fill&& fill);

  const std::vector<std::vector<uint64_t>> payload_bytes_;
  const bool equal_slices_;
  std::vector<std::vector<std::vector<std::byte>>> actual_;    // [rank][group]
  std::vector<std::vector<std::vector<std::byte>>> expected_;  // [rank][group]
  std::vector<std::vector<Block>> blocks_;                     // [group]
  std::vector<std::vector<DeviceBlockId>> free_;               // [group], the last one goes first
  uint64_t weights_;
  uint64_t garbage_ = 0;
};

}  // namespace tiercel::sim
