// SPDX-License-Identifier: Apache-2.0
#include "transfer/device_copier.h"

#include <limits>
#include <string>
#include <utility>

#include "base/checksum.h"

namespace tiercel {

Result<ContiguousCopier> ContiguousCopier::create(std::vector<ContiguousGroupMemory> groups) {
  if (groups.empty() || groups.size() > kGroupCountMax) {
    return Error(Code::kInvalid, "device memory of " + std::to_string(groups.size()) +
                                     " groups; allowed: 1 to " + std::to_string(kGroupCountMax));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const uint64_t bytes = groups[i].memory.size();
    const uint64_t payload_bytes = groups[i].payload_bytes;
    if (payload_bytes == 0 || bytes % payload_bytes != 0 ||
        bytes / payload_bytes > std::numeric_limits<uint32_t>::max()) {
      return Error(Code::kInvalid, "device memory of group " + std::to_string(i) + " is " +
                                       std::to_string(bytes) + " bytes; allowed: a multiple of " +
                                       "payload_bytes (" + std::to_string(payload_bytes) +
                                       ", at least 1), at most 2^32 - 1 blocks");
    }
  }
  ContiguousCopier copier;
  copier.groups_ = std::move(groups);
  return copier;
}

uint32_t ContiguousCopier::block_count(GroupId group) const {
  if (group.value() >= groups_.size()) return 0;
  const ContiguousGroupMemory& memory = groups_[group.value()];
  return static_cast<uint32_t>(memory.memory.size() / memory.payload_bytes);
}

uint64_t ContiguousCopier::payload_bytes(GroupId group) const {
  return group.value() < groups_.size() ? groups_[group.value()].payload_bytes : 0;
}

uint32_t ContiguousCopier::gather(GroupId group, DeviceBlockId block,
                                  std::span<std::byte> payload) {
  const ContiguousGroupMemory& memory = groups_[group.value()];
  return copy_with_crc32c(
      memory.memory.subspan(block.value() * memory.payload_bytes, memory.payload_bytes), payload);
}

uint32_t ContiguousCopier::scatter(GroupId group, std::span<const std::byte> payload,
                                   DeviceBlockId block) {
  const ContiguousGroupMemory& memory = groups_[group.value()];
  return copy_with_crc32c(
      payload, memory.memory.subspan(block.value() * memory.payload_bytes, memory.payload_bytes));
}

}  // namespace tiercel
