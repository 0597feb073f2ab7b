// SPDX-License-Identifier: Apache-2.0
//
// MooncakeLane: a rank worker over a Mooncake store, as a rank has it, with blocks in its host tier
// that it puts and gets.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"

#include "base/arena.h"
#include "tier/slot_geometry.h"
#include "transfer/device_copier.h"
#include "transfer/rank_worker.h"

namespace tiercel {

class MooncakeLane {
 public:
  // The same `name_space` and payload: the same objects. Returns once the sidecar serves.
  static Result<std::unique_ptr<MooncakeLane>> create(const std::string& url,
                                                      const Namespace& name_space,
                                                      uint64_t payload_bytes, uint32_t blocks,
                                                      bool verify, const Clock& clock);

  // Of the first `count` blocks; kInternal with the first code that is not ok. get() reads into
  // other slots than put() writes from.
  Status put(uint32_t count) { return run(OpKind::kStorePut, count); }
  Status get(uint32_t count) { return run(OpKind::kStoreGet, count); }
  Status remove(uint32_t count) { return run(OpKind::kStoreRemove, count); }
  Status ask(uint32_t count) { return run(OpKind::kStoreExists, count); }
  // So that a get which moves nothing does not find what an earlier one has brought.
  void forget_what_was_got();

  // Payload and frame.
  uint64_t object_bytes() const { return payload_bytes_ + kFrameBytes; }
  const Store& store() const { return *store_; }

 private:
  MooncakeLane(SlotGeometry geometry, uint64_t payload_bytes, uint32_t blocks, const Clock& clock);
  Status start(std::unique_ptr<Store> store, const Namespace& name_space, bool verify);
  Status run(OpKind kind, uint32_t count);

  const Clock& clock_;
  const SlotGeometry geometry_;
  const uint64_t payload_bytes_;
  const uint32_t blocks_;
  const std::vector<BlockKey> keys_;
  std::unique_ptr<Arena> host_, device_;
  std::optional<ContiguousCopier> copier_;
  const Store* store_ = nullptr;  // the worker's
  std::unique_ptr<RankWorker> worker_;
};

}  // namespace tiercel
