// SPDX-License-Identifier: Apache-2.0
//
// Needs a CUDA device; without one every test but the first is skipped with CUDA's own reason. What
// the kernel computes is also tested without one: transfer/layout_index_test.cc.
#include "transfer/cuda/cuda_layout_copier.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "base/checksum.h"
#include "transfer/cuda/cuda_resources.h"
#include "transfer/device_layout_cases.h"

namespace tiercel {
namespace {

using namespace testing;

TEST(CudaLayoutCopierWithoutDevice, SaysWhyThereIsNone) {
  std::vector<std::byte> memory(64);
  const auto layout =
      DeviceLayout::create({contiguous_group(memory, 16)}, DeviceMemoryKind::kCuda).value();
  CudaCopierOptions options;
  options.device = 1000;
  const auto copier = CudaLayoutCopier::create(layout, memory, options);
  ASSERT_EQ(copier.code(), Code::kUnavailable);
  EXPECT_NE(copier.error().message().find("CUDA"), std::string::npos);
}

// The memory of a case, on the device.
class OnDevice {
 public:
  explicit OnDevice(const LayoutCase& c)
      : case_(c), memory_(make_cuda_device_array<std::byte>(c.memory.size()).value()) {
    write(c.memory);
  }

  DeviceLayout layout() const {
    std::vector<DeviceGroup> groups;
    for (const GroupCase& group : case_.groups) {
      groups.push_back(group.group);
      for (DeviceLayer& layer : groups.back().layers) {
        for (DevicePart& part : layer.parts) {
          const auto at = part.memory.data() - case_.memory.data();
          part.memory = {memory_.get() + at, part.memory.size()};
        }
      }
    }
    return DeviceLayout::create(std::move(groups), DeviceMemoryKind::kCuda).value();
  }

  void write(const std::vector<std::byte>& bytes) {
    EXPECT_EQ(cudaMemcpy(memory_.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(case_.memory.size());
    EXPECT_EQ(cudaMemcpy(bytes.data(), memory_.get(), bytes.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return bytes;
  }

 private:
  const LayoutCase& case_;
  CudaDeviceArray<std::byte> memory_;
};

// Counts layers; each event must be usable while the call runs.
class Observer final : public LayerObserver {
 public:
  explicit Observer(cudaStream_t other) : other_(other) {}
  void layer_queued(uint32_t layer, void* event) override {
    EXPECT_EQ(layer, queued_++);
    EXPECT_EQ(cudaStreamWaitEvent(other_, static_cast<cudaEvent_t>(event), 0), cudaSuccess);
  }
  void layer_done(uint32_t layer) override {
    EXPECT_EQ(layer, done_++);
    EXPECT_LE(done_, queued_);
  }
  uint32_t queued() const { return queued_; }
  uint32_t done() const { return done_; }

 private:
  cudaStream_t other_;
  uint32_t queued_ = 0, done_ = 0;
};

struct Way {
  std::string name;
  uint64_t kernel_run_bytes_max;
  bool layer_wise;
};

const Way kWays[] = {{"kernel", UINT64_MAX, false},
                     {"kernel, layer-wise", UINT64_MAX, true},
                     {"copies", 0, false},
                     {"copies, layer-wise", 0, true},
                     {"mixed", 100, false}};

class CudaLayoutCopierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status device = check_cuda_device(0);
    if (!device) GTEST_SKIP() << device.error().message();
    other_ = make_cuda_stream().value();
  }
  static CudaCopierOptions options(const Way& way) {
    CudaCopierOptions options;
    options.kernel_run_bytes_max = way.kernel_run_bytes_max;
    return options;
  }
  void check_round_trip(LayoutCase& c, const Way& way);

  CudaStream other_;
};

void CudaLayoutCopierTest::check_round_trip(LayoutCase& c, const Way& way) {
  OnDevice device(c);
  const DeviceLayout layout = device.layout();
  for (size_t g = 0; g < c.groups.size(); ++g) {
    const GroupId group(static_cast<uint8_t>(g));
    const uint64_t payload_bytes = layout.payload_bytes(group);
    const uint32_t blocks = layout.block_count(group);
    // More than a page at both ends: pinning is by pages.
    std::vector<std::byte> host(blocks * payload_bytes + 2 * 4096);
    auto copier = CudaLayoutCopier::create(layout, host, options(way)).value();
    Observer gathered(other_.get());
    Observer scattered(other_.get());
    std::vector<DeviceCopy> copies;
    for (uint32_t i = 0; i < blocks; ++i) {
      copies.push_back({.block = DeviceBlockId(blocks - 1 - i),
                        .payload = std::span(host).subspan(i * payload_bytes, payload_bytes)});
    }
    ASSERT_TRUE(copier->gather(group, copies, way.layer_wise ? &gathered : nullptr));
    for (const DeviceCopy& copy : copies) {
      const auto expected = c.payload(g, copy.block.value(), c.memory);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), copy.payload.begin()));
      ASSERT_EQ(copy.checksum, crc32c(expected));
    }
    ASSERT_EQ(device.read(), c.memory);

    fill_random(host, g + 1);
    copies.erase(copies.begin());
    for (const DeviceCopy& copy : copies) {
      size_t byte = 0;
      for (const auto& layer : c.places(g, copy.block.value())) {
        for (const size_t place : layer) c.memory[place] = copy.payload[byte++];
      }
    }
    ASSERT_TRUE(copier->scatter(group, copies, way.layer_wise ? &scattered : nullptr));
    ASSERT_EQ(device.read(), c.memory);
    for (const DeviceCopy& copy : copies) ASSERT_EQ(copy.checksum, crc32c(copy.payload));
    // What waits for the layers' events can go on.
    ASSERT_EQ(cudaStreamSynchronize(other_.get()), cudaSuccess);
    const uint32_t layers = way.layer_wise ? layout.layer_count(group) : 0;
    ASSERT_EQ(gathered.done(), layers);
    ASSERT_EQ(scattered.done(), layers);
    ASSERT_EQ(scattered.queued(), layers);
  }
}

TEST_F(CudaLayoutCopierTest, GathersAndScattersEveryLayoutAsTheReferenceSays) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    for (LayoutCase& c : all_layout_cases()) {
      SCOPED_TRACE(c.name);
      check_round_trip(c, way);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaLayoutCopierTest, RefusesBadBlocksAndPayloadsThatAreNotPinned) {
  LayoutCase c = sglang_case("page_first", SglangLayout::kPageFirst, false);
  OnDevice device(c);
  const DeviceLayout layout = device.layout();
  std::vector<std::byte> host(layout.payload_bytes(GroupId(0)));
  std::vector<std::byte> other(host.size());
  auto copier = CudaLayoutCopier::create(layout, host, options(kWays[0])).value();
  DeviceCopy copy{.block = DeviceBlockId(5), .payload = host};
  EXPECT_EQ(copier->gather(GroupId(0), {&copy, 1}, nullptr).code(), Code::kInvalid);
  copy = {.block = DeviceBlockId(0), .payload = other};
  EXPECT_EQ(copier->scatter(GroupId(0), {&copy, 1}, nullptr).code(), Code::kInvalid);
  EXPECT_EQ(copier->gather(GroupId(0), {}, nullptr).code(), Code::kOk);
  EXPECT_EQ(device.read(), c.memory);
}

TEST_F(CudaLayoutCopierTest, RefusesLayoutsOfHostMemory) {
  LayoutCase c = contiguous_case(64);
  EXPECT_EQ(CudaLayoutCopier::create(c.layout(), {}, options(kWays[0])).code(), Code::kInvalid);
  const auto lie = DeviceLayout::create({c.groups[0].group}, DeviceMemoryKind::kCuda).value();
  EXPECT_EQ(CudaLayoutCopier::create(lie, {}, options(kWays[0])).code(), Code::kInvalid);
}

TEST_F(CudaLayoutCopierTest, CopiesComeBehindTheEventWaitedFor) {
  LayoutCase c = contiguous_case(1000);
  OnDevice device(c);
  std::vector<std::byte> host(1000);
  auto copier = CudaLayoutCopier::create(device.layout(), host, options(kWays[0])).value();
  const CudaEvent event = make_cuda_event().value();
  ASSERT_EQ(cudaEventRecord(event.get(), other_.get()), cudaSuccess);
  ASSERT_TRUE(copier->wait_for(event.get()));
  DeviceCopy copy{.block = DeviceBlockId(1), .payload = host};
  ASSERT_TRUE(copier->gather(GroupId(0), {&copy, 1}, nullptr));
  EXPECT_EQ(cudaEventQuery(event.get()), cudaSuccess);
  EXPECT_EQ(std::vector<std::byte>(host), c.payload(0, 1, c.memory));
}

}  // namespace
}  // namespace tiercel
