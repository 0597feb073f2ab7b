// SPDX-License-Identifier: Apache-2.0
//
// CpuLayoutCopier: the device copier over memory that the processor reaches, for any device layout.
//
// The checksum is taken where the payload is contiguous, piece by piece while a piece is in the
// nearest cache, so its price does not grow as runs get shorter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/device_layout.h"
#include "tiercel/status.h"

#include "transfer/device_copier.h"
#include "transfer/layout_plan.h"

namespace tiercel {

class CpuLayoutCopier final : public DeviceCopier {
 public:
  // kUnsupported if the layout's memory is not the host's.
  static Result<CpuLayoutCopier> create(const DeviceLayout& layout);

  uint32_t block_count(GroupId group) const override;
  uint32_t layer_count(GroupId group) const override;
  uint64_t payload_bytes(GroupId group) const override;

  // Without an observer block after block, else layer after layer.
  Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override;
  Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override;

 private:
  explicit CpuLayoutCopier(const DeviceLayout& layout) : plan_(layout) {}

  LayoutPlan plan_;
};

}  // namespace tiercel
