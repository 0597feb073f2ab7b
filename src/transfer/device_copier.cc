// SPDX-License-Identifier: Apache-2.0
#include "transfer/device_copier.h"

#include <limits>
#include <string>
#include <utility>

#include "tiercel/device_layout.h"

#include "transfer/layout_copier_cpu.h"

namespace tiercel {

Status check_copies(const DeviceCopier& copier, GroupId group, std::span<const DeviceCopy> copies) {
  const uint64_t payload_bytes = copier.payload_bytes(group);
  const uint32_t block_count = copier.block_count(group);
  if (payload_bytes == 0) {
    return Error(Code::kInvalid, "device copy of group " + std::to_string(group.value()) +
                                     "; allowed: a group of the device layout");
  }
  for (const DeviceCopy& copy : copies) {
    if (copy.block.value() >= block_count) {
      return Error(Code::kInvalid, "device block is " + std::to_string(copy.block.value()) +
                                       "; allowed: less than " + std::to_string(block_count) +
                                       ", the blocks of group " + std::to_string(group.value()));
    }
    if (copy.payload.size() != payload_bytes) {
      return Error(Code::kInvalid, "payload of " + std::to_string(copy.payload.size()) +
                                       " bytes; allowed: exactly " + std::to_string(payload_bytes) +
                                       ", a block of group " + std::to_string(group.value()));
    }
  }
  return {};
}

Result<ContiguousCopier> ContiguousCopier::create(
    const std::vector<ContiguousGroupMemory>& groups) {
  std::vector<DeviceGroup> layout;
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
    layout.push_back(contiguous_group(groups[i].memory, payload_bytes));
  }
  TIERCEL_TRY_ASSIGN(const DeviceLayout checked, DeviceLayout::create(std::move(layout)));
  TIERCEL_TRY_ASSIGN(CpuLayoutCopier inner, CpuLayoutCopier::create(checked));
  ContiguousCopier copier;
  copier.inner_ = std::make_unique<CpuLayoutCopier>(std::move(inner));
  return copier;
}

uint32_t ContiguousCopier::block_count(GroupId group) const {
  return inner_ ? inner_->block_count(group) : 0;
}

uint32_t ContiguousCopier::layer_count(GroupId group) const {
  return inner_ ? inner_->layer_count(group) : 0;
}

uint64_t ContiguousCopier::payload_bytes(GroupId group) const {
  return inner_ ? inner_->payload_bytes(group) : 0;
}

Status ContiguousCopier::gather(GroupId group, std::span<DeviceCopy> copies,
                                LayerObserver* observer) {
  if (!inner_) return check_copies(*this, group, copies);
  return inner_->gather(group, copies, observer);
}

Status ContiguousCopier::scatter(GroupId group, std::span<DeviceCopy> copies,
                                 LayerObserver* observer) {
  if (!inner_) return check_copies(*this, group, copies);
  return inner_->scatter(group, copies, observer);
}

}  // namespace tiercel
