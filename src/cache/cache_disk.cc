// SPDX-License-Identifier: Apache-2.0
//
// Host tier → disk, by write policy and in prefix order, and what a restart finds there. The way
// back is in cache_prefetch.cc and cache_promote.cc.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "cache/cache_impl.h"

namespace tiercel {
namespace {

// Keys of a restart lie all over the index: their places are asked for some steps ahead.
constexpr size_t kLookAhead = 16;

// How soon a clear() is tried again on disks that did not take it.
constexpr Duration kClearRetry = std::chrono::milliseconds(100);

// How long nothing is moved after a put that failed: the next one would be the same block.
constexpr Duration kMovePause = std::chrono::milliseconds(100);

// How long a file system that was full is believed to be.
constexpr Duration kFullPause = std::chrono::seconds(10);

// Blocks that leave the disk at most for one slot of the host tier.
constexpr uint32_t kEvictionsForHost = 64;

struct PendingKeyHash {
  size_t operator()(const std::pair<BlockKey, GroupId>& key) const noexcept {
    return std::hash<BlockKey>{}(key.first) + key.second.value();
  }
};

}  // namespace

void Cache::Impl::adopt(const DiskContents& contents) {
  // Usually a block was written after the one before it. Where that one was written anew, later,
  // the block waits here for it.
  std::unordered_multimap<std::pair<BlockKey, GroupId>, const DiskBlock*, PendingKeyHash> pending;
  std::vector<uint32_t> depths(index_.node_count_max());
  std::vector<const DiskBlock*> found;
  const std::vector<DiskBlock>& blocks = contents.blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i + kLookAhead < blocks.size()) {
      const DiskBlock& ahead = blocks[i + kLookAhead];
      index_.prefetch(ahead.key, ahead.group);
      if (ahead.has_parent) index_.prefetch(ahead.parent, ahead.group);
    }
    if (!adopt(blocks[i], depths)) {
      pending.emplace(std::pair(blocks[i].parent, blocks[i].group), &blocks[i]);
      continue;
    }
    if (pending.empty()) continue;
    found.push_back(&blocks[i]);
    while (!found.empty()) {
      const DiskBlock* parent = found.back();
      found.pop_back();
      const auto [first, last] = pending.equal_range(std::pair(parent->key, parent->group));
      for (auto child = first; child != last; ++child) {
        if (adopt(*child->second, depths)) {
          found.push_back(child->second);
        } else {
          ++stats_.disk_unreachable_blocks;  // the block before it has no slot
        }
      }
      pending.erase(first, last);
    }
  }
  stats_.disk_unreachable_blocks += pending.size();
}

bool Cache::Impl::adopt(const DiskBlock& block, std::vector<uint32_t>& depths) {
  NodeId parent = kNoNode;
  if (block.has_parent) {
    parent = index_.find(block.parent, block.group);
    // Blocks of a window group are of use without those before them.
    if (parent == kNoNode && !index_.is_window_group(block.group)) return false;
  }
  if (index_.find(block.key, block.group) != kNoNode) return true;
  const NodeId node = index_.insert(block.key, block.group, parent);
  if (node == kNoNode) return true;  // full, which the index of a whole tier is not
  BlockPosition position;
  position.visit.now = clock_.now();
  position.position = depths[node] = parent == kNoNode ? 0 : depths[parent] + 1;
  if (disk_->adopt(node, block.slot, position)) {
    ++stats_.disk_recovered_blocks;
  } else {
    index_.release_if_unused(node);
  }
  return true;
}

void Cache::Impl::note_disk_health() {
  if (disk_ == nullptr) return;
  const uint32_t ranks = config_.replicated_slices ? 1 : plane_.rank_count();
  disk_usable_ = true;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    disk_usable_ &= plane_.disk_condition(rank) != StoreCondition::kOpen;
  }
  view_.set_disk_usable(disk_usable_);
}

bool Cache::Impl::wants_disk_put(NodeId node) const {
  if (disk_ == nullptr || disk_->has(node) || !host_.has(node)) return false;
  const bool due = config_.host_to_disk == WritePolicy::kWriteThrough ||
                   (config_.host_to_disk == WritePolicy::kWriteThroughSelective &&
                    index_.hit_count(node) >= config_.selective_hits);
  return due && !is_put_to_disk_[node];
}

void Cache::Impl::queue_disk_put(NodeId node, Request* request, uint32_t position) {
  if (disk_put_queue_.size() + disk_puts_open_ >= disk_put_queue_max_) {
    // The next request that looks at the block offers it again.
    ++stats_.disk_put_dropped;
    if (request != nullptr) {
      request->why.add(WhySpan{position, 1, WhyReason::kDiskPutDropped, Code::kBusy});
    }
    return;
  }
  is_put_to_disk_[node] = true;
  index_.hold(node);
  disk_put_queue_.push(queued_put(node, request, position));
}

void Cache::Impl::drop_disk_puts() {
  while (!disk_put_queue_.empty()) {
    const NodeId node = disk_put_queue_[0].node;
    disk_put_queue_.pop(1);
    is_put_to_disk_[node] = false;
    unhold_node(node);
  }
}

void Cache::Impl::pump_disk() {
  if (disk_ == nullptr) return;
  pump_disk_clear();
  // A clear() that is not through may be tried again, and then takes what was put meanwhile.
  if (disk_clear_owed_) return;
  pump_disk_puts();
  pump_moves();
}

void Cache::Impl::pump_disk_clear() {
  if (!disk_clear_owed_ || disk_clear_open_ || clock_.now() < disk_clear_at_) return;
  Job* job = nullptr;
  if (room(0) > 0) {
    job = jobs_.start(OpKind::kDiskClear, clock_.now() + config_.save_deadline, kNoRequest, 0);
  }
  if (job == nullptr) {
    disk_clear_at_ = clock_.now() + kClearRetry;
    return;
  }
  disk_clear_open_ = true;
  add_item(*job, kNoNode, BlockKey{}, GroupId(0), 0);
  submit(*job);
}

void Cache::Impl::settle_disk_clear(Code code) {
  disk_clear_open_ = false;
  if (code == Code::kOk) {
    // Also for a clear() that came meanwhile: nothing was put since.
    disk_clear_owed_ = false;
  } else {
    disk_clear_at_ = clock_.now() + kClearRetry;
  }
}

void Cache::Impl::pump_disk_puts() {
  size_t capacity = room(4);
  while (!disk_put_queue_.empty() && capacity > 0) {
    const QueuedPut first = disk_put_queue_[0];
    Job* job = jobs_.start(OpKind::kDiskPut, clock_.now() + config_.save_deadline, first.request,
                           first.generation);
    if (job == nullptr) return;
    job->request_id = first.request_id;
    // One job for blocks of one request, so that a failure finds its why-record.
    while (!disk_put_queue_.empty() && capacity > 0 && job->items.size() < config_.job_blocks_max &&
           disk_put_queue_[0].request == first.request &&
           disk_put_queue_[0].generation == first.generation) {
      const QueuedPut put = disk_put_queue_[0];
      disk_put_queue_.pop(1);
      if (add_disk_put(*job, put.node, put.position, false)) --capacity;
      unhold_node(put.node);
    }
    submit_or_cancel(job);
  }
}

void Cache::Impl::pump_moves() {
  if (config_.host_to_disk == WritePolicy::kNone || !disk_usable_ || refuses_work()) return;
  if (clock_.now() < moves_at_) return;
  const bool moves = config_.host_to_disk == WritePolicy::kWriteBack;
  const uint64_t wanted = write_back_free_slots();
  const SlotAllocator::Counts counts = host_.counts();
  uint64_t free_slots = host_.slots_total() - counts.used - counts.quarantined + moves_open_;
  size_t capacity = room(4);
  Job* job = nullptr;
  // False: no more can be started now.
  const auto put = [&](NodeId node, bool leaves) {
    if (capacity == 0 || disk_puts_open_ >= disk_put_queue_max_) return false;
    if (job == nullptr) {
      job = jobs_.start(OpKind::kDiskPut, clock_.now() + config_.save_deadline, kNoRequest, 0);
    }
    if (job == nullptr) return false;
    if (!add_disk_put(*job, node, 0, leaves)) {
      moves_at_ = clock_.now() + kMovePause;
      return false;
    }
    --capacity;
    if (job->items.size() == config_.job_blocks_max) submit(*std::exchange(job, nullptr));
    return true;
  };
  // A free slot may be of no use to the group that needs one.
  uint64_t owed = std::exchange(host_was_short_, false) ? wanted : 0;
  while (free_slots < wanted || owed > 0) {
    const NodeId node = host_.next_to_move();
    if (node == kNoNode) break;
    if (!moves && !is_stuck(node)) break;
    if (disk_->has(node)) {
      host_.drop(node, true);
    } else {
      find_ancestors_to_put(node);
      const bool has_way = std::all_of(moved_path_.rbegin(), moved_path_.rend(),
                                       [&](NodeId ancestor) { return put(ancestor, false); });
      if (!has_way || !put(node, moves)) break;
    }
    ++free_slots;
    owed -= std::min<uint64_t>(owed, 1);
  }
  submit_or_cancel(job);
}

void Cache::Impl::find_ancestors_to_put(NodeId node) {
  moved_path_.clear();
  for (NodeId at = index_.parent(node); at != kNoNode && !disk_->has(at); at = index_.parent(at)) {
    if (!host_.has(at) || is_put_to_disk_[at]) continue;
    moved_path_.push_back(at);
  }
}

bool Cache::Impl::is_stuck(NodeId node) {
  // By the other policies a block goes to disk when it comes or is hit. If that failed and blocks
  // behind it are on disk, it could neither go there nor be evicted, and in the end the host tier
  // would be full of such blocks.
  if (index_.evictable(node, Tier::kHost)) return false;
  return wants_disk_put(node) || !host_.has_victim();
}

std::optional<SlotId> Cache::Impl::acquire_at_cost_of_disk(GroupId group) {
  // What nobody holds and yet cannot go has blocks behind it on disk alone. The next move helps,
  // unless the disk takes nothing: then its coldest blocks go, until one in the host tier can.
  const bool takes_puts = disk_usable_ && clock_.now() >= moves_at_;
  if (takes_puts || host_.next_to_move() == kNoNode) return std::nullopt;
  std::optional<SlotId> slot;
  for (uint32_t left = kEvictionsForHost; left > 0 && !slot && disk_->evict(); --left) {
    slot = host_.acquire(group);
  }
  return slot;
}

uint64_t Cache::Impl::write_back_free_slots() const {
  return config_.write_back_free_slots != 0 ? config_.write_back_free_slots
                                            : std::max(1u, config_.host_blocks / 16);
}

Code Cache::Impl::disk_put_refusal() const {
  if (!disk_usable_) return Code::kUnavailable;
  const bool hangs = disk_->counts().quarantined >= std::max<uint64_t>(1, disk_->slots_total() / 4);
  return hangs || clock_.now() < disk_puts_at_ ? Code::kNoSpace : Code::kOk;
}

bool Cache::Impl::add_disk_put(Job& job, NodeId node, uint32_t position, bool moves) {
  is_put_to_disk_[node] = false;
  if (!host_.has(node)) return false;  // went meanwhile, by clear() or as a bad copy
  if (clear_pending_ || !index_.is_current(node) || disk_->has(node)) return false;
  if (const Code refusal = disk_put_refusal(); refusal != Code::kOk) {
    ++stats_.disk_put_dropped;
    add_why(job, position, WhyReason::kDiskPutDropped, refusal);
    return false;
  }
  index_.hold(node);  // against our own search for room
  const bool reuses = clock_.now() < disk_full_until_;
  const GroupId group = index_.group(node);
  const std::optional<SlotId> disk_slot =
      reuses ? disk_->acquire_reused(group) : disk_->acquire(group);
  index_.unhold(node);
  if (!disk_slot) {
    ++stats_.disk_put_no_space;
    add_why(job, position, WhyReason::kDiskPutDropped, Code::kNoSpace);
    return false;
  }
  is_put_to_disk_[node] = true;
  JobItem& item = add_item(job, node, index_.key(node), index_.group(node), position);
  item.slot = host_.slot(node);
  item.has_slot = true;
  item.disk_slot = *disk_slot;
  item.has_disk_slot = true;
  item.moves = moves;
  item.reuses = reuses;
  ++disk_puts_open_;
  if (moves) ++moves_open_;
  return true;
}

void Cache::Impl::settle_disk_put(Job& job, JobItem& item, Code code) {
  const NodeId node = item.node;
  if (item.moves) --moves_open_;
  is_put_to_disk_[node] = false;
  if (code == Code::kOk) disk_faults_.written();
  if (code == Code::kOk && index_.is_current(node) && !disk_->has(node)) {
    ++stats_.disk_put_blocks;
    BlockPosition position;
    position.visit.now = settle_time_;
    position.position = item.position;
    disk_->publish(node, item.disk_slot, position);
    // Ours is the one hold that is left.
    if (item.moves && host_.has(node, item.slot) && index_.hold_count(node) == 1) {
      host_.drop(node, true);
    }
  } else {
    if (code != Code::kOk) fail_disk_put(job, item, code);
    disk_->retire(item.disk_slot);
  }
  unhold_node(node);
}

void Cache::Impl::fail_disk_get(NodeId node, SlotId slot, Code code) {
  const bool is_bad = disk_faults_.failed(slot);
  if (!disk_->has(node, slot)) return;
  if (is_bad) disk_->set_mark(slot, OwnedTier::Mark::kBadSlot, true);
  if (is_bad || code == Code::kCorrupt) disk_->drop(node, false);
}

void Cache::Impl::fail_disk_put(const Job& job, const JobItem& item, Code code) {
  ++stats_.disk_put_failed;
  moves_at_ = clock_.now() + kMovePause;
  WhyReason reason = WhyReason::kDiskPutFailed;
  if (code == Code::kNoSpace) {
    ++stats_.disk_put_no_space;
    disk_full_until_ = clock_.now() + kFullPause;
    if (item.reuses) disk_puts_at_ = disk_full_until_;
  }
  if (code == Code::kUnavailable && disk_faults_.failed(item.disk_slot)) {
    disk_->set_mark(item.disk_slot, OwnedTier::Mark::kBadSlot, true);
    reason = WhyReason::kDiskSlotWithdrawn;
  }
  if (code == Code::kCorrupt) drop_bad_copy(host_, item.node, item.slot);
  add_why(job, item.position, reason, code);
}

}  // namespace tiercel
