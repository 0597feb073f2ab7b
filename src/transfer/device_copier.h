// SPDX-License-Identifier: Apache-2.0
//
// DeviceCopier: moves blocks between paged device memory and contiguous payloads, on one rank; many
// blocks and all their layers in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

// One block of a call.
struct DeviceCopy {
  DeviceBlockId block;
  std::span<std::byte> payload;  // exactly payload_bytes(group); only read by scatter
  uint32_t checksum = 0;         // out: CRC32C of `payload` as it was copied
};

// Told of the layers of a call, for engines that begin to compute while later layers still come.
// A layer may be shown to an engine before the checksum of the whole payload is known; who must not
// do that verifies the payloads first.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;

  // Every byte of the layer has been copied, in all blocks of the call. Once for each layer, in
  // order, by the thread that called the copier; not for the layers behind a failure.
  virtual void layer_done(uint32_t layer) = 0;

  // Only copiers that put their work into a queue of the device: the layer's copies are in it, and
  // `event` (of the device's own kind, cudaEvent_t) comes behind them, so that work of another
  // queue can wait for it there. Before layer_done() of the same layer; the event may be used until
  // the call returns.
  virtual void layer_queued(uint32_t layer, void* event) {
    static_cast<void>(layer);
    static_cast<void>(event);
  }
};

// Threads: the rank worker's.
class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;

  // All 0 where there is no such group.
  virtual uint32_t block_count(GroupId group) const = 0;
  virtual uint32_t layer_count(GroupId group) const = 0;
  virtual uint64_t payload_bytes(GroupId group) const = 0;

  // Device blocks → payloads, or payloads → device blocks. Returns when all is done, with every
  // checksum set. kInvalid, and nothing touched, if there is no such group, a block is out of range
  // or a payload of another length; `unavailable` if the device failed: what the call names is
  // undefined then, and nothing touches it any more. No place that is written may be named twice.
  // `observer` may be null; then the order in which layers are copied is the copier's.
  virtual Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) = 0;
  virtual Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) = 0;
};

// What gather() and scatter() refuse, for their implementations.
Status check_copies(const DeviceCopier& copier, GroupId group, std::span<const DeviceCopy> copies);

// Device memory of one group in the plainest form: block i at base + i × payload bytes. For the
// reference engine and tests; the memory belongs to the caller and must outlive the copier.
struct ContiguousGroupMemory {
  std::span<std::byte> memory;  // block_count × payload_bytes
  uint64_t payload_bytes = 0;
};

// A copier over such memory; one without groups until create() has made one.
class ContiguousCopier final : public DeviceCopier {
 public:
  // kInvalid if a memory is not a whole number of blocks.
  static Result<ContiguousCopier> create(const std::vector<ContiguousGroupMemory>& groups);

  uint32_t block_count(GroupId group) const override;
  uint32_t layer_count(GroupId group) const override;
  uint64_t payload_bytes(GroupId group) const override;
  Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override;
  Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override;

 private:
  std::unique_ptr<DeviceCopier> inner_;
};

}  // namespace tiercel
