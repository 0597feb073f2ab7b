// SPDX-License-Identifier: Apache-2.0
//
// Least recently used, tail first: among blocks that were last visited together, the one deepest in
// the request goes first. One list; the blocks of a visit stand together in it, the first block of
// the request nearest to the recent end.
//
// Threads: control thread only.
#pragma once

#include "index/eviction_policy.h"
#include "index/policy/intrusive_list.h"

namespace tiercel {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(const EvictionPolicyContext& context);

  void visit(std::span<const NodeId> path, std::span<const uint32_t> positions,
             const RequestVisit& visit) override;
  void insert(NodeId node, const BlockPosition& position) override;
  void erase(NodeId node, bool evicted) override;
  void demote(NodeId node) override;
  void suspend(NodeId node) override;
  void resume(NodeId node) override;
  NodeId victim(uint32_t scan_max) override;
  NodeId next_to_move(uint32_t scan_max) override;

 private:
  template <typename Suits>
  NodeId first_from_back(uint32_t scan_max, bool moves, Suits&& suits);
  void link(NodeId node);
  bool is_known(NodeId node) const { return index_.links(node, tier_).word != 0; }
  bool is_listed(NodeId node) const;

  BlockIndex& index_;
  const Tier tier_;
  const bool moves_pinned_;
  IntrusiveList list_;
};

}  // namespace tiercel
