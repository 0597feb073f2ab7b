// SPDX-License-Identifier: Apache-2.0
#include "transfer/layout_copier_cpu.h"

#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "transfer/device_layout_cases.h"

namespace tiercel {
namespace {

using namespace testing;

GroupId group_id(size_t index) { return GroupId(static_cast<uint8_t>(index)); }

class Observer : public LayerObserver {
 public:
  explicit Observer(std::function<void(uint32_t)> check = {}) : check_(std::move(check)) {}
  void layer_done(uint32_t layer) override {
    EXPECT_EQ(layer, done_);
    ++done_;
    if (check_) check_(layer);
  }
  uint32_t done() const { return done_; }

 private:
  std::function<void(uint32_t)> check_;
  uint32_t done_ = 0;
};

// Payload memory for `count` blocks, gaps between them.
class Payloads {
 public:
  Payloads(size_t count, uint64_t payload_bytes)
      : count_(count), stride_(payload_bytes + 37), bytes_(payload_bytes) {
    memory_.resize(count * stride_);
    fill_random(memory_, 4711);
    before_ = memory_;
  }
  std::span<std::byte> at(size_t index) {
    return std::span(memory_).subspan(index * stride_, bytes_);
  }
  std::vector<std::byte> copy(size_t index) { return {at(index).begin(), at(index).end()}; }
  bool gaps_are_untouched() const {
    for (size_t i = 0; i < count_; ++i) {
      for (size_t byte = i * stride_ + bytes_; byte < (i + 1) * stride_; ++byte) {
        if (memory_[byte] != before_[byte]) return false;
      }
    }
    return true;
  }

 private:
  size_t count_;
  size_t stride_;
  uint64_t bytes_;
  std::vector<std::byte> memory_, before_;
};

std::vector<DeviceCopy> copies_of(Payloads& payloads, const std::vector<uint32_t>& blocks) {
  std::vector<DeviceCopy> copies;
  for (size_t i = 0; i < blocks.size(); ++i) {
    copies.push_back({.block = DeviceBlockId(blocks[i]), .payload = payloads.at(i), .checksum = 7});
  }
  return copies;
}

class EveryLayout : public ::testing::TestWithParam<bool> {
 protected:
  bool layer_wise() const { return GetParam(); }
};

TEST_P(EveryLayout, GathersAllBlocksAsTheReferenceSaysAndChangesNothingElse) {
  for (LayoutCase& c : all_layout_cases()) {
    SCOPED_TRACE(c.name);
    auto copier = CpuLayoutCopier::create(c.layout()).value();
    const std::vector<std::byte> device = c.memory;
    for (size_t g = 0; g < c.groups.size(); ++g) {
      const GroupId group = group_id(g);
      // Backwards, so that the order of the call is not the order in memory.
      std::vector<uint32_t> blocks(copier.block_count(group));
      std::iota(blocks.rbegin(), blocks.rend(), 0u);
      Payloads payloads(blocks.size(), copier.payload_bytes(group));
      std::vector<DeviceCopy> copies = copies_of(payloads, blocks);
      Observer observer;
      ASSERT_TRUE(copier.gather(group, copies, layer_wise() ? &observer : nullptr));
      EXPECT_EQ(observer.done(), layer_wise() ? copier.layer_count(group) : 0);
      for (size_t i = 0; i < blocks.size(); ++i) {
        const std::vector<std::byte> expected = c.payload(g, blocks[i], device);
        ASSERT_EQ(payloads.copy(i), expected) << "block " << blocks[i];
        ASSERT_EQ(copies[i].checksum, crc32c(expected));
      }
      ASSERT_TRUE(payloads.gaps_are_untouched());
    }
    ASSERT_EQ(c.memory, device);
  }
}

TEST_P(EveryLayout, ScattersExactlyTheBytesOfTheBlocksNamed) {
  for (LayoutCase& c : all_layout_cases()) {
    SCOPED_TRACE(c.name);
    auto copier = CpuLayoutCopier::create(c.layout()).value();
    for (size_t g = 0; g < c.groups.size(); ++g) {
      const GroupId group = group_id(g);
      std::vector<uint32_t> blocks;
      for (uint32_t b = copier.block_count(group); b-- > 0;) {
        if (b % 2 == 0) blocks.push_back(b);
      }
      Payloads payloads(blocks.size(), copier.payload_bytes(group));
      std::vector<DeviceCopy> copies = copies_of(payloads, blocks);
      std::vector<std::byte> expected = c.memory;
      for (size_t i = 0; i < blocks.size(); ++i) {
        size_t byte = 0;
        for (const auto& layer : c.places(g, blocks[i])) {
          for (const size_t place : layer) expected[place] = payloads.at(i)[byte++];
        }
        ASSERT_EQ(byte, copier.payload_bytes(group));
      }
      Observer observer;
      ASSERT_TRUE(copier.scatter(group, copies, layer_wise() ? &observer : nullptr));
      EXPECT_EQ(observer.done(), layer_wise() ? copier.layer_count(group) : 0);
      ASSERT_EQ(c.memory, expected);
      for (size_t i = 0; i < blocks.size(); ++i) {
        ASSERT_EQ(copies[i].checksum, crc32c(payloads.at(i)));
      }
      ASSERT_TRUE(payloads.gaps_are_untouched());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayout, ::testing::Bool(), [](const auto& instance) {
  return instance.param ? "LayerWise" : "BlockWise";
});

TEST(CpuLayoutCopier, ALayerIsAnnouncedWhenAllItsBytesAreThereAndNoLaterOnes) {
  for (LayoutCase& c : engine_cases()) {
    SCOPED_TRACE(c.name);
    auto copier = CpuLayoutCopier::create(c.layout()).value();
    const GroupId group(0);
    Payloads payloads(2, copier.payload_bytes(group));
    std::vector<DeviceCopy> copies = copies_of(payloads, {copier.block_count(group) - 1, 0});
    const std::vector<std::byte> before = c.memory;
    std::vector<std::byte> expected = before;
    std::vector<size_t> bytes(copies.size(), 0);
    Observer observer([&](uint32_t layer) {
      for (size_t i = 0; i < copies.size(); ++i) {
        const LayerPlaces places = c.places(0, copies[i].block.value());
        for (const size_t place : places[layer]) {
          expected[place] = payloads.at(i)[bytes[i]++];
        }
      }
      EXPECT_EQ(c.memory, expected) << "layer " << layer;
    });
    ASSERT_TRUE(copier.scatter(group, copies, &observer));
    ASSERT_EQ(observer.done(), copier.layer_count(group));
  }
}

TEST(CpuLayoutCopier, GroupsThatShareMemoryTouchOnlyTheirOwnBlocks) {
  LayoutCase c = [] {
    for (LayoutCase& each : engine_cases()) {
      if (each.groups.size() > 1) return std::move(each);
    }
    return LayoutCase();
  }();
  ASSERT_EQ(c.groups.size(), 2u);
  auto copier = CpuLayoutCopier::create(c.layout()).value();
  // Blocks of one pool: 0 and 2 belong to the first group now, 1 and 3 to the second.
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t block = 0; block < 4; ++block) {
    std::vector<std::byte> payload(copier.payload_bytes(group_id(block % 2)));
    fill_random(payload, block);
    DeviceCopy copy{.block = DeviceBlockId(block), .payload = payload};
    ASSERT_TRUE(copier.scatter(group_id(block % 2), {&copy, 1}, nullptr));
    sent.push_back(std::move(payload));
  }
  for (uint32_t block = 0; block < 4; ++block) {
    std::vector<std::byte> payload(sent[block].size());
    DeviceCopy copy{.block = DeviceBlockId(block), .payload = payload};
    ASSERT_TRUE(copier.gather(group_id(block % 2), {&copy, 1}, nullptr));
    EXPECT_EQ(payload, sent[block]) << block;
  }
}

TEST(CpuLayoutCopier, ARefusedCallAnnouncesNoLayer) {
  LayoutCase c = sglang_case("page_first", SglangLayout::kPageFirst, false);
  auto copier = CpuLayoutCopier::create(c.layout()).value();
  Payloads payloads(1, copier.payload_bytes(GroupId(0)));
  std::vector<DeviceCopy> copies = copies_of(payloads, {5});
  Observer observer;
  EXPECT_EQ(copier.gather(GroupId(0), copies, &observer).code(), Code::kInvalid);
  EXPECT_EQ(copier.scatter(GroupId(0), copies, &observer).code(), Code::kInvalid);
  EXPECT_EQ(observer.done(), 0u);
}

TEST(CpuLayoutCopier, RefusesMemoryOfACudaDevice) {
  std::vector<std::byte> memory(64);
  const auto layout =
      DeviceLayout::create({contiguous_group(memory, 16)}, DeviceMemoryKind::kCuda).value();
  EXPECT_EQ(CpuLayoutCopier::create(layout).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace tiercel
