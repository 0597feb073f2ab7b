// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime without CUDA: one device, whose memory is the host's, and streams that do nothing
// until somebody waits for them. So a copier that looks at bytes too early, or returns with copies
// under way, is found on a machine without a GPU. Stands in for libcudart and for the kernel's
// launch in the program tiercel_transfer_fake_cuda_tests only.
#include "transfer/cuda/fake_cuda_runtime.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include <cuda_runtime_api.h>

#include "transfer/cuda/copy_kernel.h"

struct CUstream_st {
  std::deque<std::function<void()>> waiting;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t recorded = 0;
  uint64_t reached = 0;
};

namespace {

struct Runtime {
  uint64_t fail_in = 0;
  bool failed = false;
  size_t resources = 0;
  std::map<uintptr_t, size_t> device_memory;  // begin → bytes
  std::map<uintptr_t, size_t> pinned;
  std::map<CUstream_st*, int> streams;
};
Runtime runtime;

// For every function that can fail.
cudaError_t call() {
  if (runtime.fail_in == 0 || --runtime.fail_in > 0) return cudaSuccess;
  runtime.failed = true;
  return cudaErrorLaunchFailure;
}

bool is_in(const std::map<uintptr_t, size_t>& areas, const void* place) {
  const auto at = reinterpret_cast<uintptr_t>(place);
  auto next = areas.upper_bound(at);
  if (next == areas.begin()) return false;
  --next;
  return at - next->first < next->second;
}

void run_one(CUstream_st* stream) {
  const std::function<void()> operation = std::move(stream->waiting.front());
  stream->waiting.pop_front();
  operation();
}

void run_until(CUevent_st* event, uint64_t goal) {
  while (event->reached < goal && !event->stream->waiting.empty()) run_one(event->stream);
}

template <typename Handle>
cudaError_t give(Handle*& place, Handle* value) {
  const cudaError_t error = call();
  if (error != cudaSuccess) {
    delete value;
    return error;
  }
  ++runtime.resources;
  place = value;
  return cudaSuccess;
}

cudaError_t give_memory(void** place, size_t bytes) {
  const cudaError_t error = call();
  if (error != cudaSuccess) return error;
  ++runtime.resources;
  *place = std::malloc(bytes);
  return cudaSuccess;
}

}  // namespace

namespace tiercel::testing {

void fail_cuda_call(uint64_t n) {
  runtime.fail_in = n;
  runtime.failed = false;
}
bool cuda_call_has_failed() { return runtime.failed; }
size_t waiting_cuda_operations() {
  size_t count = 0;
  for (const auto& [stream, unused] : runtime.streams) count += stream->waiting.size();
  return count;
}
size_t cuda_resources_held() { return runtime.resources; }

}  // namespace tiercel::testing

namespace tiercel {

cudaError_t launch_copy(const PartPlan& part, uint32_t unit_bytes, const CopyPlace* places,
                        uint32_t place_count, CopyDirection direction, uint32_t grid_blocks_max,
                        cudaStream_t stream) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (grid_blocks_max == 0) return cudaErrorInvalidValue;
  // As on a device, nothing is aligned by itself.
  for (uint32_t i = 0; i < place_count; ++i) {
    if ((part.address + part.run_bytes) % unit_bytes != 0) return cudaErrorMisalignedAddress;
  }
  stream->waiting.emplace_back([part, unit_bytes, places, place_count, direction] {
    for (uint32_t i = 0; i < place_count; ++i) {
      if (places[i].payload % unit_bytes != 0) std::abort();
    }
    const uint64_t threads = 96;
    for (uint64_t thread = 0; thread < threads; ++thread) {
      if (unit_bytes == 16) {
        copy_units<uint4>(part, places, place_count, direction, thread, threads);
      } else if (unit_bytes == 8) {
        copy_units<uint2>(part, places, place_count, direction, thread, threads);
      } else if (unit_bytes == 4) {
        copy_units<uint32_t>(part, places, place_count, direction, thread, threads);
      } else if (unit_bytes == 2) {
        copy_units<uint16_t>(part, places, place_count, direction, thread, threads);
      } else {
        copy_units<uint8_t>(part, places, place_count, direction, thread, threads);
      }
    }
  });
  return cudaSuccess;
}

}  // namespace tiercel

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the fake runtime"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return call();
}
cudaError_t cudaSetDevice(int) { return call(); }

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned int) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (is_in(runtime.pinned, memory)) return cudaErrorHostMemoryAlreadyRegistered;
  runtime.pinned[reinterpret_cast<uintptr_t>(memory)] = bytes;
  ++runtime.resources;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  if (runtime.pinned.erase(reinterpret_cast<uintptr_t>(memory)) == 0) std::abort();
  --runtime.resources;
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** seen, void* memory, unsigned int) {
  *seen = memory;
  return call();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  const cudaError_t error = give(*stream, new CUstream_st);
  if (error == cudaSuccess) runtime.streams[*stream] = 0;
  return error;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  // What is still under way would touch memory that nobody promises any more.
  if (!stream->waiting.empty()) std::abort();
  runtime.streams.erase(stream);
  delete stream;
  --runtime.resources;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  while (!stream->waiting.empty()) run_one(stream);
  return call();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (event->stream == nullptr || event->stream == stream) return cudaSuccess;
  stream->waiting.emplace_back([event, goal = event->recorded] { run_until(event, goal); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  return give(*event, new CUevent_st);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --runtime.resources;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  event->stream = stream;
  ++event->recorded;
  stream->waiting.emplace_back([event, now = event->recorded] { event->reached = now; });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (event->stream != nullptr) run_until(event, event->recorded);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) { return give_memory(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  --runtime.resources;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const cudaError_t error = give_memory(memory, bytes);
  if (error == cudaSuccess) {
    runtime.device_memory[reinterpret_cast<uintptr_t>(*memory)] = bytes;
  }
  return error;
}
cudaError_t cudaFree(void* memory) {
  runtime.device_memory.erase(reinterpret_cast<uintptr_t>(memory));
  return cudaFreeHost(memory);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const bool on_device = is_in(runtime.device_memory, memory);
  attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->device = 0;
  return call();
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  std::memcpy(target, source, bytes);
  return call();
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  stream->waiting.emplace_back([target, source, bytes] { std::memcpy(target, source, bytes); });
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources,
                                 const size_t* bytes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t* firsts,
                                 size_t attribute_count, cudaStream_t stream) {
  if (attribute_count != 1 || firsts[0] != 0 || count == 0 ||
      attributes[0].srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    return cudaErrorInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    const cudaError_t error =
        cudaMemcpyAsync(targets[i], sources[i], bytes[i], cudaMemcpyDefault, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
#endif

}  // extern "C"
