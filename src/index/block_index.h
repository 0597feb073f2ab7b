// SPDX-License-Identifier: Apache-2.0
//
// BlockIndex: which blocks exist, where each of them is, and who needs it.
//
// One node per (block key, group). A node knows its parent, how many child nodes it has, how many
// holds protect it, and its place (slot) in each tier that has it. A node lives as long as it has a
// place, a child or a hold; it is then given back, and so may be its ancestors. Nodes without a
// place exist while a transfer fills them, and while a descendant outlives them (which makes the
// descendant garbage: match walks from the root and never reaches it).
//
// Prefix closure: a place may be taken away only if the node is still in another tier, or has no
// child nodes (`evictable`). That makes eviction tail-first over the union of the tiers. Groups
// with window attention are exempt: their blocks are useful without their parents, so `closed` is
// false for them.
//
// Memory: everything is allocated in the constructor, in one arena; nothing is rehashed, moved or
// allocated later, and pages are touched only when nodes come into use. Node 48 bytes, hash
// table 7.5 bytes per node; places take 16 bytes per node, or 4 per node and 16 per place where
// that is less (a host tier that is small beside a disk tier). Threads: control thread only. Keys
// are SHA-256 digests; the table is seeded so that nobody can aim at one bucket.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"
#include "tiercel/tier.h"

#include "base/arena.h"
#include "base/assert.h"
#include "index/block_index_table.h"

namespace tiercel {

// Index of a node; reused after the node was given back.
using NodeId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

// Links that an eviction policy keeps per node and tier, at no memory of its own.
struct PolicyLinks {
  NodeId previous = kNoNode;
  NodeId next = kNoNode;
  uint32_t word = 0;  // meaning is the policy's
};

struct BlockIndexOptions {
  uint32_t node_count_max = 0;  // capacity; 1 to 2^31
  uint8_t tier_mask = 1u << 1;  // bit (1 << Tier): tiers that this index has places for
  // Places that a tier has at most at once; 0: as many as there are nodes.
  std::array<uint32_t, kTierCount> place_count_max{};
  uint8_t group_count = 1;        // 1 to kGroupCountMax
  uint8_t window_group_mask = 0;  // bit (1 << group): window attention, not prefix-closed
  uint64_t seed = 0;
};

class BlockIndex {
 public:
  // kInvalid with the field, its value and what is allowed; kNoSpace if the memory cannot be had.
  static Result<std::unique_ptr<BlockIndex>> create(const BlockIndexOptions& options);
  // As create, for options that are known to be good and small: asserts instead.
  explicit BlockIndex(const BlockIndexOptions& options);
  ~BlockIndex();
  BlockIndex(const BlockIndex&) = delete;
  BlockIndex& operator=(const BlockIndex&) = delete;

  // kNoNode if there is none. Nodes of an older epoch (see advance_epoch) are not found.
  NodeId find(const BlockKey& key, GroupId group) const;
  // As find(), where `guess` is probably the one: then nothing is looked up. It may be any node
  // that ever was, or kNoNode.
  NodeId find(const BlockKey& key, GroupId group, NodeId guess) const {
    return guess != kNoNode && is_node_of(guess, key, group) ? guess : find(key, group);
  }

  // out[i] = find(keys[i], group) for every i, with the memory accesses of several keys in flight
  // at once. `out` has at least keys.size() entries. Returns the length of the leading run of keys
  // whose node is in the index and has a place in a tier of `tier_mask`; entries behind the run are
  // set too if `whole`, else unspecified.
  uint32_t find_all(std::span<const BlockKey> keys, GroupId group, uint8_t tier_mask, bool whole,
                    std::span<NodeId> out) const;

  // Hints that cost nothing but memory traffic: find() or insert() of this key follows soon; the
  // node is looked at soon; the node is given back soon (looks at the node itself).
  // Forced inline: GCC takes a function that only prefetches for one without effect and drops
  // calls.
  [[gnu::always_inline]] void prefetch(const BlockKey& key, GroupId group) const {
    table_.prefetch(table_.hash(key, group));
  }
  [[gnu::always_inline]] void prefetch_node(NodeId node, Tier tier) const {
    __builtin_prefetch(&nodes_[node], 1);
    __builtin_prefetch(&nodes_[node].hit_count, 1);  // half of the nodes lie across a line border
    const uint32_t* const numbers = tiers_[static_cast<size_t>(tier)].numbers;
    if (numbers == nullptr) {
      __builtin_prefetch(&tiers_[static_cast<size_t>(tier)].places[node], 1);
    } else {
      __builtin_prefetch(&numbers[node], 1);
    }
  }
  [[gnu::always_inline]] void prefetch_release(NodeId node) const {
    table_.prefetch(table_.hash(nodes_[node].key, GroupId(nodes_[node].group)));
  }

  // New node without a place. `parent` is kNoNode for the first block of a sequence, else a node of
  // the same group. The key must not be in the index (in the current epoch). kNoNode if the index
  // is full.
  NodeId insert(const BlockKey& key, GroupId group, NodeId parent);

  // Gives the node back if it has no place, child or hold, and then its ancestors as far as that
  // holds for them too. Returns how many nodes went. Safe to call on any live node.
  uint32_t release_if_unused(NodeId node);

  const BlockKey& key(NodeId node) const { return nodes_[node].key; }
  GroupId group(NodeId node) const { return GroupId(nodes_[node].group); }
  NodeId parent(NodeId node) const { return nodes_[node].parent; }
  uint32_t child_count(NodeId node) const { return nodes_[node].child_count; }

  // Places. A node is visible in a tier from set_place to clear_place.
  uint8_t tiers(NodeId node) const { return nodes_[node].tier_mask; }
  bool is_in(NodeId node, Tier tier) const {
    return (nodes_[node].tier_mask & tier_bit(tier)) != 0;
  }
  void set_place(NodeId node, Tier tier, SlotId slot);  // must not be there yet, and have room
  SlotId clear_place(NodeId node, Tier tier);           // must be there; does not release the node
  SlotId slot(NodeId node, Tier tier) const { return SlotId(place(node, tier).slot); }

  // Holds: while the count is above zero no place of the node may be taken away, but that in the
  // device tier (see evictable).
  void hold(NodeId node) { ++nodes_[node].hold_count; }
  // False (and counted, nothing changed) if the count was zero already: a bug of the caller.
  bool unhold(NodeId node);
  uint32_t hold_count(NodeId node) const { return nodes_[node].hold_count; }
  uint64_t total_holds() const;  // over all nodes; linear, for tests and quiesce checks
  uint64_t unbalanced_unholds() const { return unbalanced_unholds_; }

  bool is_window_group(GroupId group) const {
    return (window_group_mask_ >> group.value() & 1) != 0;
  }

  // Whether the place in `tier` may be taken away: not held, and the prefix stays closed. Holds say
  // nothing of the device tier: whoever uses a device block keeps it out of its policy's lists
  // (EvictionPolicy::suspend), and what transfers below hold stays where they need it.
  bool evictable(NodeId node, Tier tier) const {
    const Node& n = nodes_[node];
    if (n.hold_count != 0 && tier != Tier::kDevice) return false;
    if ((n.tier_mask & ~tier_bit(tier)) != 0) return true;
    return n.child_count == 0 || (window_group_mask_ >> n.group & 1) != 0;
  }

  // Hits since the node was inserted, saturating; for write policies that wait for the n-th hit.
  uint8_t hit_count(NodeId node) const { return nodes_[node].hit_count; }
  void count_hit(NodeId node) {
    if (nodes_[node].hit_count != UINT8_MAX) ++nodes_[node].hit_count;
  }

  // Makes every present node unfindable at once, in constant time; they keep their places until
  // they are swept. New nodes with the same keys may be inserted, but not under a stale parent.
  // False, and nothing changed, while nodes of an older epoch are left.
  bool advance_epoch();
  bool is_current(NodeId node) const { return nodes_[node].epoch == epoch_; }
  // Changes whenever advance_epoch() does something.
  uint8_t epoch() const { return epoch_; }
  // Nodes of the older epoch that are still there: 0 when clearing is complete. A stale node that
  // was held when the sweep met it stays until somebody takes its places away and releases it.
  uint32_t stale_count() const { return stale_count_; }
  // Next stale node at or after an internal cursor, looking at no more than `nodes_max`; kNoNode
  // when none was met. The cursor stands behind what was returned. Called after a pass that left
  // stale nodes, it begins another pass.
  NodeId next_stale(uint32_t nodes_max);
  // The present pass has met every stale node.
  bool sweep_done() const { return stale_count_ == 0 || sweep_cursor_ >= sweep_end_; }

  PolicyLinks& links(NodeId node, Tier tier) { return place(node, tier).links; }
  const PolicyLinks& links(NodeId node, Tier tier) const { return place(node, tier).links; }

  uint32_t node_count() const { return node_count_; }
  uint32_t node_count_max() const { return options_.node_count_max; }
  // Nodes with a place in `tier`.
  uint32_t resident_count(Tier tier) const { return resident_counts_[static_cast<size_t>(tier)]; }
  // For checks: the id names a node that is in use.
  bool is_live(NodeId node) const { return node < node_end_ && nodes_[node].live(); }

  // Memory of this index by part: nodes, hash table, places of all tiers.
  struct MemoryUse {
    uint64_t node_bytes = 0, table_bytes = 0, place_bytes = 0;
    uint64_t total_bytes() const { return node_bytes + table_bytes + place_bytes; }
  };
  MemoryUse memory_use() const;

  // Every invariant, linear time; empty if all hold, else what is wrong. For tests and simulation.
  std::string check() const;

 private:
  static constexpr uint8_t kFreeGroup = UINT8_MAX;
  struct Node {
    BlockKey key;
    NodeId parent;  // also the free list's link
    uint32_t child_count;
    uint32_t hold_count;
    uint8_t tier_mask;
    uint8_t group;  // kFreeGroup: the node is not in use
    uint8_t epoch;
    uint8_t hit_count;

    bool live() const { return group != kFreeGroup; }
  };
  static_assert(sizeof(Node) == 48);
  struct Place {
    uint32_t slot;
    PolicyLinks links;
  };
  static_assert(sizeof(Place) == 16);

  // Where the parts lie in the arena.
  struct Layout {
    uint64_t bucket_count = 0;
    uint64_t table_offset = 0;
    uint64_t number_offsets[kTierCount] = {};  // 0: places stand by node
    uint64_t place_counts[kTierCount] = {};
    uint64_t place_offsets[kTierCount] = {};
    uint64_t total_bytes = 0;
  };
  static Layout layout(const BlockIndexOptions& options);
  static Result<std::unique_ptr<Arena>> make_arena(const BlockIndexOptions& options);
  BlockIndex(const BlockIndexOptions& options, std::unique_ptr<Arena> arena);

  bool is_node_of(NodeId node, const BlockKey& key, GroupId group) const;
  std::string check_nodes() const;
  std::string check_table() const;
  std::string check_free_list() const;
  std::string check_pools() const;

  // The places of one tier: by node, or in a pool, and then `numbers` says which is a node's.
  struct TierPlaces {
    Place* places = nullptr;  // null: the tier has none
    uint32_t* numbers = nullptr;
    uint32_t count_max = 0;
    uint32_t end = 0;               // of the pool: places [0, end) have been used at least once
    uint32_t free_head = kNoPlace;  // of the pool, linked by Place::slot
  };
  static constexpr uint32_t kNoPlace = UINT32_MAX;

  Place& place(NodeId node, Tier tier) const {
    const TierPlaces& in = tiers_[static_cast<size_t>(tier)];
    return in.places[in.numbers == nullptr ? node : in.numbers[node]];
  }

  // Constant after construction.
  const BlockIndexOptions options_;
  const uint8_t window_group_mask_;
  const std::unique_ptr<Arena> arena_;
  Node* const nodes_;  // in the arena, as the table and the places
  TierPlaces tiers_[kTierCount];

  BlockIndexTable table_;
  NodeId free_head_ = kNoNode;
  NodeId node_end_ = 0;  // nodes [0, node_end_) have been used at least once
  uint32_t node_count_ = 0;
  uint32_t stale_count_ = 0;
  uint32_t resident_counts_[kTierCount] = {};
  uint64_t unbalanced_unholds_ = 0;
  uint8_t epoch_ = 0;
  NodeId sweep_cursor_ = 0;
  NodeId sweep_end_ = 0;  // no stale node stands at or behind it
};

}  // namespace tiercel
