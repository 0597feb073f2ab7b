// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a call into CUDA that fails: tested with the fake runtime, whose calls can be
// made to fail one by one.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "transfer/cuda/cuda_layout_copier.h"
#include "transfer/cuda/cuda_resources.h"
#include "transfer/cuda/fake_cuda_runtime.h"
#include "transfer/device_layout_cases.h"

namespace tiercel {
namespace {

using namespace testing;

class FakeCuda : public ::testing::TestWithParam<uint64_t> {
 protected:
  FakeCuda() : memory_(make_cuda_device_array<std::byte>(kBytes).value()), host_(kBytes) {
    std::span<std::byte> memory(memory_.get(), kBytes);
    fill_random(memory, 1);
    group_ = make_device_group(std::vector<std::vector<TensorView>>(
                                   {{contiguous_tensor(memory, 2, {8, 2, 64}, "bkd")}}),
                               'b')
                 .value();
    // Two layers, so that something is on its way when a later call fails.
    group_.layers.push_back(group_.layers[0]);
    group_.layers[1].parts[0].memory = memory.subspan(kBytes / 2);
    for (uint32_t i = 0; i < 4; ++i) {
      copies_.push_back({.block = DeviceBlockId(i),
                         .payload = std::span(host_).subspan(i * kPayloadBytes, kPayloadBytes)});
    }
  }
  DeviceLayout layout() const {
    return DeviceLayout::create({group_}, DeviceMemoryKind::kCuda).value();
  }
  static CudaCopierOptions options() {
    CudaCopierOptions options;
    options.kernel_run_bytes_max = GetParam();
    return options;
  }

  static constexpr size_t kPayloadBytes = size_t{2} * 2 * 2 * 64;
  static constexpr size_t kBytes = 8 * kPayloadBytes;
  CudaDeviceArray<std::byte> memory_;
  std::vector<std::byte> host_;
  DeviceGroup group_;
  std::vector<DeviceCopy> copies_;
};

class IgnoresLayers final : public LayerObserver {
  void layer_done(uint32_t) override {}
};

TEST_P(FakeCuda, AFailedCallIsUnavailableAndLeavesNothingUnderWay) {
  auto copier = CudaLayoutCopier::create(layout(), host_, options()).value();
  IgnoresLayers observer;
  for (const bool gather : {true, false}) {
    for (const bool layer_wise : {true, false}) {
      uint64_t n = 0;
      bool failed = true;
      while (failed) {
        fail_cuda_call(++n);
        LayerObserver* const with = layer_wise ? &observer : nullptr;
        const Status status = gather ? copier->gather(GroupId(0), copies_, with)
                                     : copier->scatter(GroupId(0), copies_, with);
        failed = cuda_call_has_failed();
        fail_cuda_call(0);
        ASSERT_EQ(waiting_cuda_operations(), 0u) << "call " << n;
        ASSERT_EQ(status.code(), failed ? Code::kUnavailable : Code::kOk) << "call " << n;
      }
      EXPECT_GT(n, 5u);
      for (const DeviceCopy& copy : copies_) ASSERT_EQ(copy.checksum, crc32c(copy.payload));
    }
  }
}

TEST_P(FakeCuda, PayloadsNeedNotBeAligned) {
  for (const size_t shift : {1u, 2u, 4u, 8u}) {
    auto copier = CudaLayoutCopier::create(layout(), host_, options()).value();
    DeviceCopy copy{.block = DeviceBlockId(1),
                    .payload = std::span(host_).subspan(shift, kPayloadBytes)};
    ASSERT_TRUE(copier->gather(GroupId(0), {&copy, 1}, nullptr));
    const auto first_layer = group_.layers[0].parts[0].memory.subspan(kPayloadBytes / 2);
    EXPECT_TRUE(std::equal(copy.payload.begin(), copy.payload.begin() + kPayloadBytes / 2,
                           first_layer.begin()));
  }
}

TEST_P(FakeCuda, AFailedCreationGivesEverythingBack) {
  const size_t held = cuda_resources_held();
  uint64_t n = 0;
  bool failed = true;
  while (failed) {
    fail_cuda_call(++n);
    {
      const auto copier = CudaLayoutCopier::create(layout(), host_, options());
      failed = cuda_call_has_failed();
      fail_cuda_call(0);
      ASSERT_EQ(copier.code(), failed ? Code::kUnavailable : Code::kOk) << "call " << n;
    }
    ASSERT_EQ(cuda_resources_held(), held) << "call " << n;
  }
  EXPECT_GT(n, 5u);
}

TEST_P(FakeCuda, MemoryThatIsPinnedAlreadyIsLeftToWhoeverDidIt) {
  const PinnedMemory pinned = PinnedMemory::create(host_).value();
  const size_t held = cuda_resources_held();
  {
    auto copier = CudaLayoutCopier::create(layout(), host_, options()).value();
    ASSERT_TRUE(copier->gather(GroupId(0), copies_, nullptr));
  }
  EXPECT_EQ(cuda_resources_held(), held);
}

INSTANTIATE_TEST_SUITE_P(Ways, FakeCuda, ::testing::Values(0, 1 << 20), [](const auto& instance) {
  return instance.param == 0 ? "Copies" : "Kernel";
});

}  // namespace
}  // namespace tiercel
