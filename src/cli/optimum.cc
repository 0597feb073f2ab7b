// SPDX-License-Identifier: Apache-2.0
#include "cli/optimum.h"

#include <queue>
#include <tuple>

#include "base/assert.h"
#include "cli/mix.h"

namespace tiercel {
namespace {

// Before the first id; no block.
constexpr uint32_t kRoot = 0;
constexpr uint32_t kNeverAgain = UINT32_MAX;

// A resident block at the time when its next use became known; stale once that has changed.
struct Candidate {
  uint32_t next_use;
  uint32_t depth;
  uint32_t node;
  bool operator<(const Candidate& other) const {
    return std::tie(next_use, depth) < std::tie(other.next_use, other.depth);
  }
};

}  // namespace

size_t OfflineOptimum::EdgeHash::operator()(const Edge& edge) const {
  return mix64(edge.id ^ (edge.parent * kGoldenRatio64));
}

void OfflineOptimum::add(std::span<const uint64_t> ids) {
  Node node = kRoot;
  for (const uint64_t id : ids) {
    TIERCEL_ASSERT(nodes_.size() < kNeverAgain - 1, "block numbers have 32 bits");
    const auto fresh = static_cast<Node>(nodes_.size() + 1);
    node = nodes_.try_emplace(Edge{node, id}, fresh).first->second;
    visits_.push_back(node);
  }
  request_end_.push_back(visits_.size());
}

uint64_t OfflineOptimum::hits(uint64_t capacity) const {
  // Backwards: which request uses the block of each visit next.
  std::vector<uint32_t> next_use_of_visit(visits_.size());
  std::vector<uint32_t> next_use(nodes_.size() + 1, kNeverAgain);
  for (size_t request = request_end_.size(); request-- > 0;) {
    const size_t begin = request == 0 ? 0 : request_end_[request - 1];
    for (size_t visit = begin; visit < request_end_[request]; ++visit) {
      next_use_of_visit[visit] = next_use[visits_[visit]];
      next_use[visits_[visit]] = static_cast<uint32_t>(request);
    }
  }

  // Whoever uses a block uses what comes before it, so the next use never falls along a path, and
  // the farthest and deepest of all resident blocks is always one that none continues.
  std::priority_queue<Candidate> candidates;
  std::vector<bool> resident(nodes_.size() + 1, false);
  uint64_t resident_count = 0;
  uint64_t hits = 0;
  size_t begin = 0;
  for (const size_t end : request_end_) {
    bool leading = true;
    for (size_t visit = begin; visit < end; ++visit) {
      const Node node = visits_[visit];
      leading = leading && resident[node];
      if (leading) ++hits;
      if (!resident[node]) ++resident_count;
      resident[node] = true;
      next_use[node] = next_use_of_visit[visit];
      candidates.push({next_use[node], static_cast<uint32_t>(visit - begin), node});
    }
    while (resident_count > capacity) {
      const Candidate victim = candidates.top();
      candidates.pop();
      if (!resident[victim.node] || next_use[victim.node] != victim.next_use) continue;
      resident[victim.node] = false;
      --resident_count;
    }
    begin = end;
  }
  return hits;
}

}  // namespace tiercel
