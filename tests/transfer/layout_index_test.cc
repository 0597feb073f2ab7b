// SPDX-License-Identifier: Apache-2.0
//
// The body of the CUDA kernel, run on the processor: every unit size that a layout allows, and
// every division of the work among threads.
#include "transfer/layout_index.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "transfer/device_layout_cases.h"
#include "transfer/layout_plan.h"

namespace tiercel {
namespace {

using namespace testing;

template <size_t kBytes>
struct Unit {
  std::byte bytes[kBytes];
};

// As the kernel is launched: part after part, `thread_count` threads that know nothing of each
// other.
void move(uint32_t unit_bytes, const PartPlan& part, std::span<const CopyPlace> places,
          CopyDirection direction, uint64_t thread_count) {
  const auto count = static_cast<uint32_t>(places.size());
  for (uint64_t thread = 0; thread < thread_count; ++thread) {
    switch (unit_bytes) {
      case 1:
        copy_units<Unit<1>>(part, places.data(), count, direction, thread, thread_count);
        break;
      case 2:
        copy_units<Unit<2>>(part, places.data(), count, direction, thread, thread_count);
        break;
      case 4:
        copy_units<Unit<4>>(part, places.data(), count, direction, thread, thread_count);
        break;
      case 8:
        copy_units<Unit<8>>(part, places.data(), count, direction, thread, thread_count);
        break;
      default:
        ASSERT_EQ(unit_bytes, 16u);
        copy_units<Unit<16>>(part, places.data(), count, direction, thread, thread_count);
    }
  }
}

struct Work {
  explicit Work(const LayoutCase& c, size_t group_index)
      : layout(c.layout()), all(layout), group(GroupId(static_cast<uint8_t>(group_index))) {
    const GroupPlan& found = *all.find(group);
    payload.resize(found.block_count * found.payload_bytes);
    // Last block first.
    for (uint32_t i = 0; i < found.block_count; ++i) {
      places.push_back({reinterpret_cast<uintptr_t>(payload.data()) + i * found.payload_bytes,
                        found.block_count - 1 - i, 0});
    }
  }
  const GroupPlan& plan() const { return *all.find(group); }

  DeviceLayout layout;
  LayoutPlan all;
  GroupId group;
  std::vector<std::byte> payload;
  std::vector<CopyPlace> places;
};

// The unit that a launch would use, and all smaller ones.
std::vector<uint32_t> units_of(const PartPlan& part) {
  std::vector<uint32_t> units;
  for (uint32_t unit = 1; unit <= unit_bytes_of(part); unit *= 2) units.push_back(unit);
  return units;
}

TEST(KernelBody, GathersEveryLayoutAsTheReferenceSays) {
  size_t wide_parts = 0;
  for (LayoutCase& c : all_layout_cases()) {
    SCOPED_TRACE(c.name);
    for (size_t g = 0; g < c.groups.size(); ++g) {
      Work work(c, g);
      std::vector<std::byte> expected;
      for (const CopyPlace& place : work.places) {
        const auto payload = c.payload(g, place.block, c.memory);
        expected.insert(expected.end(), payload.begin(), payload.end());
      }
      for (const uint64_t threads : {1u, 3u, 256u}) {
        std::fill(work.payload.begin(), work.payload.end(), std::byte{0});
        for (const PartPlan& part : work.plan().parts) {
          wide_parts += units_of(part).back() == 16;
          for (const uint32_t unit : units_of(part)) {
            move(unit, part, work.places, CopyDirection::kGather, threads);
          }
        }
        ASSERT_EQ(work.payload, expected) << threads << " threads";
      }
    }
  }
  EXPECT_GT(wide_parts, 0u);
}

TEST(KernelBody, ScattersEveryLayoutAsTheReferenceSays) {
  for (LayoutCase& c : all_layout_cases()) {
    SCOPED_TRACE(c.name);
    for (size_t g = 0; g < c.groups.size(); ++g) {
      Work work(c, g);
      for (const bool widest : {false, true}) {
        fill_random(work.payload, widest);
        std::vector<std::byte> expected = c.memory;
        size_t byte = 0;
        for (const CopyPlace& place : work.places) {
          for (const auto& layer : c.places(g, place.block)) {
            for (const size_t at : layer) expected[at] = work.payload[byte++];
          }
        }
        for (const PartPlan& part : work.plan().parts) {
          const auto units = units_of(part);
          move(widest ? units.back() : units.front(), part, work.places, CopyDirection::kScatter,
               64);
        }
        ASSERT_EQ(c.memory, expected);
      }
    }
  }
}

TEST(KernelBody, UnitIsTheLargestThatDividesEverything) {
  EXPECT_EQ(unit_bytes_for(0), 16u);
  EXPECT_EQ(unit_bytes_for(4096), 16u);
  EXPECT_EQ(unit_bytes_for(4096 | 24), 8u);
  EXPECT_EQ(unit_bytes_for(64 | 4), 4u);
  EXPECT_EQ(unit_bytes_for(6), 2u);
  EXPECT_EQ(unit_bytes_for(uint64_t{1} << 62 | 1), 1u);
  PartPlan part;
  part.address = 4096;
  part.run_bytes = 64;
  part.block_stride_bytes = 4096;
  EXPECT_EQ(unit_bytes_of(part), 16u);
  for (uint64_t PartPlan::*field :
       {&PartPlan::address, &PartPlan::run_bytes, &PartPlan::block_stride_bytes,
        &PartPlan::payload_offset, &PartPlan::inner_stride_bytes, &PartPlan::outer_stride_bytes}) {
    PartPlan odd = part;
    odd.*field += 8;
    EXPECT_EQ(unit_bytes_of(odd), 8u);
  }
}

}  // namespace
}  // namespace tiercel
