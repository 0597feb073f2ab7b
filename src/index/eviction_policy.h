// SPDX-License-Identifier: Apache-2.0
//
// EvictionPolicy: which block of a tier goes first.
//
// One policy object per tier. Cache tells it about every visit of a request and every arrival and
// departure of a block; it answers with victims that are evictable (BlockIndex::evictable). What a
// good policy must be able to see: per visit the time, how long the request is, how much of it was
// known, how deep each block lies and how far from the end, whether the last block is the partial
// one; per block its past visits; and departed blocks (ghosts), which it may remember by key,
// bounded by the capacity.
//
// Threads: control thread only. No call allocates after construction, or takes more than amortised
// constant time per block (an occasional bounded refresh of tables is allowed).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "index/block_index.h"

namespace tiercel {

// One request's look at its whole path, told once per request (when it is loaded or committed).
struct RequestVisit {
  TimePoint now;
  uint32_t block_count = 0;      // blocks of the whole request
  uint32_t known_count = 0;      // leading blocks that were found anywhere
  bool last_is_partial = false;  // the last block is not full (replay of published traces)
};

// Where a block stands in the request that brought it.
struct BlockPosition {
  RequestVisit visit;
  uint32_t position = 0;  // 0 is the first block of the request
};

// How many blocks a search for a victim looks at: those that are held or have children in flight
// are few and stand together, so this bounds the worst step without ever being met in ordinary use.
inline constexpr uint32_t kVictimScanMax = 4096;

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // The blocks of a visit that are in this tier, root first; `positions[i]` is the place of path[i]
  // in the request. Afterwards a block is never a better victim than a block behind it.
  virtual void visit(std::span<const NodeId> path, std::span<const uint32_t> positions,
                     const RequestVisit& visit) = 0;

  // `node` has just got its place in this tier. If its parent is in this tier too, `node` becomes
  // the next better victim before it, as if both had been visited together.
  virtual void insert(NodeId node, const BlockPosition& position) = 0;

  // `node` is about to lose its place: `evicted` by this policy's own choice (remember it as a
  // ghost if ghosts help), or removed for another reason (forget it).
  virtual void erase(NodeId node, bool evicted) = 0;

  // `node` is of no use any more (no usable prefix needs it): it goes before all others.
  virtual void demote(NodeId node) = 0;

  // `node` is in use: it is passed over, at no cost to searches, until resume(), which puts it
  // where a visit would have. Visits in between count; erase() ends it too. For a tier of which
  // much is in use at any time. Path order: parents are resumed before their children.
  virtual void suspend(NodeId node) = 0;
  virtual void resume(NodeId node) = 0;

  // The best evictable victim, or kNoNode if none was met. Does not remove it. Looks at no more
  // than `scan_max` blocks; those met that are not evictable stay where they are, unless the
  // context has `moves_pinned`. With a `scan_max` of at least the blocks of the tier, a victim is
  // found whenever a block is evictable.
  virtual NodeId victim(uint32_t scan_max) = 0;

  // The first of those that would be victims once another tier of ours has them too: as victim(),
  // but only what is held is passed over. For moving blocks down ahead of need.
  virtual NodeId next_to_move(uint32_t scan_max) = 0;
};

struct EvictionPolicyContext {
  BlockIndex& index;         // outlives the policy
  Tier tier;                 // whose links the policy may use
  uint32_t capacity_blocks;  // blocks that the tier can hold
  // A search for a victim moves what it meets and may not take to the recent end, so that the next
  // one does not meet it again. For a tier that may hold many such blocks for long: on the device
  // those whose children are in the host tier alone, and stay there as long as a store hangs.
  bool moves_pinned = false;
};

// "lru", "s3fifo"; kInvalid for another name, with the list and the nearest name.
Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name,
                                                             const EvictionPolicyContext& context);
std::vector<std::string_view> eviction_policy_names();

}  // namespace tiercel
