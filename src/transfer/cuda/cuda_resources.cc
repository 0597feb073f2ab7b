// SPDX-License-Identifier: Apache-2.0
#include "transfer/cuda/cuda_resources.h"

#include <utility>

namespace tiercel {

Status cuda_status(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  // Else the next call of anybody on this thread would find it again.
  static_cast<void>(cudaGetLastError());
  return Error(Code::kUnavailable, "CUDA: " + what + ": " + cudaGetErrorString(error));
}

Status check_cuda_device(int device) {
  int count = 0;
  TIERCEL_TRY(cuda_status(cudaGetDeviceCount(&count), "looking for devices"));
  if (device < 0 || device >= count) {
    return Error(Code::kUnavailable, "CUDA device is " + std::to_string(device) +
                                         "; allowed: less than " + std::to_string(count) +
                                         ", the number of devices");
  }
  return {};
}

Result<PinnedMemory> PinnedMemory::create(std::span<std::byte> memory) {
  PinnedMemory pinned;
  pinned.memory_ = memory;
  if (memory.empty()) return pinned;
  const std::string what = "pinning " + std::to_string(memory.size()) + " bytes";
  const cudaError_t error = cudaHostRegister(memory.data(), memory.size(),
                                             cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaErrorHostMemoryAlreadyRegistered) {
    static_cast<void>(cudaGetLastError());
  } else {
    TIERCEL_TRY(cuda_status(error, what));
    pinned.owned_ = true;
  }
  void* seen = nullptr;
  TIERCEL_TRY(cuda_status(cudaHostGetDevicePointer(&seen, memory.data(), 0), what));
  pinned.device_address_ = reinterpret_cast<uintptr_t>(seen);
  return pinned;
}

PinnedMemory::~PinnedMemory() {
  if (owned_) static_cast<void>(cudaHostUnregister(memory_.data()));
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : memory_(other.memory_),
      device_address_(other.device_address_),
      owned_(std::exchange(other.owned_, false)) {}

bool PinnedMemory::contains(std::span<const std::byte> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
  const auto at = reinterpret_cast<uintptr_t>(part.data());
  return at >= begin && at - begin <= memory_.size() &&
         part.size() <= memory_.size() - (at - begin);
}

Result<CudaStream> make_cuda_stream() {
  cudaStream_t stream = nullptr;
  TIERCEL_TRY(
      cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a new stream"));
  return CudaStream(stream);
}

Result<CudaEvent> make_cuda_event() {
  cudaEvent_t event = nullptr;
  TIERCEL_TRY(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "a new event"));
  return CudaEvent(event);
}

}  // namespace tiercel
