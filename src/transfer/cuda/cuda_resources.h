// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA runtime lends, as owners that give it back: pinned memory, streams, events,
// buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "tiercel/status.h"

namespace tiercel {

// kUnavailable with what CUDA says of it, unless `error` is none.
Status cuda_status(cudaError_t error, const std::string& what);

// kUnavailable, with the reason, if there is no CUDA device of that number.
Status check_cuda_device(int device);

// An arena (or any other memory of the host) pinned for the devices while this object lives.
// Memory that somebody has pinned already is left to them.
class PinnedMemory {
 public:
  static Result<PinnedMemory> create(std::span<std::byte> memory);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;

  std::span<std::byte> memory() const { return memory_; }
  bool contains(std::span<const std::byte> part) const;
  // Where the current device sees a place of the memory.
  uint64_t device_address(const std::byte* place) const {
    return device_address_ + static_cast<uint64_t>(place - memory_.data());
  }

 private:
  PinnedMemory() = default;

  std::span<std::byte> memory_;
  uint64_t device_address_ = 0;
  bool owned_ = false;
};

struct CudaStreamDeleter {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
using CudaStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, CudaStreamDeleter>;

struct CudaEventDeleter {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
using CudaEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, CudaEventDeleter>;

struct CudaHostDeleter {
  void operator()(void* memory) const { static_cast<void>(cudaFreeHost(memory)); }
};
struct CudaDeviceDeleter {
  void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
};
template <typename T>
using CudaHostArray = std::unique_ptr<T[], CudaHostDeleter>;
template <typename T>
using CudaDeviceArray = std::unique_ptr<T[], CudaDeviceDeleter>;

// Without implicit order to any other stream.
Result<CudaStream> make_cuda_stream();
// Without times.
Result<CudaEvent> make_cuda_event();

template <typename T>
Result<CudaHostArray<T>> make_cuda_host_array(size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  void* memory = nullptr;
  TIERCEL_TRY(cuda_status(cudaMallocHost(&memory, count * sizeof(T)), "pinned memory"));
  return CudaHostArray<T>(static_cast<T*>(memory));
}

template <typename T>
Result<CudaDeviceArray<T>> make_cuda_device_array(size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  void* memory = nullptr;
  TIERCEL_TRY(cuda_status(cudaMalloc(&memory, count * sizeof(T)), "device memory"));
  return CudaDeviceArray<T>(static_cast<T*>(memory));
}

}  // namespace tiercel
