// SPDX-License-Identifier: Apache-2.0
#include "index/policy/s3fifo.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace tiercel {

namespace {

constexpr uint32_t kFrequencyMask = 3;
constexpr uint32_t kFrequencyMax = 3;
constexpr uint32_t kQueueShift = 2;
constexpr uint32_t kQueueMask = 3;
constexpr uint32_t kSuspendedBit = 1u << 4;
// Visits on probation that earn a place in the main queue.
constexpr uint32_t kPromotionFrequency = 2;
// The links of a path lie all over the memory: ask for them some steps ahead.
constexpr size_t kLookAhead = 8;

}  // namespace

S3FifoPolicy::S3FifoPolicy(const EvictionPolicyContext& context)
    : index_(context.index),
      tier_(context.tier),
      moves_pinned_(context.moves_pinned),
      small_target_(std::max(1u, context.capacity_blocks / 10)),
      small_(context.index, context.tier),
      main_(context.index, context.tier),
      demoted_(context.index, context.tier),
      ghosts_(context.capacity_blocks) {}

S3FifoPolicy::Queue S3FifoPolicy::queue(NodeId node) const {
  return static_cast<Queue>(index_.links(node, tier_).word >> kQueueShift & kQueueMask);
}

bool S3FifoPolicy::is_suspended(NodeId node) const {
  return (index_.links(node, tier_).word & kSuspendedBit) != 0;
}

uint32_t S3FifoPolicy::frequency(NodeId node) const {
  return index_.links(node, tier_).word & kFrequencyMask;
}

void S3FifoPolicy::set_word(NodeId node, Queue queue, uint32_t frequency) {
  index_.links(node, tier_).word = static_cast<uint32_t>(queue) << kQueueShift | frequency;
}

IntrusiveList& S3FifoPolicy::list(Queue queue) {
  TIERCEL_ASSERT(queue != Queue::kNone, "a block that the policy was not told of");
  if (queue == Queue::kSmall) return small_;
  return queue == Queue::kMain ? main_ : demoted_;
}

void S3FifoPolicy::visit(std::span<const NodeId> path, std::span<const uint32_t> /*positions*/,
                         const RequestVisit& /*visit*/) {
  for (size_t i = path.size(); i-- > 0;) {
    if (i >= kLookAhead) __builtin_prefetch(&index_.links(path[i - kLookAhead], tier_), 1);
    const NodeId node = path[i];
    const Queue from = queue(node);
    const uint32_t visits = std::min(frequency(node) + 1, kFrequencyMax);
    const Queue to =
        from == Queue::kMain || visits >= kPromotionFrequency ? Queue::kMain : Queue::kSmall;
    if (is_suspended(node)) {
      set_word(node, to, visits);
      index_.links(node, tier_).word |= kSuspendedBit;
      continue;
    }
    list(from).remove(node);
    set_word(node, to, visits);
    list(to).push_front(node);
  }
}

void S3FifoPolicy::insert(NodeId node, const BlockPosition& /*position*/) {
  TIERCEL_ASSERT(queue(node) == Queue::kNone, "block was inserted into the policy twice");
  const bool was_ghost = ghosts_.take(index_.key(node), index_.group(node));
  const NodeId parent = index_.parent(node);
  const Queue parent_queue =
      parent != kNoNode && index_.is_in(parent, tier_) ? queue(parent) : Queue::kNone;
  // A ghost whose parent is on probation joins it there; the visit that promotes the parent will
  // promote both.
  const Queue to = was_ghost && parent_queue != Queue::kSmall ? Queue::kMain : Queue::kSmall;
  set_word(node, to, was_ghost ? kPromotionFrequency - 1 : 0);
  link(node);
}

void S3FifoPolicy::link(NodeId node) {
  const Queue to = queue(node);
  const NodeId parent = index_.parent(node);
  if (parent != kNoNode && index_.is_in(parent, tier_) && queue(parent) == to &&
      !is_suspended(parent)) {
    list(to).insert_behind(parent, node);
  } else {
    list(to).push_front(node);
  }
}

void S3FifoPolicy::suspend(NodeId node) {
  TIERCEL_ASSERT(!is_suspended(node), "suspension of a block that is suspended");
  list(queue(node)).remove(node);
  index_.links(node, tier_).word |= kSuspendedBit;
  ++suspended_count_;
}

void S3FifoPolicy::resume(NodeId node) {
  TIERCEL_ASSERT(is_suspended(node), "only what was suspended is resumed");
  index_.links(node, tier_).word &= ~kSuspendedBit;
  --suspended_count_;
  link(node);
}

void S3FifoPolicy::erase(NodeId node, bool evicted) {
  if (is_suspended(node)) {
    --suspended_count_;
  } else {
    list(queue(node)).remove(node);
  }
  set_word(node, Queue::kNone, 0);
  if (evicted) ghosts_.add(index_.key(node), index_.group(node));
}

void S3FifoPolicy::demote(NodeId node) {
  list(queue(node)).remove(node);
  set_word(node, Queue::kDemoted, 0);
  demoted_.push_back(node);
}

NodeId S3FifoPolicy::victim(uint32_t scan_max) {
  return first_from_backs(scan_max, moves_pinned_,
                          [this](NodeId node) { return index_.evictable(node, tier_); });
}

NodeId S3FifoPolicy::next_to_move(uint32_t scan_max) {
  return first_from_backs(scan_max, false,
                          [this](NodeId node) { return index_.hold_count(node) == 0; });
}

template <typename Suits>
NodeId S3FifoPolicy::first_from_backs(uint32_t scan_max, bool moves, Suits&& suits) {
  NodeId in_demoted = demoted_.back();
  NodeId in_small = small_.back();
  NodeId in_main = main_.back();
  bool small_is_next = small_.size() >= small_target_;
  for (uint32_t looks = 0; looks < scan_max; ++looks) {
    NodeId* at = nullptr;
    IntrusiveList* queue = nullptr;
    if (in_demoted != kNoNode) {
      at = &in_demoted;
      queue = &demoted_;
    } else if (in_small != kNoNode && (small_is_next || in_main == kNoNode)) {
      at = &in_small;
      queue = &small_;
      // What hangs on a block of the main queue may well be on probation, and the other way round
      // what is held there may be passed by: turn about until one of them has a victim.
      small_is_next = false;
    } else if (in_main != kNoNode) {
      at = &in_main;
      queue = &main_;
      small_is_next = true;
    } else {
      return kNoNode;
    }
    if (suits(*at)) {
      queue->prefetch_before(*at);
      return *at;
    }
    const NodeId passed = std::exchange(*at, queue->before(*at));
    if (moves) queue->move_to_front(passed);
  }
  return kNoNode;
}

std::string S3FifoPolicy::check() const {
  const IntrusiveList* lists[] = {&small_, &main_, &demoted_};
  const Queue queues[] = {Queue::kSmall, Queue::kMain, Queue::kDemoted};
  for (size_t i = 0; i < 3; ++i) {
    uint32_t count = 0;
    NodeId next = kNoNode;
    for (NodeId node = lists[i]->back(); node != kNoNode; node = lists[i]->before(node)) {
      const std::string name = "node " + std::to_string(node);
      if (!index_.is_live(node) || !index_.is_in(node, tier_)) return name + " is not in the tier";
      if (queue(node) != queues[i]) return name + " is in another queue than its word says";
      if (index_.links(node, tier_).next != next) return name + " is linked wrongly";
      next = node;
      if (++count > lists[i]->size()) return "a queue is longer than its size";
    }
    if (count != lists[i]->size()) return "a queue is shorter than its size";
  }
  if (small_.size() + main_.size() + demoted_.size() + suspended_count_ !=
      index_.resident_count(tier_)) {
    return "the queues together do not have the blocks of the tier";
  }
  return {};
}

}  // namespace tiercel
