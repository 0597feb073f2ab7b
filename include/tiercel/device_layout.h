// SPDX-License-Identifier: Apache-2.0
//
// DeviceLayout: where the KV of an engine's blocks stands in memory, on one rank.
//
// A layout is data: groups → layers → parts (K, V, scales, …), and of each part where block 0
// begins, how far the next block is, and which runs of bytes make up one block. Copiers work from
// it, so that jobs carry block ids only. Nothing is assumed about the order of a tensor's
// dimensions: engines hand over shape and strides, and what cannot be is refused.
//
// The payload of a block is in canonical order: layer after layer, in each layer part after part (K
// before V before scales), in each part its bytes in the order in which they stand in memory. That
// last order is the engine's own: order() names it, and slices may be exchanged only between
// layouts whose order() is equal. Put it, and the name of whatever packing hides inside (an ISA's,
// say), into KvSpec::layout_tag.
//
// Layers of different groups may stand in the same memory (hybrid models draw the blocks of all
// groups from one pool); within one group no byte may belong to two places.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

inline constexpr uint32_t kLayerCountMax = 4096;
inline constexpr uint32_t kLayerPartsMax = 8;

// `count` things, each `stride_bytes` behind the one before it.
struct DeviceSteps {
  uint32_t count = 1;
  uint64_t stride_bytes = 0;  // nothing where count is 1

  friend bool operator==(const DeviceSteps&, const DeviceSteps&) = default;
};

// One tensor's share in the blocks of one layer. Run (i, j) of block b stands at
//   memory + offset_bytes + b × block_stride_bytes + i × outer.stride_bytes + j ×
//   inner.stride_bytes
// and is `run_bytes` long; j counts faster than i in the payload.
struct DevicePart {
  std::span<std::byte> memory;  // what the engine registered; an address range, never read here
  uint64_t offset_bytes = 0;
  uint64_t block_stride_bytes = 0;
  uint64_t run_bytes = 0;
  DeviceSteps outer;
  DeviceSteps inner;
  std::string order;  // what the bytes mean, such as "h8t16d256x2"; empty: not told

  uint64_t payload_bytes() const { return run_bytes * outer.count * inner.count; }
};

struct DeviceLayer {
  std::vector<DevicePart> parts;  // 1 to kLayerPartsMax
};

struct DeviceGroup {
  uint32_t block_count = 0;
  std::vector<DeviceLayer> layers;  // 1 to kLayerCountMax
};

enum class DeviceMemoryKind : uint8_t {
  kHost = 0,  // any thread of this process can read it
  kCuda = 1,  // of a CUDA device, in this process's context
};

// A checked layout. Owns no memory; what its parts name must outlive the copiers made of it.
// Threads: constant after create().
class DeviceLayout {
 public:
  // kInvalid with group, layer and part, the value and what is allowed: no groups, layers, runs or
  // blocks; a block that begins before the last one has ended; memory that ends too early; sums
  // beyond 63 bits; bytes of one group that would belong to two places.
  static Result<DeviceLayout> create(std::vector<DeviceGroup> groups,
                                     DeviceMemoryKind memory_kind = DeviceMemoryKind::kHost);

  DeviceMemoryKind memory_kind() const { return memory_kind_; }
  const std::vector<DeviceGroup>& groups() const { return groups_; }

  // All 0 where there is no such group.
  uint32_t block_count(GroupId group) const;
  uint32_t layer_count(GroupId group) const;
  uint64_t payload_bytes(GroupId group) const;

  // The orders of all parts, such as "0:2*(h8t16d256x2)"; equal for layouts that can read each
  // other's payloads. Says nothing of packing inside of what the engine calls an element.
  std::string order() const;

 private:
  DeviceLayout() = default;

  std::vector<DeviceGroup> groups_;
  std::vector<uint64_t> payload_bytes_;
  DeviceMemoryKind memory_kind_ = DeviceMemoryKind::kHost;
};

// Block i at i × payload_bytes, one part: the reference engine's memory.
DeviceGroup contiguous_group(std::span<std::byte> memory, uint64_t payload_bytes);

}  // namespace tiercel
