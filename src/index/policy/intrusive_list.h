// SPDX-License-Identifier: Apache-2.0
//
// IntrusiveList: an ordered list of blocks over the links that BlockIndex keeps per node and tier.
//
// The front is where the blocks are that should stay longest, the back where victims come from. A
// node is in at most one list of its tier; which one, the policy knows (PolicyLinks::word).
// Ownership: none; the index outlives the list. Threads: control thread only. All calls take
// constant time.
#pragma once

#include <cstdint>

#include "index/block_index.h"

namespace tiercel {

class IntrusiveList {
 public:
  IntrusiveList(BlockIndex& index, Tier tier) : index_(index), tier_(tier) {}

  NodeId front() const { return front_; }
  NodeId back() const { return back_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // The neighbour that is nearer to the front; kNoNode at the front.
  NodeId before(NodeId node) const { return links(node).previous; }

  // A victim is taken away soon, and then those before it: asks for what that will touch, two
  // victims ahead, so that the memory works while the first one is dealt with.
  [[gnu::always_inline]] void prefetch_before(NodeId victim) const {
    const NodeId next = before(victim);
    if (next == kNoNode) return;
    index_.prefetch_release(next);
    const NodeId one_more = before(next);
    if (one_more != kNoNode) index_.prefetch_node(one_more, tier_);
  }

  void push_front(NodeId node) { link(node, kNoNode, front_); }
  void push_back(NodeId node) { link(node, back_, kNoNode); }
  // Next to `other`, on the side of the back.
  void insert_behind(NodeId other, NodeId node) { link(node, other, links(other).next); }

  void remove(NodeId node) {
    PolicyLinks& own = links(node);
    (own.previous == kNoNode ? front_ : links(own.previous).next) = own.next;
    (own.next == kNoNode ? back_ : links(own.next).previous) = own.previous;
    own.previous = kNoNode;
    own.next = kNoNode;
    --size_;
  }

  void move_to_front(NodeId node) {
    if (node == front_) return;
    remove(node);
    push_front(node);
  }
  void move_to_back(NodeId node) {
    if (node == back_) return;
    remove(node);
    push_back(node);
  }

 private:
  PolicyLinks& links(NodeId node) { return index_.links(node, tier_); }
  const PolicyLinks& links(NodeId node) const { return index_.links(node, tier_); }

  void link(NodeId node, NodeId previous, NodeId next) {
    PolicyLinks& own = links(node);
    own.previous = previous;
    own.next = next;
    (previous == kNoNode ? front_ : links(previous).next) = node;
    (next == kNoNode ? back_ : links(next).previous) = node;
    ++size_;
  }

  BlockIndex& index_;
  const Tier tier_;
  NodeId front_ = kNoNode;
  NodeId back_ = kNoNode;
  uint32_t size_ = 0;
};

}  // namespace tiercel
