// SPDX-License-Identifier: Apache-2.0
//
// What a replay has found out. docs/replay.md says what each figure means; names agree with the
// JSON.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tiercel/cache.h"
#include "tiercel/transfer.h"

#include "cli/replay_options.h"
#include "transfer/process/process_data_plane.h"

namespace tiercel {

// A place that hits come from.
struct TierReport {
  std::string name;
  uint64_t hit_blocks = 0;
  uint64_t bytes_read = 0;     // out of it
  uint64_t bytes_written = 0;  // into it
};

// Microseconds.
struct TimesReport {
  double p50 = 0, p99 = 0, max = 0;
};

struct ReplayReport {
  ReplayOptions options;
  bool complete = false;           // the whole trace, up to `limit`
  std::vector<std::string> notes;  // of the start: what was found on disk
  std::string failure;             // why it stopped early; empty if it did not, or on request

  uint64_t requests = 0;
  uint64_t blocks = 0;
  uint64_t hit_blocks = 0;
  uint64_t loaded_blocks = 0;
  uint64_t ceiling_hit_blocks = 0;
  std::optional<uint64_t> optimum_hit_blocks;  // none if it was not asked for
  uint64_t tokens = 0;
  uint64_t tokens_saved = 0;
  uint64_t mismatches = 0;
  std::string first_mismatch;
  uint64_t killed_ranks = 0;
  std::vector<RankStatus> ranks;  // at the end, of ranks in processes; none of threads
  // By rank, why its store failed last (DataPlane::store_reason); empty where it has not.
  std::vector<std::string> store_reasons;
  uint64_t skipped_lines = 0;
  std::string first_skipped;

  TimesReport control_us;
  TimesReport hash_us;
  double wall_seconds = 0;
  uint64_t peak_rss_bytes = 0;
  double index_bytes_per_block = 0;
  CacheStats cache;
  RankStats paths;  // sums over the ranks
  std::vector<TierReport> tiers;

  // How often ranks that had been lost were up again.
  uint64_t comebacks() const;
  double hit_ratio() const { return ratio(hit_blocks); }
  double ceiling_hit_ratio() const { return ratio(ceiling_hit_blocks); }
  std::optional<double> optimum_hit_ratio() const {
    if (!optimum_hit_blocks) return std::nullopt;
    return ratio(*optimum_hit_blocks);
  }

 private:
  double ratio(uint64_t part) const {
    return blocks == 0 ? 0 : static_cast<double>(part) / static_cast<double>(blocks);
  }
};

// How often it was up again after a loss.
inline uint32_t comebacks_of(const RankStatus& rank) {
  return rank.times_up > 0 ? rank.times_up - 1 : 0;
}

// Of `nanoseconds`, which is reordered. Percentiles are values that occurred (nearest rank).
TimesReport summarize_times(std::vector<uint64_t>& nanoseconds);

// Largest resident set of this process so far.
uint64_t peak_rss_bytes();

// For people; several lines.
std::string to_text(const ReplayReport& report);

// One JSON object (docs/replay.md), ends with a line feed.
std::string to_json(const ReplayReport& report);

}  // namespace tiercel
