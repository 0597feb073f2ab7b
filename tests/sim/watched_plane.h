// SPDX-License-Identifier: Apache-2.0
//
// WatchedPlane: a data plane in front of the simulated one that sees every operation and completion
// pass, and checks what the control plane asks for: nothing is written where a transfer may still
// read or write, and never more is in flight than there is room for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "failure.h"
#include "transfer/simulated_data_plane.h"

namespace tiercel::sim {

class WatchedPlane final : public DataPlane {
 public:
  // `inner` outlives it. Without `checks` it only counts.
  WatchedPlane(SimulatedDataPlane& inner, uint32_t ops_in_flight_max, uint32_t block_tokens,
               bool checks)
      : inner_(inner),
        ops_in_flight_max_(ops_in_flight_max),
        block_tokens_(block_tokens),
        checks_(checks) {}

  uint32_t rank_count() const override { return inner_.rank_count(); }
  size_t submit_capacity() const override { return inner_.submit_capacity(); }
  bool submit(std::span<const BlockOp> ops) override;
  size_t poll(std::span<Completion> out) override;
  int completion_fd() const override { return inner_.completion_fd(); }
  RankStats stats(uint32_t rank) const override { return inner_.stats(rank); }
  uint64_t memory_epoch(uint32_t rank) const override { return inner_.memory_epoch(rank); }
  Status close(TimePoint deadline) override { return inner_.close(deadline); }

  // Operations that some rank has not let go of.
  size_t open() const { return open_.size(); }
  uint64_t open_of(OpKind kind) const { return open_of_kind_[static_cast<size_t>(kind)]; }
  // Whether an open operation may still write the device block, or read it.
  bool writes_device(GroupId group, DeviceBlockId block) const;
  bool reads_device(GroupId group, DeviceBlockId block) const;
  // Distinct host slots that an open operation may still touch.
  size_t slots_in_use() const { return slots_.size(); }
  // By kind and code: "save ok" and so on.
  const Coverage& answers() const { return answers_; }

 private:
  struct Open {
    BlockOp op;
    uint32_t ranks_open = 0;
  };
  struct Users {
    uint32_t readers = 0;
    uint32_t writers = 0;
    uint32_t all() const { return readers + writers; }
  };
  using DeviceBlock = std::pair<uint32_t, uint32_t>;  // group and block

  void begin(const BlockOp& op);
  void end(const BlockOp& op);

  SimulatedDataPlane& inner_;
  const uint32_t ops_in_flight_max_;
  const uint32_t block_tokens_;
  const bool checks_;
  std::map<std::pair<uint64_t, uint32_t>, Open> open_;  // by job and item
  std::unordered_map<uint32_t, Users> slots_;
  std::unordered_map<uint32_t, Users> disk_slots_;
  std::map<DeviceBlock, Users> device_blocks_;
  std::array<uint64_t, kOpKindCount> open_of_kind_{};
  Coverage answers_;
};

}  // namespace tiercel::sim
