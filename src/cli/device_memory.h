// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemory: stands for the device of an engine, one piece per rank, block i at i × block_bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "base/arena.h"

namespace tiercel {

// Ownership: owns the memory. Threads: control thread, and rank workers for blocks that are being
// transferred.
class DeviceMemory {
 public:
  // kNoSpace as Arena::create.
  static Result<DeviceMemory> create(uint32_t rank_count, uint64_t block_count,
                                     uint64_t block_bytes, ArenaKind kind = ArenaKind::kAnonymous);

  // [rank][group], as LocalCacheConfig::device_memory wants it.
  std::vector<std::vector<std::span<std::byte>>> spans() const;

  // [rank], as LocalCacheConfig::device_fds wants it; -1 unless the kind is kMemfd.
  std::vector<int> descriptors() const;

  // "Computes" a block: writes what it must be, on every rank.
  void compute(const BlockKey& key, DeviceBlockId block);

  struct Mismatch {
    uint32_t rank = 0;
    size_t offset = 0;  // of the first byte that differs
  };
  // The first rank on which the block is not what it must be.
  std::optional<Mismatch> check(const BlockKey& key, DeviceBlockId block) const;

 private:
  DeviceMemory() = default;
  std::span<std::byte> block_memory(uint32_t rank, DeviceBlockId block) const;

  std::vector<std::unique_ptr<Arena>> ranks_;
  uint64_t block_count_ = 0;
  uint64_t block_bytes_ = 0;
};

}  // namespace tiercel
