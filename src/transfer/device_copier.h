// SPDX-License-Identifier: Apache-2.0
//
// DeviceCopier: moves one block between paged device memory and a contiguous payload, on one rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

// Threads: the rank worker's.
class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;

  virtual uint32_t block_count(GroupId group) const = 0;
  virtual uint64_t payload_bytes(GroupId group) const = 0;

  // Device block → `payload` (exactly payload_bytes(group)); the CRC32C of what now stands in
  // `payload`. `block` < block_count(group), checked by the caller.
  virtual uint32_t gather(GroupId group, DeviceBlockId block, std::span<std::byte> payload) = 0;

  // `payload` → device block; the CRC32C of what was written to the device.
  virtual uint32_t scatter(GroupId group, std::span<const std::byte> payload,
                           DeviceBlockId block) = 0;
};

// Device memory of one group in the plainest form: block i at base + i × payload bytes. For the
// reference engine and tests; the memory belongs to the caller and must outlive the copier.
struct ContiguousGroupMemory {
  std::span<std::byte> memory;  // block_count × payload_bytes
  uint64_t payload_bytes = 0;
};

class ContiguousCopier final : public DeviceCopier {
 public:
  // kInvalid if a memory is not a whole number of blocks.
  static Result<ContiguousCopier> create(std::vector<ContiguousGroupMemory> groups);

  uint32_t block_count(GroupId group) const override;
  uint64_t payload_bytes(GroupId group) const override;
  uint32_t gather(GroupId group, DeviceBlockId block, std::span<std::byte> payload) override;
  uint32_t scatter(GroupId group, std::span<const std::byte> payload, DeviceBlockId block) override;

 private:
  std::vector<ContiguousGroupMemory> groups_;
};

}  // namespace tiercel
