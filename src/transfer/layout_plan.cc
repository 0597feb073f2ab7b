// SPDX-License-Identifier: Apache-2.0
#include "transfer/layout_plan.h"

namespace tiercel {
namespace {

PartPlan plan_of(const DevicePart& part, uint64_t payload_offset) {
  PartPlan plan;
  plan.address = reinterpret_cast<uintptr_t>(part.memory.data()) + part.offset_bytes;
  plan.block_stride_bytes = part.block_stride_bytes;
  plan.payload_offset = payload_offset;
  plan.run_bytes = part.run_bytes;
  plan.inner_count = part.inner.count;
  plan.inner_stride_bytes = part.inner.count > 1 ? part.inner.stride_bytes : 0;
  plan.outer_count = part.outer.count;
  plan.outer_stride_bytes = part.outer.count > 1 ? part.outer.stride_bytes : 0;
  // A step of one is none, and runs without gaps between them are one run.
  while (plan.inner_count * uint64_t{plan.outer_count} > 1 &&
         (plan.inner_count == 1 || plan.inner_stride_bytes == plan.run_bytes)) {
    plan.run_bytes *= plan.inner_count;
    plan.inner_count = plan.outer_count;
    plan.inner_stride_bytes = plan.outer_stride_bytes;
    plan.outer_count = 1;
    plan.outer_stride_bytes = 0;
  }
  return plan;
}

bool is_one_run(const PartPlan& part) { return part.inner_count == 1 && part.outer_count == 1; }

std::vector<PartPlan> join(std::span<const PartPlan> parts, uint32_t block_count) {
  std::vector<PartPlan> joined;
  for (const PartPlan& part : parts) {
    if (!joined.empty()) {
      PartPlan& last = joined.back();
      const bool same_stride =
          block_count == 1 || last.block_stride_bytes == part.block_stride_bytes;
      if (is_one_run(last) && is_one_run(part) && same_stride &&
          last.address + last.run_bytes == part.address) {
        last.run_bytes += part.run_bytes;
        continue;
      }
    }
    joined.push_back(part);
  }
  return joined;
}

}  // namespace

LayoutPlan::LayoutPlan(const DeviceLayout& layout) {
  for (const DeviceGroup& group : layout.groups()) {
    GroupPlan& plan = groups_.emplace_back();
    plan.block_count = group.block_count;
    plan.layer_begins.push_back(0);
    for (const DeviceLayer& layer : group.layers) {
      for (const DevicePart& part : layer.parts) {
        plan.parts.push_back(plan_of(part, plan.payload_bytes));
        plan.payload_bytes += part.payload_bytes();
      }
      plan.layer_begins.push_back(static_cast<uint32_t>(plan.parts.size()));
    }
    plan.joined = join(plan.parts, plan.block_count);
  }
}

uint32_t unit_bytes_of(const PartPlan& part) {
  return unit_bytes_for(part.address | part.block_stride_bytes | part.payload_offset |
                        part.run_bytes | part.inner_stride_bytes | part.outer_stride_bytes);
}

}  // namespace tiercel
