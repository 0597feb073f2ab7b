// SPDX-License-Identifier: Apache-2.0
//
// The simple model that the cache is compared with: which keys have ever been computed, and what
// the cache's own figures may do.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "tiercel/cache.h"

#include "failure.h"
#include "sim_config.h"
#include "transfer/simulated_data_plane.h"

namespace tiercel::sim {

class Model {
 public:
  explicit Model(const SimConfig& config);

  void committed(const BlockKey& key) { committed_.insert(key); }
  bool is_committed(const BlockKey& key) const { return committed_.contains(key); }
  void cleared() { ever_cleared_ = true; }
  // As cleared(), and nothing that was computed before is of use any more.
  void weights_changed() {
    cleared();
    committed_.clear();
    ++weights_;
  }
  uint64_t weights() const { return weights_; }
  // Another process, whose cache counts from 0 on.
  void restarted() { stats_ = {}; }

  // Blocks directly before a cut that it needs in `group`; UINT32_MAX: all.
  uint32_t window_blocks(uint32_t group) const { return window_blocks_[group]; }
  // First position at or after `from` that a cut needs in `group`.
  uint32_t first_needed(uint32_t group, uint32_t cut, uint32_t from) const;

  // Asks for a match and compares it with what has ever been committed and with what stands in the
  // index, found in the slowest and plainest way. Returns the match.
  Match check_match(Cache& cache, std::span<const BlockKey> keys, uint32_t computed_blocks) const;

  // Counters never fall, gauges make sense, nothing is found corrupt that nobody has damaged.
  void check_stats(const Cache& cache, const DataPlane& plane);

  // With nothing in flight and nothing that ever failed: every block of a full-attention group that
  // is in a tier has its parent in one.
  void check_closure(Cache& cache, std::span<const std::vector<BlockKey>> paths) const;

  const CacheStats& stats() const { return stats_; }

  // Every path that a request can take, as far as keys were made for it.
  std::map<std::string, std::vector<BlockKey>> known_paths;

 private:
  const SimConfig& config_;
  std::vector<uint32_t> window_blocks_;
  std::unordered_set<BlockKey> committed_;
  bool ever_cleared_ = false;
  uint64_t weights_ = 0;
  CacheStats stats_;  // the latest
};

// Every counter of CacheStats with its name.
struct NamedCounter {
  const char* name;
  uint64_t CacheStats::*value;
};
std::span<const NamedCounter> cache_counters();

}  // namespace tiercel::sim
