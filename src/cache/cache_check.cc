// SPDX-License-Identifier: Apache-2.0
//
// What can be asked of a cache's state: figures, and whether every invariant holds.
#include <algorithm>

#include <fmt/core.h>

#include "cache/cache_impl.h"

namespace tiercel {
namespace {

StoreHealth worst_health(const DataPlane& plane, StoreHealth RankStats::*part) {
  StoreHealth worst{.condition = StoreCondition::kNone};
  uint64_t opened = 0, refused = 0;
  for (uint32_t rank = 0; rank < plane.rank_count(); ++rank) {
    const StoreHealth health = plane.stats(rank).*part;
    opened += health.opened;
    refused += health.refused;
    if (health.condition > worst.condition) worst = health;
  }
  worst.opened = opened;
  worst.refused = refused;
  return worst;
}

}  // namespace

ReasonText Cache::Impl::store_reason() const {
  ReasonText reason;
  auto worst = StoreCondition::kNone;
  for (uint32_t rank = 0; rank < plane_.rank_count(); ++rank) {
    const ReasonText of_rank = plane_.store_reason(rank);
    if (of_rank.empty()) continue;
    const StoreCondition condition = plane_.stats(rank).store.condition;
    if (!reason.empty() && condition <= worst) continue;
    reason = of_rank;
    worst = condition;
  }
  return reason;
}

CacheStats Cache::Impl::stats() const {
  CacheStats stats = stats_;
  const SlotAllocator::Counts counts = host_.counts();
  const BlockIndex::MemoryUse memory = index_.memory_use();
  stats.evicted_blocks = host_.evicted();
  stats.unbalanced_unholds = index_.unbalanced_unholds();
  stats.refused_frees = counts.refused_frees;
  stats.requests = requests_.living();
  stats.jobs_in_flight = jobs_.in_flight();
  stats.holds = expected_holds();
  stats.queued_saves = save_queue_.size();
  stats.queued_puts = put_queue_.size();
  stats.queued_disk_puts = disk_put_queue_.size();
  stats.host_slots_total = host_.slots_total();
  stats.host_slots_used = counts.used;
  stats.host_slots_quarantined = counts.quarantined;
  stats.host_slots_free = stats.host_slots_total - counts.used - counts.quarantined;
  stats.host_blocks = index_.resident_count(Tier::kHost);
  stats.index_nodes = index_.node_count();
  stats.index_nodes_max = index_.node_count_max();
  stats.index_bytes = memory.node_bytes + memory.table_bytes + memory.place_bytes;
  stats.side_table_bytes = fills_.memory_bytes() + existence_.memory_bytes() +
                           sightings_.memory_bytes() + host_.side_bytes();
  for (size_t tier = 0; tier < kTierCount; ++tier) {
    stats.tier_blocks[tier] = index_.resident_count(static_cast<Tier>(tier));
  }
  if (disk_ != nullptr) {
    const SlotAllocator::Counts disk = disk_->counts();
    stats.disk_evicted_blocks = disk_->evicted();
    stats.refused_frees += disk.refused_frees;
    stats.disk_slots_total = disk_->slots_total();
    stats.disk_slots_used = disk.used;
    stats.disk_slots_quarantined = disk.quarantined;
    stats.disk_slots_withdrawn = disk_->withdrawn();
    stats.disk_slots_free =
        stats.disk_slots_total - disk.used - disk.quarantined - stats.disk_slots_withdrawn;
    stats.side_table_bytes += disk_->side_bytes() + is_put_to_disk_.size() / 8;
  }
  stats.store = worst_health(plane_, &RankStats::store);
  stats.disk = worst_health(plane_, &RankStats::disk);
  stats.store_reason = store_reason();
  return stats;
}

uint64_t Cache::Impl::expected_holds() const {
  uint64_t holds = put_queue_.size() + disk_put_queue_.size();
  jobs_.for_each([&](const Job& job) {
    for (const JobItem& item : job.items) {
      if (!item.settled && item.node != kNoNode) ++holds;
    }
  });
  requests_.for_each([&](const Request& request) { holds += request.hold_count; });
  return holds;
}

std::string Cache::Impl::check_disk(uint64_t references, uint64_t filling) const {
  if (std::string wrong = disk_->allocator().check(); !wrong.empty()) return "disk slots: " + wrong;
  if (references != disk_->total_references()) {
    return fmt::format("{} open items have disk slots, but these have {} references", references,
                       disk_->total_references());
  }
  const SlotAllocator::Counts counts = disk_->counts();
  if (counts.used != index_.resident_count(Tier::kDisk) + filling || counts.refused_frees != 0) {
    return fmt::format(
        "{} disk slots are used, but {} blocks are on disk and {} on their way; {} refused frees",
        counts.used, index_.resident_count(Tier::kDisk), filling, counts.refused_frees);
  }
  const auto marked =
      static_cast<uint64_t>(std::count(is_put_to_disk_.begin(), is_put_to_disk_.end(), true));
  if (marked != disk_put_queue_.size() + filling) {
    return fmt::format("{} blocks are marked as being put to disk; {} wait and {} are on their way",
                       marked, disk_put_queue_.size(), filling);
  }
  return {};
}

std::string Cache::Impl::check(bool quiet, uint64_t device_holds) const {
  if (std::string wrong = index_.check(); !wrong.empty()) return "index: " + wrong;
  if (std::string wrong = host_.allocator().check(); !wrong.empty()) return "slots: " + wrong;
  uint64_t references = 0, disk_references = 0;
  uint64_t filling = 0, disk_filling = 0;
  jobs_.for_each([&](const Job& job) {
    for (const JobItem& item : job.items) {
      if (item.has_slot && item.ranks_open != 0) ++references;
      if (item.has_disk_slot && item.ranks_open != 0) ++disk_references;
      if (item.settled) continue;
      if (fills_host(job.kind)) ++filling;
      if (job.kind == OpKind::kDiskPut) ++disk_filling;
    }
  });
  if (disk_ != nullptr) {
    if (std::string wrong = check_disk(disk_references, disk_filling); !wrong.empty()) return wrong;
  }
  if (references != host_.total_references()) {
    return fmt::format("{} open items have slots, but slots have {} references", references,
                       host_.total_references());
  }
  if (filling != fills_.filling()) {
    return fmt::format("{} items fill blocks, but {} blocks are marked", filling, fills_.filling());
  }
  const SlotAllocator::Counts counts = host_.counts();
  if (counts.used != index_.resident_count(Tier::kHost) + filling) {
    return fmt::format("{} slots are used, but {} blocks are resident and {} being filled",
                       counts.used, index_.resident_count(Tier::kHost), filling);
  }
  if (index_.unbalanced_unholds() != 0 || counts.refused_frees != 0) {
    return fmt::format("{} unbalanced unholds, {} refused frees", index_.unbalanced_unholds(),
                       counts.refused_frees);
  }
  if (protections_.load_holds && index_.total_holds() != expected_holds() + device_holds) {
    return fmt::format("the index has {} holds, their owners {}", index_.total_holds(),
                       expected_holds() + device_holds);
  }
  if (!quiet) return {};
  if (!idle() || counts.quarantined != 0 || requests_.in_use() != 0 ||
      index_.total_holds() != device_holds) {
    return fmt::format(
        "not quiet: {} jobs, {} queued saves, {} queued puts, {} queued disk puts, {} queued "
        "prefetches, {} slots in quarantine, {} requests, {} holds",
        jobs_.in_flight(), save_queue_.size(), put_queue_.size(), disk_put_queue_.size(),
        prefetch_queue_.size(), counts.quarantined, requests_.in_use(), index_.total_holds());
  }
  return {};
}

}  // namespace tiercel
