// SPDX-License-Identifier: Apache-2.0
//
// S3-FIFO, fitted to chains of blocks: a small queue on probation (a tenth of the capacity), a main
// queue, and ghosts. A block that goes through the small queue with fewer than two visits is
// evicted and becomes a ghost; one that is visited twice there, or comes back as a ghost, belongs
// to the main queue. So a pass of blocks that nobody asks for again does not drive out those in
// use.
//
// What differs from queues of independent objects: only the ends of chains may be evicted, and a
// queue in order of arrival has them last, behind all their ancestors. Therefore a visit moves its
// blocks to the front of their queue, the last block of the request first; promotion happens at the
// visit; and nobody gets a second round at eviction. This keeps, for every block: an ancestor in
// the same queue stands nearer to the front, and no ancestor is on probation while the block is in
// the main queue. A victim is then found within a few looks however long the chains are.
//
// Memory: ghosts about 12 bytes per block of capacity. Threads: control thread only.
#pragma once

#include <string>

#include "index/eviction_policy.h"
#include "index/policy/ghost_table.h"
#include "index/policy/intrusive_list.h"

namespace tiercel {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(const EvictionPolicyContext& context);

  void visit(std::span<const NodeId> path, std::span<const uint32_t> positions,
             const RequestVisit& visit) override;
  void insert(NodeId node, const BlockPosition& position) override;
  void erase(NodeId node, bool evicted) override;
  void demote(NodeId node) override;
  void suspend(NodeId node) override;
  void resume(NodeId node) override;
  NodeId victim(uint32_t scan_max) override;
  NodeId next_to_move(uint32_t scan_max) override;

  uint32_t small_count() const { return small_.size(); }
  uint32_t main_count() const { return main_.size(); }
  uint32_t demoted_count() const { return demoted_.size(); }
  uint32_t ghost_count() const { return ghosts_.count(); }
  // Every block is in the list that its word names, and nowhere else; empty if so. Linear, for
  // tests.
  std::string check() const;

 private:
  enum class Queue : uint32_t { kNone = 0, kSmall = 1, kMain = 2, kDemoted = 3 };

  template <typename Suits>
  NodeId first_from_backs(uint32_t scan_max, bool moves, Suits&& suits);

  // PolicyLinks::word: frequency (bits 0 and 1), queue (bits 2 and 3), suspended (bit 4).
  Queue queue(NodeId node) const;
  uint32_t frequency(NodeId node) const;
  bool is_suspended(NodeId node) const;
  // Not suspended.
  void set_word(NodeId node, Queue queue, uint32_t frequency);
  // Behind its parent where that stands in the same queue, else at the front.
  void link(NodeId node);
  IntrusiveList& list(Queue queue);

  BlockIndex& index_;
  const Tier tier_;
  const bool moves_pinned_;
  const uint32_t small_target_;
  IntrusiveList small_;
  IntrusiveList main_;
  IntrusiveList demoted_;
  GhostTable ghosts_;
  uint32_t suspended_count_ = 0;
};

}  // namespace tiercel
