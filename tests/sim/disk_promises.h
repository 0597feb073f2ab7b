// SPDX-License-Identifier: Apache-2.0
//
// What a restart must find on disk: every block that the cache said is there, as far as the way in
// which it ended promises that, and nothing of before a clear().
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>

#include "tiercel/cache.h"

#include "model.h"
#include "sim_disks.h"

namespace tiercel::sim {

class DiskPromises {
 public:
  // `looks_inside`: also checks what an engine sees only when it comes upon it.
  DiskPromises(const SimConfig& config, const SimDisks& disks, const Model& model,
               bool looks_inside)
      : config_(config), disks_(disks), model_(model), looks_inside_(looks_inside) {}

  // After each step: takes note of what is on disk, and of what is safe from a loss of power.
  void note(Cache& cache);
  // clear() was called: what lies on disk may come back until the cache is idle.
  void cleared() { clear_is_owed_ = true; }
  bool clear_is_owed() const { return clear_is_owed_; }

  // Before a restart: a process that dies loses nothing, one that has been closed not even if the
  // power goes, if the policy syncs at all.
  void process_ends(bool is_closed, bool power_goes);
  // `parts` are what a restart finds; fails if something is missing, or is back.
  void check_found(const DiskParts& parts, Coverage& coverage);
  // The new cache knows all that it can reach.
  void check_adopted(Cache& cache, const DiskParts& parts) const;

 private:
  struct Block {
    BlockKey key;
    GroupId group;
    SlotId slot;
    friend bool operator<(const Block& a, const Block& b) {
      return std::tie(a.key, a.group, a.slot) < std::tie(b.key, b.group, b.slot);
    }
  };

  // The first rank that has other bytes there.
  std::optional<uint32_t> rank_with_other_bytes(const Block& block) const;

  const SimConfig& config_;
  const SimDisks& disks_;
  const Model& model_;
  const bool looks_inside_;
  bool clear_is_owed_ = false;
  std::set<Block> on_disk_;  // as the cache says
  std::set<Block> durable_;  // of these, those that no loss of power can take
  std::set<Block> promised_;
  // Found by a restart though no process was told that they are there: put, but not synced.
  std::set<Block> never_acknowledged_;
  std::set<Block> torn_;  // found by a restart with a record, but without the bytes: misses
};

}  // namespace tiercel::sim
