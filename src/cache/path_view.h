// SPDX-License-Identifier: Apache-2.0
//
// PathView: one look at the path of a request: for each block and group where it is, and how deep a
// usable cut reaches. A cut is usable if every full-attention group has all blocks before it, and
// every window group has those that lie in its window before it. Threads: control thread only.
// Reused for every look; nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/cache.h"

#include "cache/existence_table.h"
#include "cache/fill_table.h"
#include "index/block_index.h"

namespace tiercel {

class PathView {
 public:
  PathView(const CacheConfig& config, const BlockIndex& index, const FillTable& fills,
           const ExistenceTable& existence);

  // Whether the disk tier answers at present; what lies on it counts as nowhere if not.
  void set_disk_usable(bool usable) { disk_usable_ = usable; }

  // Looks at the first request_blocks_max of `keys`. Blocks behind one that can be had from nowhere
  // are not looked at and count as kNone.
  void look(std::span<const BlockKey> keys, uint32_t computed_blocks, TimePoint now);

  uint32_t block_count() const { return block_count_; }
  uint32_t group_count() const { return group_count_; }
  BlockPlace place(uint32_t group, uint32_t position) const {
    return places_[size_t{group} * stride_ + position];
  }
  NodeId node(uint32_t group, uint32_t position) const {
    return nodes_[size_t{group} * stride_ + position];
  }
  std::span<const NodeId> nodes(uint32_t group) const {
    return {nodes_.data() + size_t{group} * stride_, block_count_};
  }
  BlockPlace worst_place(uint32_t position) const;
  BlockPlace best_place(uint32_t position) const;  // of the groups

  // Deepest usable cut of at most `bound` blocks in which every needed block satisfies ok(group,
  // position). Never less than computed_blocks (as far as there are blocks).
  template <typename Ok>
  uint32_t usable_cut(uint32_t bound, Ok&& ok) const {
    uint32_t cut = bound < block_count_ ? bound : block_count_;
    if (cut <= computed_blocks_) return cut;
    for (uint32_t group = 0; group < group_count_; ++group) {
      if (window_blocks_[group] != kFullAttention) continue;
      uint32_t run = computed_blocks_;
      while (run < cut && ok(group, run)) ++run;
      cut = run;
    }
    for (bool changed = true; changed && cut > computed_blocks_;) {
      changed = false;
      for (uint32_t group = 0; group < group_count_; ++group) {
        if (window_blocks_[group] == kFullAttention) continue;
        const uint32_t usable = window_cut(group, cut, ok);
        changed = changed || usable != cut;
        cut = usable;
      }
    }
    return cut;
  }
  uint32_t usable_cut(BlockPlace worst, uint32_t bound) const {
    return usable_cut(
        bound, [&](uint32_t group, uint32_t position) { return place(group, position) <= worst; });
  }

  uint32_t first_uncomputed() const { return computed_blocks_; }
  bool is_window(uint32_t group) const { return window_blocks_[group] != kFullAttention; }
  // First position at or after `from` that a cut needs in this group.
  uint32_t first_needed(uint32_t group, uint32_t cut, uint32_t from) const {
    if (!is_window(group) || cut <= window_blocks_[group]) return from;
    const uint32_t first = cut - window_blocks_[group];
    return first > from ? first : from;
  }

  // Whether a cut needs this block: all before it in a full-attention group, those in the window
  // else.
  bool needed(uint32_t group, uint32_t position, uint32_t cut) const {
    return position >= computed_blocks_ && position < cut &&
           (window_blocks_[group] == kFullAttention || position + window_blocks_[group] >= cut);
  }

 private:
  static constexpr uint32_t kFullAttention = UINT32_MAX;

  template <typename Ok>
  uint32_t window_cut(uint32_t group, uint32_t cut, Ok&& ok) const {
    // Walks down; `run` counts the good blocks directly before `end`.
    while (cut > computed_blocks_) {
      const uint32_t first = cut > window_blocks_[group] ? cut - window_blocks_[group] : 0;
      uint32_t position = cut;
      while (position > first && position > computed_blocks_ && ok(group, position - 1)) --position;
      if (position <= first || position <= computed_blocks_) return cut;
      cut = position - 1;  // the block at position − 1 is missing: no cut above it has its window
    }
    return cut;
  }
  void look_at_group(uint32_t group, std::span<const BlockKey> keys, TimePoint now);
  BlockPlace place_of(NodeId node, const BlockKey& key, GroupId group, TimePoint now) const;

  const BlockIndex& index_;
  const FillTable& fills_;
  const ExistenceTable& existence_;
  const uint32_t group_count_;
  const uint32_t stride_;
  const bool with_store_;
  bool disk_usable_ = true;
  std::vector<uint32_t> window_blocks_;  // by group; kFullAttention or how many blocks before a cut
  std::vector<NodeId> nodes_;            // group-major
  std::vector<BlockPlace> places_;
  uint32_t block_count_ = 0;
  uint32_t computed_blocks_ = 0;
};

}  // namespace tiercel
