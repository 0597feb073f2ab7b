// SPDX-License-Identifier: Apache-2.0
//
// The invariants of BlockIndex, worked out from scratch.
#include <string>
#include <vector>

#include "index/block_index.h"

namespace tiercel {

namespace {

std::string differs(const std::string& what, uint64_t is, uint64_t should_be) {
  return what + " is " + std::to_string(is) + ", should be " + std::to_string(should_be);
}

}  // namespace

std::string BlockIndex::check() const {
  std::string wrong = check_nodes();
  if (wrong.empty()) wrong = check_table();
  if (wrong.empty()) wrong = check_free_list();
  if (wrong.empty()) wrong = check_pools();
  return wrong;
}

std::string BlockIndex::check_nodes() const {
  std::vector<uint32_t> child_counts(node_end_, 0);
  uint32_t live_count = 0;
  uint32_t stale_count = 0;
  uint32_t resident_counts[kTierCount] = {};
  for (NodeId node = 0; node < node_end_; ++node) {
    const Node& n = nodes_[node];
    if (!n.live()) continue;
    const std::string name = "node " + std::to_string(node);
    ++live_count;
    if (n.epoch != epoch_) {
      ++stale_count;
      if (node >= sweep_end_) return name + " is stale and behind the end of the sweep";
    } else if (find(n.key, GroupId(n.group)) != node) {
      return name + " is not found by its key";
    }
    if (n.group >= options_.group_count) return name + " has a group out of range";
    if ((n.tier_mask & ~options_.tier_mask) != 0) return name + " is in a tier without places";
    for (uint32_t tier = 0; tier < kTierCount; ++tier)
      resident_counts[tier] += n.tier_mask >> tier & 1;
    if (n.parent == kNoNode) continue;
    if (!is_live(n.parent)) return name + " has a parent that is not in the index";
    if (nodes_[n.parent].group != n.group) return name + " has a parent of another group";
    if (nodes_[n.parent].epoch != n.epoch) return name + " has a parent of another epoch";
    ++child_counts[n.parent];
  }
  for (NodeId node = 0; node < node_end_; ++node) {
    if (!nodes_[node].live() || nodes_[node].child_count == child_counts[node]) continue;
    return differs("child count of node " + std::to_string(node), nodes_[node].child_count,
                   child_counts[node]);
  }
  if (live_count != node_count_) return differs("node count", node_count_, live_count);
  if (stale_count != stale_count_) return differs("stale count", stale_count_, stale_count);
  for (uint32_t tier = 0; tier < kTierCount; ++tier) {
    if (resident_counts[tier] == resident_counts_[tier]) continue;
    return differs("resident count of tier " + std::to_string(tier), resident_counts_[tier],
                   resident_counts[tier]);
  }
  return {};
}

std::string BlockIndex::check_table() const {
  const auto buckets = table_.buckets();
  std::vector<uint32_t> passed_counts(buckets.size(), 0);
  std::vector<uint8_t> seen(node_end_, 0);
  uint32_t entry_count = 0;
  for (uint32_t at = 0; at < buckets.size(); ++at) {
    for (uint32_t entry = 0; entry < BlockIndexTable::kEntriesPerBucket; ++entry) {
      if (buckets[at].tags[entry] == 0) continue;
      ++entry_count;
      const NodeId node = buckets[at].nodes[entry];
      if (!is_live(node)) return "the table names a node that is not in use";
      if (seen[node]++ != 0) return "the table names node " + std::to_string(node) + " twice";
      const uint64_t hash = table_.hash(nodes_[node].key, GroupId(nodes_[node].group));
      if (buckets[at].tags[entry] != BlockIndexTable::tag_of(hash)) {
        return "node " + std::to_string(node) + " has a wrong tag";
      }
      for (uint32_t passed = table_.home(hash); passed != at; passed = table_.next(passed)) {
        ++passed_counts[passed];
      }
    }
  }
  if (entry_count != node_count_)
    return differs("entry count of the table", entry_count, node_count_);
  for (uint32_t at = 0; at < buckets.size(); ++at) {
    if (buckets[at].passed_count == passed_counts[at]) continue;
    return differs("passed count of bucket " + std::to_string(at), buckets[at].passed_count,
                   passed_counts[at]);
  }
  return {};
}

std::string BlockIndex::check_free_list() const {
  uint32_t free_count = 0;
  for (NodeId node = free_head_; node != kNoNode; node = nodes_[node].parent) {
    if (node >= node_end_ || nodes_[node].live()) return "the free list names a node in use";
    if (++free_count > node_end_) return "the free list runs in a circle";
  }
  if (free_count + node_count_ != node_end_) {
    return differs("length of the free list", free_count, node_end_ - node_count_);
  }
  return {};
}

std::string BlockIndex::check_pools() const {
  for (uint32_t tier = 0; tier < kTierCount; ++tier) {
    const TierPlaces& in = tiers_[tier];
    if (in.numbers == nullptr) continue;
    const std::string name = "the pool of tier " + std::to_string(tier);
    std::vector<uint8_t> seen(in.end, 0);
    for (uint32_t number = in.free_head; number != kNoPlace; number = in.places[number].slot) {
      if (number >= in.end) return name + " has a free place behind its end";
      if (seen[number]++ != 0) return name + " has a free list that runs in a circle";
    }
    for (NodeId node = 0; node < node_end_; ++node) {
      if (!nodes_[node].live() || (nodes_[node].tier_mask >> tier & 1) == 0) continue;
      const uint32_t number = in.numbers[node];
      if (number >= in.end) return name + " ends before the place of node " + std::to_string(node);
      if (seen[number]++ != 0) {
        return name + " gave the place of node " + std::to_string(node) + " twice";
      }
    }
    for (uint32_t number = 0; number < in.end; ++number) {
      if (seen[number] == 0) return name + " has lost place " + std::to_string(number);
    }
  }
  return {};
}

}  // namespace tiercel
