// SPDX-License-Identifier: Apache-2.0
//
// Where a byte of a payload stands on the device, and the loop that moves payloads unit by unit.
// This is the body of the CUDA kernel; compiled for the host it is tested over every layout without
// a GPU. Plain data and integer arithmetic only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define TIERCEL_HOST_DEVICE __host__ __device__
#else
#define TIERCEL_HOST_DEVICE
#endif

namespace tiercel {

// One part of one layer of all blocks, in addresses (see DevicePart).
struct PartPlan {
  uint64_t address = 0;  // of block 0's first run
  uint64_t block_stride_bytes = 0;
  uint64_t payload_offset = 0;  // where the part stands in the payload
  uint64_t run_bytes = 0;
  uint64_t inner_stride_bytes = 0;
  uint64_t outer_stride_bytes = 0;
  uint32_t inner_count = 1;
  uint32_t outer_count = 1;

  TIERCEL_HOST_DEVICE uint64_t payload_bytes() const {
    return run_bytes * inner_count * outer_count;
  }
  // The address of run `run` (inner ones first) of a block.
  TIERCEL_HOST_DEVICE uint64_t run_address(uint32_t block, uint64_t run) const {
    return address + block * block_stride_bytes + run / inner_count * outer_stride_bytes +
           run % inner_count * inner_stride_bytes;
  }
};

// One block of a call, as copiers see it.
struct CopyPlace {
  uint64_t payload = 0;  // address
  uint32_t block = 0;
  uint32_t reserved = 0;
};

enum class CopyDirection : uint8_t { kGather, kScatter };

// Moves of `part` the units first, first + step, … of all blocks; unit n is bytes [n × unit_bytes,
// …) of the part, counted on through the blocks. `Unit` is trivially copyable; runs, strides and
// addresses are multiples of its size.
template <typename Unit>
TIERCEL_HOST_DEVICE void copy_units(const PartPlan& part, const CopyPlace* places,
                                    uint32_t place_count, CopyDirection direction, uint64_t first,
                                    uint64_t step) {
  const uint64_t units_per_run = part.run_bytes / sizeof(Unit);
  const uint64_t units_per_block = part.payload_bytes() / sizeof(Unit);
  for (uint64_t n = first; n < units_per_block * place_count; n += step) {
    const CopyPlace place = places[n / units_per_block];
    const uint64_t unit = n % units_per_block;
    const uint64_t device =
        part.run_address(place.block, unit / units_per_run) + unit % units_per_run * sizeof(Unit);
    const uint64_t payload = place.payload + part.payload_offset + unit * sizeof(Unit);
    const uint64_t from = direction == CopyDirection::kGather ? device : payload;
    const uint64_t to = direction == CopyDirection::kGather ? payload : device;
#ifdef __CUDA_ARCH__
    *reinterpret_cast<Unit*>(to) = *reinterpret_cast<const Unit*>(from);
#else
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are numbers here
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), sizeof(Unit));
#endif
  }
}

// The largest of 16, 8, 4, 2 and 1 that divides every number in `bits`, which are or-ed together.
TIERCEL_HOST_DEVICE inline uint32_t unit_bytes_for(uint64_t bits) {
  const uint64_t lowest = (bits | 16) & (~(bits | 16) + 1);
  return static_cast<uint32_t>(lowest);
}

}  // namespace tiercel
