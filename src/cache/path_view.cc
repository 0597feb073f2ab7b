// SPDX-License-Identifier: Apache-2.0
#include "cache/path_view.h"

#include <algorithm>

namespace tiercel {
namespace {

constexpr uint8_t kAnyTier = (1u << kTierCount) - 1;

}  // namespace

PathView::PathView(const CacheConfig& config, const BlockIndex& index, const FillTable& fills,
                   const ExistenceTable& existence)
    : index_(index),
      fills_(fills),
      existence_(existence),
      group_count_(static_cast<uint32_t>(config.spec.groups.size())),
      stride_(config.request_blocks_max),
      with_store_(config.with_store) {
  for (const GroupSpec& group : config.spec.groups) {
    // The token behind a cut sees window_tokens − 1 tokens before it.
    window_blocks_.push_back(group.attention == AttentionKind::kWindow
                                 ? (group.window_tokens - 1 + config.spec.block_tokens - 1) /
                                       config.spec.block_tokens
                                 : kFullAttention);
  }
  nodes_.resize(static_cast<size_t>(group_count_) * stride_);
  places_.resize(static_cast<size_t>(group_count_) * stride_);
}

void PathView::look(std::span<const BlockKey> keys, uint32_t computed_blocks, TimePoint now) {
  block_count_ = static_cast<uint32_t>(std::min<size_t>(keys.size(), stride_));
  computed_blocks_ = std::min(computed_blocks, block_count_);
  for (uint32_t group = 0; group < group_count_; ++group) {
    look_at_group(group, keys.first(block_count_), now);
  }
}

void PathView::look_at_group(uint32_t group, std::span<const BlockKey> keys, TimePoint now) {
  NodeId* nodes = nodes_.data() + static_cast<size_t>(group) * stride_;
  BlockPlace* places = places_.data() + static_cast<size_t>(group) * stride_;
  const GroupId id(static_cast<uint8_t>(group));
  const bool window = window_blocks_[group] != kFullAttention;
  std::fill_n(nodes, computed_blocks_, kNoNode);
  std::fill_n(places, computed_blocks_, BlockPlace::kComputed);
  const auto rest = keys.subspan(computed_blocks_);
  // Behind the resident run only a store, a transfer in flight or a window group's gap can go on.
  const bool whole = with_store_ || window || fills_.filling() > 0;
  const uint32_t run =
      index_.find_all(rest, id, kAnyTier, whole, {nodes + computed_blocks_, rest.size()});
  uint32_t position = computed_blocks_;
  for (; position < computed_blocks_ + run; ++position) {
    places[position] = place_of(nodes[position], keys[position], id, now);
  }
  if (whole) {
    for (; position < block_count_; ++position) {
      places[position] = place_of(nodes[position], keys[position], id, now);
      if (places[position] == BlockPlace::kNone && !window) break;
    }
  }
  std::fill(nodes + position, nodes + block_count_, kNoNode);
  std::fill(places + position, places + block_count_, BlockPlace::kNone);
}

BlockPlace PathView::place_of(NodeId node, const BlockKey& key, GroupId group,
                              TimePoint now) const {
  if (node != kNoNode) {
    if (index_.is_in(node, Tier::kDevice)) return BlockPlace::kDevice;
    if (index_.is_in(node, Tier::kHost)) return BlockPlace::kHost;
    if (index_.is_in(node, Tier::kDisk) && disk_usable_) return BlockPlace::kDisk;
    if (fills_.is_filling(node)) return BlockPlace::kInFlight;
  }
  if (!with_store_) return BlockPlace::kNone;
  switch (existence_.find(key, group, now)) {
    case Existence::kPresent:
      return BlockPlace::kStore;
    case Existence::kAbsent:
      return BlockPlace::kNone;
    case Existence::kUnknown:
      break;
  }
  return BlockPlace::kUnknown;
}

BlockPlace PathView::worst_place(uint32_t position) const {
  BlockPlace worst = BlockPlace::kComputed;
  for (uint32_t group = 0; group < group_count_; ++group) {
    worst = std::max(worst, place(group, position));
  }
  return worst;
}

BlockPlace PathView::best_place(uint32_t position) const {
  BlockPlace best = BlockPlace::kNone;
  for (uint32_t group = 0; group < group_count_; ++group) {
    best = std::min(best, place(group, position));
  }
  return best;
}

}  // namespace tiercel
