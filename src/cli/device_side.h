// SPDX-License-Identifier: Apache-2.0
//
// DeviceSide: the engine's end of a replay: who owns the device blocks, and so which calls carry a
// request. Either the engine does (scratch blocks, nothing stays on the device), or Tiercel
// (engine/prefix_cache.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tiercel/cache.h"

namespace tiercel {

// Threads: control thread only; nothing blocks.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;

  struct Admission {
    std::span<const DeviceBlockId> blocks;  // one for each key; valid until the request ends
    uint32_t device_hits = 0;               // leading blocks that are there already
  };
  virtual Result<Admission> admit(RequestId request, std::span<const BlockKey> keys) = 0;

  // Starts to load what the host tier has behind the device's part; see Cache::load.
  virtual Result<uint32_t> load(RequestId request, std::span<const BlockKey> keys,
                                TimePoint deadline) = 0;

  // The blocks of the request from `first_computed` on have been computed.
  virtual Status computed(RequestId request, std::span<const BlockKey> keys,
                          uint32_t first_computed) = 0;
  // See Cache::commit.
  virtual Status commit(RequestId request, uint64_t token_count) = 0;

  // True: transfers still touch device blocks that the next request would get; kDeviceReleased
  // follows.
  virtual Result<bool> finish(RequestId request) = 0;

  virtual size_t poll(std::span<CacheEvent> events) = 0;
};

// Device blocks 0, 1, … for every request anew. `cache` must outlive it.
std::unique_ptr<DeviceSide> make_scratch_device_side(Cache& cache, uint32_t block_count);

// A device tier; `config` is what `cache` was made with, config.device_blocks > 0.
Result<std::unique_ptr<DeviceSide>> make_owned_device_side(const CacheConfig& config, Cache& cache);

}  // namespace tiercel
