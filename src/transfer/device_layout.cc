// SPDX-License-Identifier: Apache-2.0
#include "tiercel/device_layout.h"

#include <utility>

#include "transfer/device_layout_check.h"

namespace tiercel {
namespace {

std::string layer_order(const DeviceLayer& layer) {
  std::string order;
  for (const DevicePart& part : layer.parts) {
    if (!order.empty()) order += '+';
    order += part.order.empty() ? std::to_string(part.payload_bytes()) : part.order;
  }
  return order;
}

// Equal layers that follow each other are told once.
std::string group_order(const DeviceGroup& group) {
  std::string order;
  for (size_t begin = 0; begin < group.layers.size();) {
    const std::string layer = layer_order(group.layers[begin]);
    size_t end = begin + 1;
    while (end < group.layers.size() && layer_order(group.layers[end]) == layer) ++end;
    if (!order.empty()) order += ',';
    order += std::to_string(end - begin) + "*(" + layer + ")";
    begin = end;
  }
  return order;
}

}  // namespace

Result<DeviceLayout> DeviceLayout::create(std::vector<DeviceGroup> groups,
                                          DeviceMemoryKind memory_kind) {
  if (groups.empty() || groups.size() > kGroupCountMax) {
    return Error(Code::kInvalid, "device layout of " + std::to_string(groups.size()) +
                                     " groups; allowed: 1 to " + std::to_string(kGroupCountMax));
  }
  DeviceLayout layout;
  layout.memory_kind_ = memory_kind;
  for (size_t i = 0; i < groups.size(); ++i) {
    TIERCEL_TRY_ASSIGN(const uint64_t bytes, check_device_group(groups[i], i));
    layout.payload_bytes_.push_back(bytes);
  }
  layout.groups_ = std::move(groups);
  return layout;
}

uint32_t DeviceLayout::block_count(GroupId group) const {
  return group.value() < groups_.size() ? groups_[group.value()].block_count : 0;
}

uint32_t DeviceLayout::layer_count(GroupId group) const {
  return group.value() < groups_.size()
             ? static_cast<uint32_t>(groups_[group.value()].layers.size())
             : 0;
}

uint64_t DeviceLayout::payload_bytes(GroupId group) const {
  return group.value() < groups_.size() ? payload_bytes_[group.value()] : 0;
}

std::string DeviceLayout::order() const {
  std::string order;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (i > 0) order += ' ';
    order += std::to_string(i) + ":" + group_order(groups_[i]);
  }
  return order;
}

DeviceGroup contiguous_group(std::span<std::byte> memory, uint64_t payload_bytes) {
  DevicePart part;
  part.memory = memory;
  part.block_stride_bytes = payload_bytes;
  part.run_bytes = payload_bytes;
  DeviceGroup group;
  // Neither a rest nor a count beyond 32 bits is allowed; no blocks at all is refused by name.
  if (payload_bytes > 0 && memory.size() % payload_bytes == 0 &&
      memory.size() / payload_bytes <= UINT32_MAX) {
    group.block_count = static_cast<uint32_t>(memory.size() / payload_bytes);
  }
  group.layers.push_back({{std::move(part)}});
  return group;
}

}  // namespace tiercel
