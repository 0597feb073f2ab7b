// SPDX-License-Identifier: Apache-2.0
#include "cli/device_memory.h"

#include "cli/oracle.h"

namespace tiercel {
namespace {

OracleBlock oracle_block(const BlockKey& key, size_t rank) {
  return {key, GroupId(0), static_cast<uint16_t>(rank)};
}

}  // namespace

Result<DeviceMemory> DeviceMemory::create(uint32_t rank_count, uint64_t block_count,
                                          uint64_t block_bytes, ArenaKind kind) {
  ArenaOptions options;
  options.kind = kind;
  DeviceMemory memory;
  memory.block_count_ = block_count;
  memory.block_bytes_ = block_bytes;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    TIERCEL_TRY_ASSIGN(memory.ranks_.emplace_back(),
                       Arena::create(block_count * block_bytes, options));
  }
  return memory;
}

std::vector<std::vector<std::span<std::byte>>> DeviceMemory::spans() const {
  std::vector<std::vector<std::span<std::byte>>> spans;
  spans.reserve(ranks_.size());
  for (const auto& arena : ranks_) {
    spans.push_back({arena->memory().first(block_count_ * block_bytes_)});
  }
  return spans;
}

std::vector<int> DeviceMemory::descriptors() const {
  std::vector<int> descriptors;
  descriptors.reserve(ranks_.size());
  for (const auto& arena : ranks_) descriptors.push_back(arena->fd());
  return descriptors;
}

std::span<std::byte> DeviceMemory::block_memory(uint32_t rank, DeviceBlockId block) const {
  return ranks_[rank]->memory().subspan(block.value() * block_bytes_, block_bytes_);
}

void DeviceMemory::compute(const BlockKey& key, DeviceBlockId block) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    fill_oracle(oracle_block(key, rank), block_memory(rank, block));
  }
}

std::optional<DeviceMemory::Mismatch> DeviceMemory::check(const BlockKey& key,
                                                          DeviceBlockId block) const {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto offset = find_oracle_mismatch(oracle_block(key, rank), block_memory(rank, block));
    if (offset) return Mismatch{rank, *offset};
  }
  return std::nullopt;
}

}  // namespace tiercel
