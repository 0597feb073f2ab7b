// SPDX-License-Identifier: Apache-2.0
#include "transfer/cuda/copy_kernel.h"

namespace tiercel {
namespace {

constexpr uint32_t kThreads = 256;

template <typename Unit>
__global__ void copy_part(PartPlan part, const CopyPlace* places, uint32_t place_count,
                          CopyDirection direction) {
  const uint64_t first = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  copy_units<Unit>(part, places, place_count, direction, first, step);
}

template <typename Unit>
cudaError_t launch(const PartPlan& part, const CopyPlace* places, uint32_t place_count,
                   CopyDirection direction, uint32_t grid_blocks_max, cudaStream_t stream) {
  const uint64_t units = part.payload_bytes() / sizeof(Unit) * place_count;
  const uint64_t wanted = (units + kThreads - 1) / kThreads;
  if (wanted == 0) return cudaSuccess;
  const auto grid = static_cast<uint32_t>(wanted < grid_blocks_max ? wanted : grid_blocks_max);
  copy_part<Unit><<<grid, kThreads, 0, stream>>>(part, places, place_count, direction);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_copy(const PartPlan& part, uint32_t unit_bytes, const CopyPlace* places,
                        uint32_t place_count, CopyDirection direction, uint32_t grid_blocks_max,
                        cudaStream_t stream) {
  switch (unit_bytes) {
    case 16:
      return launch<uint4>(part, places, place_count, direction, grid_blocks_max, stream);
    case 8:
      return launch<uint2>(part, places, place_count, direction, grid_blocks_max, stream);
    case 4:
      return launch<uint32_t>(part, places, place_count, direction, grid_blocks_max, stream);
    case 2:
      return launch<uint16_t>(part, places, place_count, direction, grid_blocks_max, stream);
    case 1:
      return launch<uint8_t>(part, places, place_count, direction, grid_blocks_max, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tiercel
