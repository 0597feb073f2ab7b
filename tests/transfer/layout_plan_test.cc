// SPDX-License-Identifier: Apache-2.0
#include "transfer/layout_plan.h"

#include <vector>

#include <gtest/gtest.h>

#include "transfer/device_layout_cases.h"

namespace tiercel {
namespace {

using namespace testing;

GroupPlan plan_of(const LayoutCase& c) { return *LayoutPlan(c.layout()).find(GroupId(0)); }

TEST(LayoutPlan, BlocksThatAreContiguousOverAllLayersAreOneRun) {
  const GroupPlan plan = plan_of(vllm_cross_layer_case("", "blthd", 1));
  EXPECT_EQ(plan.layer_count(), 3u);
  EXPECT_EQ(plan.parts.size(), 3u);
  ASSERT_EQ(plan.joined.size(), 1u);
  EXPECT_EQ(plan.joined[0].run_bytes, plan.payload_bytes);
}

TEST(LayoutPlan, PartsThatAreApartInMemoryStayApart) {
  const GroupPlan plan = plan_of(vllm_case("", "bhtd", 1, 2));
  EXPECT_EQ(plan.joined.size(), 3u);
  for (const PartPlan& part : plan.joined) EXPECT_EQ(part.run_bytes, plan.payload_bytes / 3);
  // K and V interleaved run by run: in memory neighbours, in the payload not.
  EXPECT_EQ(plan_of(interleaved_case("", 16, 4)).joined.size(), 2u);
}

// Neighbours in block 0, but not in the others: a longer stride of the second part.
TEST(LayoutPlan, PartsWithOtherBlockStridesStayApart) {
  std::vector<std::byte> memory(1000);
  DevicePart first;
  first.memory = memory;
  first.run_bytes = 10;
  first.block_stride_bytes = 100;
  DevicePart second = first;
  second.offset_bytes = 10;
  second.block_stride_bytes = 110;
  const DeviceGroup group{3, {{{first, second}}}};
  EXPECT_EQ(LayoutPlan(DeviceLayout::create({group}).value()).find(GroupId(0))->joined.size(), 2u);
  // With one block there is no other.
  const DeviceGroup single{1, {{{first, second}}}};
  EXPECT_EQ(LayoutPlan(DeviceLayout::create({single}).value()).find(GroupId(0))->joined.size(), 1u);
}

TEST(LayoutPlan, PartsOfALayerStandTogetherInPayloadOrder) {
  const GroupPlan plan = plan_of(fastdeploy_case("", true, true));
  ASSERT_EQ(plan.layer_count(), 2u);
  uint64_t offset = 0;
  for (uint32_t layer = 0; layer < plan.layer_count(); ++layer) {
    EXPECT_EQ(plan.layer(layer).size(), 4u);
    for (const PartPlan& part : plan.layer(layer)) {
      EXPECT_EQ(part.payload_offset, offset);
      offset += part.payload_bytes();
    }
  }
  EXPECT_EQ(offset, plan.payload_bytes);
}

TEST(LayoutPlan, RunsWithoutGapsAreJoined) {
  std::vector<std::byte> memory(1000);
  DevicePart part;
  part.memory = memory;
  part.block_stride_bytes = 100;
  part.run_bytes = 10;
  part.outer = {3, 10};
  DeviceGroup group{10, {{{part}}}};
  const GroupPlan joined = *LayoutPlan(DeviceLayout::create({group}).value()).find(GroupId(0));
  EXPECT_EQ(joined.parts[0].run_bytes, 30u);
  EXPECT_EQ(joined.parts[0].inner_count, 1u);
  EXPECT_EQ(joined.parts[0].outer_count, 1u);

  group.layers[0].parts[0].inner = {2, 40};
  const GroupPlan kept = *LayoutPlan(DeviceLayout::create({group}).value()).find(GroupId(0));
  EXPECT_EQ(kept.parts[0].run_bytes, 10u);
  EXPECT_EQ(kept.parts[0].inner_count, 2u);
  EXPECT_EQ(kept.parts[0].outer_count, 3u);
}

}  // namespace
}  // namespace tiercel
