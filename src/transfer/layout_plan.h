// SPDX-License-Identifier: Apache-2.0
//
// LayoutPlan: a device layout made ready for copying: addresses in place of memories, parts joined
// where they follow each other both in memory and in the payload.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/device_layout.h"
#include "tiercel/ids.h"
#include "tiercel/status.h"

#include "transfer/layout_index.h"

namespace tiercel {

struct GroupPlan {
  uint32_t block_count = 0;
  uint64_t payload_bytes = 0;
  std::vector<PartPlan> parts;         // in payload order
  std::vector<uint32_t> layer_begins;  // index into parts, and one more at the end
  std::vector<PartPlan> joined;        // the same payload in as few parts, across layers

  uint32_t layer_count() const { return static_cast<uint32_t>(layer_begins.size() - 1); }
  std::span<const PartPlan> layer(uint32_t index) const {
    return std::span(parts).subspan(layer_begins[index],
                                    layer_begins[index + 1] - layer_begins[index]);
  }
};

class LayoutPlan {
 public:
  LayoutPlan() = default;
  explicit LayoutPlan(const DeviceLayout& layout);

  // Null if there is no such group.
  const GroupPlan* find(GroupId group) const {
    return group.value() < groups_.size() ? &groups_[group.value()] : nullptr;
  }

 private:
  std::vector<GroupPlan> groups_;
};

// The largest unit (16, 8, 4, 2 or 1 bytes) in which a part can be moved, payload addresses aside.
uint32_t unit_bytes_of(const PartPlan& part);

}  // namespace tiercel
