// SPDX-License-Identifier: Apache-2.0
//
// CudaLayoutCopier: the device copier over memory of a CUDA device.
//
// A call is cut into steps: layers where an observer wants them, else a few blocks each. The copies
// of all steps are put into one stream, an event behind each step; while later steps are on their
// way, the checksums of those that have arrived are taken from the payload. Short runs go through a
// kernel that reads and writes the pinned payload itself, long ones through batched copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tiercel/device_layout.h"
#include "tiercel/status.h"

#include "transfer/device_copier.h"

namespace tiercel {

struct CudaCopierOptions {
  int device = 0;
  // Parts whose runs are at most this long are moved by the kernel; 0: none are.
  uint64_t kernel_run_bytes_max = uint64_t{64} << 10;
  uint32_t kernel_blocks_max = 64;  // thread blocks of the kernel: what copying may take at most
};

// Threads: the rank worker's, which must be of the process that owns the device's memory. Sets that
// thread's current device.
class CudaLayoutCopier final : public DeviceCopier {
 public:
  // `host_memory` is where all payloads are, the rank's part of the host tier; it is pinned while
  // the copier lives. kUnavailable, with CUDA's reason, if there is no such device or it refuses;
  // kInvalid if the layout's memory is not that device's.
  static Result<std::unique_ptr<CudaLayoutCopier>> create(const DeviceLayout& layout,
                                                          std::span<std::byte> host_memory,
                                                          const CudaCopierOptions& options);
  ~CudaLayoutCopier() override;

  // What later calls copy comes behind `event`, a cudaEvent_t that the engine has recorded: behind
  // the forward pass that computes a block, or the one that still reads it.
  Status wait_for(void* event);

  uint32_t block_count(GroupId group) const override;
  uint32_t layer_count(GroupId group) const override;
  uint64_t payload_bytes(GroupId group) const override;

  // As DeviceCopier; kInvalid also if a payload is not in `host_memory`.
  Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override;
  Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override;

 private:
  class Impl;
  explicit CudaLayoutCopier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tiercel
