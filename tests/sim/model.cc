// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "index/block_index.h"

namespace tiercel::sim {
namespace {

constexpr uint32_t kAll = UINT32_MAX;

constexpr std::array kCounters = {
    NamedCounter{"matches", &CacheStats::matches},
    NamedCounter{"load_blocks", &CacheStats::load_blocks},
    NamedCounter{"load_failed", &CacheStats::load_failed},
    NamedCounter{"load_corrupt", &CacheStats::load_corrupt},
    NamedCounter{"load_timeout", &CacheStats::load_timeout},
    NamedCounter{"save_blocks", &CacheStats::save_blocks},
    NamedCounter{"save_skipped", &CacheStats::save_skipped},
    NamedCounter{"save_failed", &CacheStats::save_failed},
    NamedCounter{"save_dropped", &CacheStats::save_dropped},
    NamedCounter{"save_no_space", &CacheStats::save_no_space},
    NamedCounter{"get_blocks", &CacheStats::get_blocks},
    NamedCounter{"get_shared", &CacheStats::get_shared},
    NamedCounter{"load_choices", &CacheStats::load_choices},
    NamedCounter{"not_worth_blocks", &CacheStats::not_worth_blocks},
    NamedCounter{"probes", &CacheStats::probes},
    NamedCounter{"suspensions", &CacheStats::suspensions},
    NamedCounter{"get_failed", &CacheStats::get_failed},
    NamedCounter{"get_corrupt", &CacheStats::get_corrupt},
    NamedCounter{"get_timeout", &CacheStats::get_timeout},
    NamedCounter{"put_blocks", &CacheStats::put_blocks},
    NamedCounter{"put_failed", &CacheStats::put_failed},
    NamedCounter{"put_dropped", &CacheStats::put_dropped},
    NamedCounter{"put_replaced", &CacheStats::put_replaced},
    NamedCounter{"exists_asked", &CacheStats::exists_asked},
    NamedCounter{"exists_found", &CacheStats::exists_found},
    NamedCounter{"exists_failed", &CacheStats::exists_failed},
    NamedCounter{"disk_get_blocks", &CacheStats::disk_get_blocks},
    NamedCounter{"disk_get_failed", &CacheStats::disk_get_failed},
    NamedCounter{"disk_get_corrupt", &CacheStats::disk_get_corrupt},
    NamedCounter{"disk_get_timeout", &CacheStats::disk_get_timeout},
    NamedCounter{"disk_put_blocks", &CacheStats::disk_put_blocks},
    NamedCounter{"disk_put_failed", &CacheStats::disk_put_failed},
    NamedCounter{"disk_put_dropped", &CacheStats::disk_put_dropped},
    NamedCounter{"disk_put_no_space", &CacheStats::disk_put_no_space},
    NamedCounter{"disk_evicted_blocks", &CacheStats::disk_evicted_blocks},
    NamedCounter{"disk_recovered_blocks", &CacheStats::disk_recovered_blocks},
    NamedCounter{"disk_unreachable_blocks", &CacheStats::disk_unreachable_blocks},
    NamedCounter{"evicted_blocks", &CacheStats::evicted_blocks},
    NamedCounter{"stale_completions", &CacheStats::stale_completions},
    NamedCounter{"unknown_requests", &CacheStats::unknown_requests},
    NamedCounter{"hold_limit_hits", &CacheStats::hold_limit_hits},
    NamedCounter{"memory_losses", &CacheStats::memory_losses},
    NamedCounter{"unbalanced_unholds", &CacheStats::unbalanced_unholds},
    NamedCounter{"refused_frees", &CacheStats::refused_frees},
};

void gauge(const char* name, uint64_t value, uint64_t most) {
  if (value > most) fail("stats", fmt::format("{} is {}; allowed: 0 to {}", name, value, most));
}

}  // namespace

std::span<const NamedCounter> cache_counters() { return kCounters; }

Model::Model(const SimConfig& config) : config_(config) {
  const uint32_t tokens = config.cache.spec.block_tokens;
  for (const GroupSpec& group : config.cache.spec.groups) {
    window_blocks_.push_back(group.attention == AttentionKind::kWindow
                                 ? (group.window_tokens - 1 + tokens - 1) / tokens
                                 : kAll);
  }
}

uint32_t Model::first_needed(uint32_t group, uint32_t cut, uint32_t from) const {
  if (window_blocks_[group] == kAll || cut <= window_blocks_[group]) return from;
  return std::max(from, cut - window_blocks_[group]);
}

Match Model::check_match(Cache& cache, std::span<const BlockKey> keys,
                         uint32_t computed_blocks) const {
  std::vector<BlockPlace> places(keys.size());
  const Match match = cache.match(keys, computed_blocks, places);
  const auto served =
      static_cast<uint32_t>(std::min<size_t>(keys.size(), config_.cache.request_blocks_max));
  if (match.ready_blocks > match.reachable_blocks ||
      match.reachable_blocks > match.possible_blocks ||
      match.possible_blocks > std::max(served, computed_blocks) ||
      match.ready_blocks < std::min(computed_blocks, served)) {
    fail("match", fmt::format("match of {} blocks, {} of them computed, says ready {}, reachable "
                              "{}, possible {}",
                              keys.size(), computed_blocks, match.ready_blocks,
                              match.reachable_blocks, match.possible_blocks));
  }
  for (uint32_t i = computed_blocks; i < match.reachable_blocks; ++i) {
    if (!is_committed(keys[i])) {
      fail("uncommitted", fmt::format("match offers {} blocks (ready: {}), but block {} has never "
                                      "been committed",
                                      match.reachable_blocks, match.ready_blocks, i));
    }
  }
  // After clear() nothing may be offered until the sweep is done; from outside one cannot see that.
  if (ever_cleared_ && match.possible_blocks <= computed_blocks) return match;

  const auto groups = static_cast<uint32_t>(window_blocks_.size());
  bool with_disk = true;
  const auto resident = [&](uint32_t group, uint32_t position) {
    if (position < computed_blocks) return true;
    const GroupId id(static_cast<uint8_t>(group));
    const NodeId node = cache.index().find(keys[position], id);
    return node != kNoNode && (cache.index().is_in(node, Tier::kHost) ||
                               (with_disk && cache.index().is_in(node, Tier::kDisk)));
  };
  const auto deepest_cut = [&] {
    uint32_t cut = served;
    for (; cut > computed_blocks; --cut) {
      bool usable = true;
      for (uint32_t group = 0; group < groups && usable; ++group) {
        const uint32_t first = window_blocks_[group] == kAll || cut <= window_blocks_[group]
                                   ? 0
                                   : cut - window_blocks_[group];
        for (uint32_t position = first; position < cut && usable; ++position) {
          usable = resident(group, position);
        }
      }
      if (usable) break;
    }
    return std::max(cut, std::min(computed_blocks, served));
  };
  const uint32_t most = deepest_cut();
  // Whether a disk that has failed counts is decided at each poll, which cannot be seen from here.
  with_disk = !config_.disk_faults;
  const uint32_t least = deepest_cut();
  if (match.ready_blocks != least && match.ready_blocks != most) {
    fail("match", fmt::format("match of {} blocks, {} of them computed, says that {} are ready; by "
                              "the index the deepest usable cut is {}, without disk {}",
                              keys.size(), computed_blocks, match.ready_blocks, most, least));
  }
  return match;
}

void Model::check_stats(const Cache& cache, const DataPlane& plane) {
  const CacheStats now = cache.stats();
  for (const NamedCounter& counter : kCounters) {
    if (now.*counter.value < stats_.*counter.value) {
      fail("stats", fmt::format("counter {} fell from {} to {}", counter.name,
                                stats_.*counter.value, now.*counter.value));
    }
  }
  stats_ = now;
  gauge("unbalanced_unholds", now.unbalanced_unholds, 0);
  gauge("refused_frees", now.refused_frees, 0);
  gauge("requests", now.requests, config_.cache.requests_max);
  gauge("jobs_in_flight", now.jobs_in_flight, config_.cache.jobs_in_flight_max);
  gauge("queued_saves", now.queued_saves, config_.cache.requests_max);
  gauge("queued_puts", now.queued_puts,
        std::min(config_.cache.put_queue_max, std::max(1u, config_.cache.host_blocks / 4)));
  gauge("host_slots_used", now.host_slots_used, now.host_slots_total);
  gauge("host_slots_quarantined", now.host_slots_quarantined, now.host_slots_total);
  gauge("host_blocks", now.host_blocks, now.host_slots_used);
  gauge("host_blocks in index nodes", now.host_blocks, now.index_nodes);
  if (now.host_slots_free + now.host_slots_used + now.host_slots_quarantined !=
      now.host_slots_total) {
    fail("stats", fmt::format("{} slots are free, {} used, {} in quarantine, together not {}",
                              now.host_slots_free, now.host_slots_used, now.host_slots_quarantined,
                              now.host_slots_total));
  }
  const uint64_t disk_blocks = now.tier_blocks[static_cast<size_t>(Tier::kDisk)];
  gauge("disk_blocks", disk_blocks, now.disk_slots_used);
  gauge("queued_disk_puts", now.queued_disk_puts, std::max(1u, config_.cache.host_blocks / 4));
  if (now.disk_slots_free + now.disk_slots_used + now.disk_slots_quarantined +
          now.disk_slots_withdrawn !=
      now.disk_slots_total) {
    fail("stats", fmt::format("{} disk slots are free, {} used, {} in quarantine, {} withdrawn, "
                              "together not {}",
                              now.disk_slots_free, now.disk_slots_used, now.disk_slots_quarantined,
                              now.disk_slots_withdrawn, now.disk_slots_total));
  }
  if (now.load_timeout + now.load_corrupt > now.load_failed ||
      now.get_timeout + now.get_corrupt > now.get_failed ||
      now.disk_get_timeout + now.disk_get_corrupt > now.disk_get_failed ||
      now.exists_found + now.exists_failed > now.exists_asked) {
    fail("stats", "a part is larger than its whole");
  }
  if (config_.corruption) return;
  if (now.load_corrupt + now.get_corrupt > 0) {
    fail("corrupt", fmt::format("{} loaded and {} fetched blocks were corrupt, though nothing "
                                "damages bytes",
                                now.load_corrupt, now.get_corrupt));
  }
  for (uint32_t rank = 0; rank < plane.rank_count(); ++rank) {
    const RankStats stats = plane.stats(rank);
    for (size_t kind = 0; kind < kOpKindCount; ++kind) {
      if (stats.paths[kind].corrupt == 0) continue;
      // A slot that a process had half written when it died may still have its old record.
      if (static_cast<OpKind>(kind) == OpKind::kDiskGet && config_.restarts) continue;
      fail("corrupt", fmt::format("rank {} found a block corrupt in {}, though nothing damages "
                                  "bytes",
                                  rank, to_string(static_cast<OpKind>(kind))));
    }
  }
}

void Model::check_closure(Cache& cache, std::span<const std::vector<BlockKey>> paths) const {
  for (uint32_t group = 0; group < window_blocks_.size(); ++group) {
    if (window_blocks_[group] != kAll) continue;
    const GroupId id(static_cast<uint8_t>(group));
    for (const std::vector<BlockKey>& path : paths) {
      bool parent = true;
      for (size_t position = 0; position < path.size(); ++position) {
        const NodeId node = cache.index().find(path[position], id);
        const bool here = node != kNoNode && cache.index().tiers(node) != 0;
        if (here && !parent) {
          fail("closure", fmt::format("block {} of group {} is in a tier of ours without the block "
                                      "before it",
                                      position, group));
        }
        parent = here;
      }
    }
  }
}

}  // namespace tiercel::sim
