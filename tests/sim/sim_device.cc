// SPDX-License-Identifier: Apache-2.0
#include "sim_device.h"

#include <cstring>

#include <fmt/core.h>

#include "failure.h"
#include "oracle.h"

namespace tiercel::sim {

SimDevice::SimDevice(const std::vector<std::vector<uint64_t>>& payload_bytes,
                     uint32_t blocks_per_group, bool equal_slices, uint64_t weights)
    : payload_bytes_(payload_bytes), equal_slices_(equal_slices), weights_(weights) {
  const size_t rank_count = payload_bytes.front().size();
  actual_.resize(rank_count);
  for (size_t rank = 0; rank < rank_count; ++rank) {
    for (const auto& bytes : payload_bytes) {
      actual_[rank].emplace_back(bytes[rank] * blocks_per_group);
    }
  }
  expected_ = actual_;
  blocks_.resize(payload_bytes.size());
  free_.resize(payload_bytes.size());
  for (uint8_t group = 0; group < payload_bytes.size(); ++group) {
    blocks_[group].resize(blocks_per_group);
    for (uint32_t block = blocks_per_group; block-- > 0;) {
      free_[group].emplace_back(block);
      write_garbage(GroupId(group), DeviceBlockId(block));
    }
  }
}

std::vector<ContiguousGroupMemory> SimDevice::memory_of(uint32_t rank) {
  std::vector<ContiguousGroupMemory> memory;
  for (size_t group = 0; group < payload_bytes_.size(); ++group) {
    memory.push_back({actual_[rank][group], payload_bytes_[group][rank]});
  }
  return memory;
}

std::optional<DeviceBlockId> SimDevice::allocate(GroupId group) {
  std::vector<DeviceBlockId>& free = free_[group.value()];
  if (free.empty()) return std::nullopt;
  const DeviceBlockId block = free.back();
  free.pop_back();
  blocks_[group.value()][block.value()].free = false;
  return block;
}

bool SimDevice::all_free() const {
  for (size_t group = 0; group < free_.size(); ++group) {
    if (free_[group].size() != blocks_[group].size()) return false;
  }
  return true;
}

void SimDevice::free(GroupId group, DeviceBlockId block) {
  Block& state = blocks_[group.value()][block.value()];
  if (state.free) fail("engine", "the toy engine frees a device block twice");
  state.free = true;
  write_garbage(group, block);
  free_[group.value()].push_back(block);
}

std::span<std::byte> SimDevice::slice(std::vector<std::vector<std::vector<std::byte>>>& memory,
                                      uint32_t rank, GroupId group, DeviceBlockId block) {
  const uint64_t bytes = payload_bytes_[group.value()][rank];
  return std::span(memory[rank][group.value()]).subspan(block.value() * bytes, bytes);
}

template <typename Fill>
void SimDevice::write(GroupId group, DeviceBlockId block, Fill&& fill) {
  for (uint32_t rank = 0; rank < actual_.size(); ++rank) {
    const std::span<std::byte> expected = slice(expected_, rank, group, block);
    fill(expected, rank);
    std::memcpy(slice(actual_, rank, group, block).data(), expected.data(), expected.size());
  }
  blocks_[group.value()][block.value()].busy = false;
}

void SimDevice::write_oracle(GroupId group, DeviceBlockId block, const BlockKey& key) {
  write(group, block, [&](std::span<std::byte> out, uint32_t rank) {
    fill_oracle(out, key, group, content_of(rank), weights_);
  });
}

void SimDevice::write_half(GroupId group, DeviceBlockId block, const BlockKey& key) {
  const uint64_t garbage = ++garbage_;
  write(group, block, [&](std::span<std::byte> out, uint32_t rank) {
    fill_oracle(out, key, group, content_of(rank), weights_);
    fill_garbage(out.subspan(out.size() / 2), garbage);
  });
}

void SimDevice::write_garbage(GroupId group, DeviceBlockId block) {
  const uint64_t garbage = ++garbage_;
  write(group, block, [&](std::span<std::byte> out, uint32_t rank) {
    fill_garbage(out, garbage + content_of(rank));
  });
}

void SimDevice::set_busy(GroupId group, DeviceBlockId block) {
  blocks_[group.value()][block.value()].busy = true;
}

void SimDevice::expect_loaded(GroupId group, DeviceBlockId block, const BlockKey& key) {
  for (uint32_t rank = 0; rank < actual_.size(); ++rank) {
    const std::span<std::byte> expected = slice(expected_, rank, group, block);
    fill_oracle(expected, key, group, content_of(rank), weights_);
    const std::span<std::byte> actual = slice(actual_, rank, group, block);
    if (std::memcmp(actual.data(), expected.data(), expected.size()) != 0) {
      fail("bytes",
           fmt::format("device block {} of group {} was reported as loaded, but on rank {} "
                       "it does not hold the bytes of key {}",
                       block.value(), group.value(), rank, key.hex().substr(0, 12)));
    }
  }
  blocks_[group.value()][block.value()].busy = false;
}

void SimDevice::check() const {
  for (size_t group = 0; group < blocks_.size(); ++group) {
    for (size_t block = 0; block < blocks_[group].size(); ++block) {
      if (blocks_[group][block].busy) continue;
      for (size_t rank = 0; rank < actual_.size(); ++rank) {
        const uint64_t bytes = payload_bytes_[group][rank];
        if (std::memcmp(actual_[rank][group].data() + block * bytes,
                        expected_[rank][group].data() + block * bytes, bytes) != 0) {
          fail("device",
               fmt::format("device block {} of group {} ({}) was changed behind the "
                           "engine's back on rank {}",
                           block, group, blocks_[group][block].free ? "free" : "owned", rank));
        }
      }
    }
  }
}

}  // namespace tiercel::sim
