// SPDX-License-Identifier: Apache-2.0
#include "transfer/cuda/cuda_layout_copier.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "base/checksum.h"
#include "transfer/cuda/copy_kernel.h"
#include "transfer/cuda/cuda_resources.h"
#include "transfer/layout_plan.h"

namespace tiercel {
namespace {

// Without an observer: enough steps for checksums and copies to overlap.
constexpr size_t kStepsWanted = 8;
// Copies handed over in one call.
constexpr size_t kBatchCopies = 4096;

// Parts of the payload (neighbours in it) of some of the blocks of a call.
struct Step {
  std::span<const PartPlan> parts;
  size_t first = 0;  // copy
  size_t count = 0;
};

// A list of plain copies, for one call of the runtime.
class CopyBatch {
 public:
  CopyBatch(cudaStream_t stream, CopyDirection direction)
      : stream_(stream), gather_(direction == CopyDirection::kGather) {}

  Status add(uint64_t device, const std::byte* payload, uint64_t bytes) {
    void* const on_device = reinterpret_cast<void*>(device);
    void* const on_host = const_cast<std::byte*>(payload);
    targets_.push_back(gather_ ? on_host : on_device);
    sources_.push_back(gather_ ? on_device : on_host);
    bytes_.push_back(bytes);
    return bytes_.size() < kBatchCopies ? Status() : flush();
  }

  Status flush() {
    if (bytes_.empty()) return {};
    const Status status = cuda_status(submit(), "starting copies");
    targets_.clear();
    sources_.clear();
    bytes_.clear();
    return status;
  }

 private:
  cudaError_t submit() {
#if CUDART_VERSION >= 13000
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    size_t first = 0;
    return cudaMemcpyBatchAsync(targets_.data(), sources_.data(), bytes_.data(), bytes_.size(),
                                &attributes, &first, 1, stream_);
#else
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const cudaError_t error =
          cudaMemcpyAsync(targets_[i], sources_[i], bytes_[i], cudaMemcpyDefault, stream_);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
#endif
  }

  cudaStream_t stream_;
  bool gather_;
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
  std::vector<size_t> bytes_;
};

Status check_memory(const DeviceLayout& layout, int device) {
  if (layout.memory_kind() != DeviceMemoryKind::kCuda) {
    return Error(Code::kInvalid,
                 "the device layout names memory of the host; allowed here: of a CUDA device");
  }
  for (const DeviceGroup& group : layout.groups()) {
    for (const DeviceLayer& layer : group.layers) {
      for (const DevicePart& part : layer.parts) {
        cudaPointerAttributes attributes{};
        TIERCEL_TRY(cuda_status(cudaPointerGetAttributes(&attributes, part.memory.data()),
                                "asking whose memory a layer is"));
        const bool on_device =
            attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
        if (!on_device || attributes.device != device) {
          return Error(Code::kInvalid,
                       "the memory of a layer is " +
                           (on_device ? "of CUDA device " + std::to_string(attributes.device)
                                      : std::string("of no CUDA device")) +
                           "; allowed: of device " + std::to_string(device));
        }
      }
    }
  }
  return {};
}

}  // namespace

class CudaLayoutCopier::Impl {
 public:
  Impl(const DeviceLayout& layout, PinnedMemory host_memory, CudaStream stream,
       const CudaCopierOptions& options)
      : options_(options),
        plan_(layout),
        host_memory_(std::move(host_memory)),
        stream_(std::move(stream)) {}

  const GroupPlan* find(GroupId group) const { return plan_.find(group); }

  Status make_current() { return cuda_status(cudaSetDevice(options_.device), "choosing a device"); }

  Status wait_for(void* event) {
    TIERCEL_TRY(make_current());
    return cuda_status(cudaStreamWaitEvent(stream_.get(), static_cast<cudaEvent_t>(event), 0),
                       "waiting for an event");
  }

  Status run(const GroupPlan& plan, CopyDirection direction, std::span<DeviceCopy> copies,
             LayerObserver* observer) {
    for (const DeviceCopy& copy : copies) {
      if (!host_memory_.contains(copy.payload)) {
        return Error(Code::kInvalid,
                     "a payload is outside of the pinned host memory; allowed: only inside");
      }
    }
    TIERCEL_TRY(make_current());
    const Status status = copy_all(plan, direction, copies, observer);
    // Whatever was started before it failed must have let go of the memory.
    if (!status) static_cast<void>(cudaStreamSynchronize(stream_.get()));
    return status;
  }

 private:
  Status copy_all(const GroupPlan& plan, CopyDirection direction, std::span<DeviceCopy> copies,
                  LayerObserver* observer) {
    cut(plan, copies.size(), observer != nullptr);
    TIERCEL_TRY(prepare(copies));
    for (size_t i = 0; i < steps_.size(); ++i) {
      TIERCEL_TRY(start(steps_[i], direction, copies));
      TIERCEL_TRY(cuda_status(cudaEventRecord(events_[i].get(), stream_.get()), "an event"));
      if (observer != nullptr) observer->layer_queued(static_cast<uint32_t>(i), events_[i].get());
    }
    for (DeviceCopy& copy : copies) copy.checksum = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      // What is scattered can be summed while it is on its way, what is gathered only afterwards.
      if (direction == CopyDirection::kScatter) sum(steps_[i], copies);
      TIERCEL_TRY(cuda_status(cudaEventSynchronize(events_[i].get()), "copying"));
      if (direction == CopyDirection::kGather) sum(steps_[i], copies);
      if (observer != nullptr) observer->layer_done(static_cast<uint32_t>(i));
    }
    return {};
  }

  void cut(const GroupPlan& plan, size_t copy_count, bool layer_wise) {
    steps_.clear();
    if (layer_wise) {
      for (uint32_t l = 0; l < plan.layer_count(); ++l) {
        steps_.push_back({plan.layer(l), 0, copy_count});
      }
      return;
    }
    const size_t per_step = (copy_count + kStepsWanted - 1) / kStepsWanted;
    for (size_t first = 0; first < copy_count; first += per_step) {
      steps_.push_back({plan.joined, first, std::min(per_step, copy_count - first)});
    }
  }

  // Events, and the table of blocks where the kernel can read it.
  Status prepare(std::span<const DeviceCopy> copies) {
    while (events_.size() < steps_.size()) {
      TIERCEL_TRY_ASSIGN(events_.emplace_back(), make_cuda_event());
    }
    if (copies.empty()) return {};
    if (copies.size() > places_capacity_) {
      places_capacity_ = 0;
      TIERCEL_TRY_ASSIGN(host_places_, make_cuda_host_array<CopyPlace>(copies.size()));
      TIERCEL_TRY_ASSIGN(device_places_, make_cuda_device_array<CopyPlace>(copies.size()));
      places_capacity_ = copies.size();
    }
    payload_bits_ = 0;
    for (size_t i = 0; i < copies.size(); ++i) {
      host_places_[i] = {host_memory_.device_address(copies[i].payload.data()),
                         copies[i].block.value(), 0};
      payload_bits_ |= host_places_[i].payload;
    }
    return cuda_status(
        cudaMemcpyAsync(device_places_.get(), host_places_.get(), copies.size() * sizeof(CopyPlace),
                        cudaMemcpyHostToDevice, stream_.get()),
        "the table of blocks");
  }

  Status start(const Step& step, CopyDirection direction, std::span<const DeviceCopy> copies) {
    CopyBatch batch(stream_.get(), direction);
    for (const PartPlan& part : step.parts) {
      if (part.run_bytes <= options_.kernel_run_bytes_max) {
        const uint32_t unit_bytes = std::min(unit_bytes_of(part), unit_bytes_for(payload_bits_));
        TIERCEL_TRY(
            cuda_status(launch_copy(part, unit_bytes, device_places_.get() + step.first,
                                    static_cast<uint32_t>(step.count), direction,
                                    std::max(1u, options_.kernel_blocks_max), stream_.get()),
                        "starting the copy kernel"));
        continue;
      }
      const uint64_t runs = uint64_t{part.inner_count} * part.outer_count;
      for (const DeviceCopy& copy : copies.subspan(step.first, step.count)) {
        const std::byte* payload = copy.payload.data() + part.payload_offset;
        for (uint64_t run = 0; run < runs; ++run, payload += part.run_bytes) {
          TIERCEL_TRY(
              batch.add(part.run_address(copy.block.value(), run), payload, part.run_bytes));
        }
      }
    }
    return batch.flush();
  }

  static void sum(const Step& step, std::span<DeviceCopy> copies) {
    const uint64_t begin = step.parts.front().payload_offset;
    const uint64_t end = step.parts.back().payload_offset + step.parts.back().payload_bytes();
    for (DeviceCopy& copy : copies.subspan(step.first, step.count)) {
      copy.checksum = crc32c(copy.payload.subspan(begin, end - begin), copy.checksum);
    }
  }

  const CudaCopierOptions options_;
  const LayoutPlan plan_;
  const PinnedMemory host_memory_;
  const CudaStream stream_;

  // Kept to be used again; the stream is idle between calls.
  std::vector<Step> steps_;
  std::vector<CudaEvent> events_;
  size_t places_capacity_ = 0;
  CudaHostArray<CopyPlace> host_places_;
  CudaDeviceArray<CopyPlace> device_places_;
  uint64_t payload_bits_ = 0;
};

Result<std::unique_ptr<CudaLayoutCopier>> CudaLayoutCopier::create(
    const DeviceLayout& layout, std::span<std::byte> host_memory,
    const CudaCopierOptions& options) {
  TIERCEL_TRY(check_cuda_device(options.device));
  TIERCEL_TRY(cuda_status(cudaSetDevice(options.device), "choosing a device"));
  TIERCEL_TRY(check_memory(layout, options.device));
  TIERCEL_TRY_ASSIGN(PinnedMemory pinned, PinnedMemory::create(host_memory));
  TIERCEL_TRY_ASSIGN(CudaStream stream, make_cuda_stream());
  return std::unique_ptr<CudaLayoutCopier>(new CudaLayoutCopier(
      std::make_unique<Impl>(layout, std::move(pinned), std::move(stream), options)));
}

CudaLayoutCopier::CudaLayoutCopier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaLayoutCopier::~CudaLayoutCopier() = default;

Status CudaLayoutCopier::wait_for(void* event) { return impl_->wait_for(event); }

uint32_t CudaLayoutCopier::block_count(GroupId group) const {
  const GroupPlan* plan = impl_->find(group);
  return plan == nullptr ? 0 : plan->block_count;
}

uint32_t CudaLayoutCopier::layer_count(GroupId group) const {
  const GroupPlan* plan = impl_->find(group);
  return plan == nullptr ? 0 : plan->layer_count();
}

uint64_t CudaLayoutCopier::payload_bytes(GroupId group) const {
  const GroupPlan* plan = impl_->find(group);
  return plan == nullptr ? 0 : plan->payload_bytes;
}

Status CudaLayoutCopier::gather(GroupId group, std::span<DeviceCopy> copies,
                                LayerObserver* observer) {
  TIERCEL_TRY(check_copies(*this, group, copies));
  return impl_->run(*impl_->find(group), CopyDirection::kGather, copies, observer);
}

Status CudaLayoutCopier::scatter(GroupId group, std::span<DeviceCopy> copies,
                                 LayerObserver* observer) {
  TIERCEL_TRY(check_copies(*this, group, copies));
  return impl_->run(*impl_->find(group), CopyDirection::kScatter, copies, observer);
}

}  // namespace tiercel
