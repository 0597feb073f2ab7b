// SPDX-License-Identifier: Apache-2.0
#include "index/block_index.h"

#include <cstring>
#include <string>
#include <utility>

namespace tiercel {

namespace {

// Below this, a huge page would cost more memory than its translation saves.
constexpr uint64_t kHugePagesFromBytes = 8ull << 20;
constexpr uint64_t kPartAlignmentBytes = 4096;
constexpr uint8_t kAllTiersMask = (1u << kTierCount) - 1;

// How far the look-ups of find_all run ahead of each other, in keys: buckets are asked for twice
// this far before they are compared, nodes once. Measured at 1 M and 10 M nodes; flat between 8
// and 24.
constexpr size_t kLookAhead = 12;
constexpr size_t kRingSize = 32;
static_assert(kRingSize >= 2 * kLookAhead + 1 && (kRingSize & (kRingSize - 1)) == 0);

uint64_t align_up(uint64_t bytes) {
  return (bytes + kPartAlignmentBytes - 1) / kPartAlignmentBytes * kPartAlignmentBytes;
}

bool equal_keys(const BlockKey& a, const BlockKey& b) {
  uint64_t left[4];
  uint64_t right[4];
  static_assert(sizeof(left) == sizeof(BlockKey));
  std::memcpy(left, &a, sizeof(left));
  std::memcpy(right, &b, sizeof(right));
  return ((left[0] ^ right[0]) | (left[1] ^ right[1]) | (left[2] ^ right[2]) |
          (left[3] ^ right[3])) == 0;
}

Status check_options(const BlockIndexOptions& options) {
  const auto refuse = [](const char* field, uint64_t value, const std::string& allowed) {
    return Error(Code::kInvalid, std::string("block index: ") + field + " is " +
                                     std::to_string(value) + "; allowed: " + allowed);
  };
  if (options.node_count_max < 1 || options.node_count_max > 1u << 31) {
    return refuse("node_count_max", options.node_count_max, "1 to 2147483648");
  }
  if (options.tier_mask == 0 || (options.tier_mask & ~kAllTiersMask) != 0) {
    return refuse("tier_mask", options.tier_mask, "1 to " + std::to_string(kAllTiersMask));
  }
  if (options.group_count < 1 || options.group_count > kGroupCountMax) {
    return refuse("group_count", options.group_count, "1 to " + std::to_string(kGroupCountMax));
  }
  if (options.window_group_mask >> options.group_count != 0) {
    return refuse("window_group_mask", options.window_group_mask,
                  "bits of the groups below " + std::to_string(options.group_count));
  }
  return {};
}

}  // namespace

BlockIndex::Layout BlockIndex::layout(const BlockIndexOptions& options) {
  Layout layout;
  const uint64_t node_count_max = options.node_count_max;
  layout.bucket_count = BlockIndexTable::bucket_count_for(options.node_count_max);
  layout.table_offset = align_up(node_count_max * sizeof(Node));
  layout.total_bytes =
      align_up(layout.table_offset + layout.bucket_count * sizeof(BlockIndexTable::Bucket));
  for (uint32_t tier = 0; tier < kTierCount; ++tier) {
    if ((options.tier_mask >> tier & 1) == 0) continue;
    uint64_t place_count = node_count_max;
    const uint64_t wanted = options.place_count_max[tier];
    if (wanted != 0 && wanted * sizeof(Place) + node_count_max * sizeof(uint32_t) <
                           node_count_max * sizeof(Place)) {
      place_count = wanted;
      layout.number_offsets[tier] = layout.total_bytes;
      layout.total_bytes = align_up(layout.total_bytes + node_count_max * sizeof(uint32_t));
    }
    layout.place_counts[tier] = place_count;
    layout.place_offsets[tier] = layout.total_bytes;
    layout.total_bytes = align_up(layout.total_bytes + place_count * sizeof(Place));
  }
  return layout;
}

Result<std::unique_ptr<Arena>> BlockIndex::make_arena(const BlockIndexOptions& options) {
  TIERCEL_TRY(check_options(options));
  const uint64_t bytes = layout(options).total_bytes;
  ArenaOptions arena_options;
  arena_options.huge_pages = bytes >= kHugePagesFromBytes;
  arena_options.name = "tiercel-index";
  return Arena::create(bytes, arena_options);
}

Result<std::unique_ptr<BlockIndex>> BlockIndex::create(const BlockIndexOptions& options) {
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Arena> arena, make_arena(options));
  return std::unique_ptr<BlockIndex>(new BlockIndex(options, std::move(arena)));
}

BlockIndex::BlockIndex(const BlockIndexOptions& options)
    : BlockIndex(options, [&options] {
        auto arena = make_arena(options);
        if (!arena) {
          assertion_failed("make_arena(options)", arena.error().message().c_str(), __FILE__,
                           __LINE__);
        }
        return *std::move(arena);
      }()) {}

BlockIndex::BlockIndex(const BlockIndexOptions& options, std::unique_ptr<Arena> arena)
    : options_(options),
      window_group_mask_(options.window_group_mask),
      arena_(std::move(arena)),
      nodes_(static_cast<Node*>(static_cast<void*>(arena_->memory().data()))),
      table_({static_cast<BlockIndexTable::Bucket*>(
                  static_cast<void*>(arena_->memory().data() + layout(options).table_offset)),
              layout(options).bucket_count},
             options.seed) {
  const Layout parts = layout(options);
  for (uint32_t tier = 0; tier < kTierCount; ++tier) {
    if (parts.place_offsets[tier] == 0) continue;
    std::byte* const memory = arena_->memory().data();
    TierPlaces& in = tiers_[tier];
    in.places = static_cast<Place*>(static_cast<void*>(memory + parts.place_offsets[tier]));
    in.count_max = static_cast<uint32_t>(parts.place_counts[tier]);
    if (parts.number_offsets[tier] == 0) continue;
    in.numbers = static_cast<uint32_t*>(static_cast<void*>(memory + parts.number_offsets[tier]));
  }
}

BlockIndex::~BlockIndex() = default;

bool BlockIndex::is_node_of(NodeId node, const BlockKey& key, GroupId group) const {
  const Node& n = nodes_[node];
  return equal_keys(n.key, key) && n.group == group.value() && n.epoch == epoch_;
}

NodeId BlockIndex::find(const BlockKey& key, GroupId group) const {
  static_assert(BlockIndexTable::kNone == kNoNode);
  return table_.find(table_.hash(key, group),
                     [&](NodeId node) { return is_node_of(node, key, group); });
}

// Three stages run through the keys side by side, kLookAhead keys apart: ask for the bucket; look
// into it and ask for the node; compare. So the memory works on some two dozen lines at a time
// instead of one.
uint32_t BlockIndex::find_all(std::span<const BlockKey> keys, GroupId group, uint8_t tier_mask,
                              bool whole, std::span<NodeId> out) const {
  TIERCEL_ASSERT(out.size() >= keys.size(), "find_all needs room for every key");
  uint64_t hashes[kRingSize];
  BlockIndexTable::FirstLook looks[kRingSize];
  const size_t count = keys.size();
  uint32_t run = 0;
  bool in_run = true;
  for (size_t step = 0; step < count + 2 * kLookAhead; ++step) {
    if (step < count) {
      const uint64_t hash = table_.hash(keys[step], group);
      hashes[step % kRingSize] = hash;
      table_.prefetch(hash);
    }
    if (step >= kLookAhead && step - kLookAhead < count) {
      const size_t i = step - kLookAhead;
      const auto look = table_.first_look(hashes[i % kRingSize]);
      looks[i % kRingSize] = look;
      if (look.candidate != BlockIndexTable::kNone) {
        const Node* node = &nodes_[look.candidate];
        __builtin_prefetch(node);
        // Half of the nodes lie across a line border.
        __builtin_prefetch(&node->hit_count);
      }
    }
    if (step < 2 * kLookAhead) continue;
    const size_t i = step - 2 * kLookAhead;
    const auto look = looks[i % kRingSize];
    NodeId node = look.candidate;
    if (node == kNoNode ? !look.final_miss : !is_node_of(node, keys[i], group)) {
      node = find(keys[i], group);
    }
    out[i] = node;
    if (!in_run) continue;
    if (node != kNoNode && (nodes_[node].tier_mask & tier_mask) != 0) {
      ++run;
    } else {
      if (!whole) return run;
      in_run = false;
    }
  }
  return run;
}

NodeId BlockIndex::insert(const BlockKey& key, GroupId group, NodeId parent) {
  TIERCEL_ASSERT(group.value() < options_.group_count, "group of a block out of range");
  if (parent != kNoNode) {
    TIERCEL_ASSERT(is_live(parent) && is_current(parent), "parent of a block is not in the index");
    TIERCEL_ASSERT(nodes_[parent].group == group.value(), "parent of a block is of another group");
  }
  NodeId node = free_head_;
  if (node != kNoNode) {
    free_head_ = nodes_[node].parent;
  } else if (node_end_ < options_.node_count_max) {
    node = node_end_++;
  } else {
    return kNoNode;
  }
  const uint64_t hash = table_.hash(key, group);
  TIERCEL_ASSERT(table_.find(hash, [&](NodeId other) { return is_node_of(other, key, group); }) ==
                     BlockIndexTable::kNone,
                 "block is in the index already");
  nodes_[node] = Node{.key = key,
                      .parent = parent,
                      .child_count = 0,
                      .hold_count = 0,
                      .tier_mask = 0,
                      .group = group.value(),
                      .epoch = epoch_,
                      .hit_count = 0};
  table_.insert(hash, node);
  if (parent != kNoNode) ++nodes_[parent].child_count;
  ++node_count_;
  return node;
}

uint32_t BlockIndex::release_if_unused(NodeId node) {
  TIERCEL_ASSERT(is_live(node), "release of a node that is not in the index");
  uint32_t released = 0;
  while (node != kNoNode) {
    Node& n = nodes_[node];
    if (n.tier_mask != 0 || n.child_count != 0 || n.hold_count != 0) break;
    table_.erase(table_.hash(n.key, GroupId(n.group)), node);
    const NodeId parent = n.parent;
    if (parent != kNoNode) --nodes_[parent].child_count;
    if (n.epoch != epoch_) --stale_count_;
    n.group = kFreeGroup;
    n.parent = free_head_;
    free_head_ = node;
    --node_count_;
    ++released;
    node = parent;
  }
  return released;
}

void BlockIndex::set_place(NodeId node, Tier tier, SlotId slot) {
  TIERCEL_ASSERT(is_live(node), "place for a node that is not in the index");
  TierPlaces& in = tiers_[static_cast<size_t>(tier)];
  TIERCEL_ASSERT(in.places != nullptr, "this index has no places for the tier");
  TIERCEL_ASSERT(!is_in(node, tier), "block has a place in the tier already");
  if (in.numbers != nullptr) {
    uint32_t number = in.free_head;
    if (number != kNoPlace) {
      in.free_head = in.places[number].slot;
    } else {
      TIERCEL_ASSERT(in.end < in.count_max, "the tier has more blocks than it said it could have");
      number = in.end++;
    }
    in.numbers[node] = number;
  }
  nodes_[node].tier_mask |= tier_bit(tier);
  place(node, tier) = Place{.slot = slot.value(), .links = {}};
  ++resident_counts_[static_cast<size_t>(tier)];
}

SlotId BlockIndex::clear_place(NodeId node, Tier tier) {
  TIERCEL_ASSERT(is_live(node) && is_in(node, tier), "block has no place in the tier");
  nodes_[node].tier_mask &= static_cast<uint8_t>(~tier_bit(tier));
  --resident_counts_[static_cast<size_t>(tier)];
  const SlotId slot = this->slot(node, tier);
  TierPlaces& in = tiers_[static_cast<size_t>(tier)];
  if (in.numbers != nullptr) {
    place(node, tier).slot = in.free_head;
    in.free_head = in.numbers[node];
  }
  return slot;
}

bool BlockIndex::unhold(NodeId node) {
  if (!is_live(node) || nodes_[node].hold_count == 0) {
    ++unbalanced_unholds_;
    return false;
  }
  --nodes_[node].hold_count;
  return true;
}

uint64_t BlockIndex::total_holds() const {
  uint64_t total = 0;
  for (NodeId node = 0; node < node_end_; ++node) {
    if (nodes_[node].live()) total += nodes_[node].hold_count;
  }
  return total;
}

bool BlockIndex::advance_epoch() {
  // Two epochs at most live side by side, so that eight bits are enough to tell them apart.
  if (stale_count_ != 0) return false;
  ++epoch_;
  stale_count_ = node_count_;
  sweep_cursor_ = 0;
  sweep_end_ = node_end_;
  return true;
}

NodeId BlockIndex::next_stale(uint32_t nodes_max) {
  if (stale_count_ == 0) return kNoNode;
  if (sweep_cursor_ >= sweep_end_) sweep_cursor_ = 0;
  for (uint32_t seen = 0; seen < nodes_max && sweep_cursor_ < sweep_end_; ++seen) {
    const NodeId node = sweep_cursor_++;
    if (nodes_[node].live() && nodes_[node].epoch != epoch_) return node;
  }
  return kNoNode;
}

BlockIndex::MemoryUse BlockIndex::memory_use() const {
  MemoryUse use;
  use.node_bytes = uint64_t{options_.node_count_max} * sizeof(Node);
  use.table_bytes = table_.bytes();
  for (const TierPlaces& in : tiers_) {
    use.place_bytes += uint64_t{in.count_max} * sizeof(Place);
    if (in.numbers != nullptr) {
      use.place_bytes += uint64_t{options_.node_count_max} * sizeof(uint32_t);
    }
  }
  return use;
}

}  // namespace tiercel
