// SPDX-License-Identifier: Apache-2.0
#include "disk_promises.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "index/block_index.h"
#include "oracle.h"

namespace tiercel::sim {

void DiskPromises::note(Cache& cache) {
  if (!disks_.exist()) return;
  if (clear_is_owed_ && cache.idle()) clear_is_owed_ = false;
  const BlockIndex& index = cache.index();
  on_disk_.clear();
  std::set<Block> still_torn;
  // Not before the sweep is done can one see from here what is of before the clear().
  const bool is_swept = !clear_is_owed_ || index.stale_count() == 0;
  uint32_t left = is_swept ? index.resident_count(Tier::kDisk) : 0;
  for (NodeId node = 0; node < index.node_count_max() && left > 0; ++node) {
    if (!index.is_live(node) || !index.is_in(node, Tier::kDisk)) continue;
    --left;
    if (!index.is_current(node)) continue;
    const Block block{index.key(node), index.group(node), index.slot(node, Tier::kDisk)};
    (torn_.contains(block) ? still_torn : on_disk_).insert(block);
  }
  torn_ = std::move(still_torn);
  std::erase_if(never_acknowledged_, [&](const Block& block) { return !on_disk_.contains(block); });
  if (disks_.is_all_durable()) {
    durable_ = on_disk_;
  } else {
    std::erase_if(durable_, [&](const Block& block) { return !on_disk_.contains(block); });
  }
}

void DiskPromises::process_ends(bool is_closed, bool power_goes) {
  const bool is_all_safe = !power_goes || config_.disk_sync == DiskSync::kData ||
                           (is_closed && config_.disk_sync != DiskSync::kNone);
  promised_ = is_all_safe ? on_disk_ : durable_;
  if (power_goes && config_.disk_sync == DiskSync::kData) {
    std::erase_if(promised_, [&](const Block& block) {
      return never_acknowledged_.contains(block) && !durable_.contains(block);
    });
  }
  std::erase_if(never_acknowledged_, [&](const Block& block) { return durable_.contains(block); });
  durable_.clear();
  on_disk_.clear();
}

std::optional<uint32_t> DiskPromises::rank_with_other_bytes(const Block& block) const {
  std::vector<std::byte> expected;
  for (uint32_t rank = 0; rank < disks_.rank_count(); ++rank) {
    const std::span<const std::byte> actual = disks_.payload(rank, block.slot, block.group);
    expected.resize(actual.size());
    fill_oracle(expected, block.key, block.group, rank, model_.weights());
    if (std::memcmp(actual.data(), expected.data(), expected.size()) != 0) return rank;
  }
  return std::nullopt;
}

void DiskPromises::check_found(const DiskParts& parts, Coverage& coverage) {
  std::set<Block> found;
  torn_.clear();
  const std::set<Block> before = std::exchange(never_acknowledged_, {});
  for (const DiskBlock& block : parts.contents.blocks) {
    const Block here{block.key, block.group, block.slot};
    found.insert(here);
    if (rank_with_other_bytes(here)) torn_.insert(here);
    if (!promised_.contains(here) || before.contains(here)) never_acknowledged_.insert(here);
    if (!looks_inside_ || clear_is_owed_ || model_.is_committed(block.key)) continue;
    fail("cleared", fmt::format("disk slot {} has a block that was not computed since the last "
                                "clear()",
                                block.slot.value()));
  }
  coverage["restart.found_blocks"] += found.size();
  coverage["restart.promised_blocks"] += promised_.size();
  coverage["restart.torn_blocks"] += torn_.size();
  coverage["restart.cleared_slots"] += parts.contents.cleared;
  coverage["restart.torn_records"] += parts.contents.torn;
  coverage["restart.misplaced_records"] += parts.contents.misplaced;
  coverage["restart.disagreeing_ranks"] += parts.contents.disagreeing;
  coverage["restart.duplicates"] += parts.contents.duplicates;
  if (config_.corruption) return;
  for (const Block& block : promised_) {
    const std::string which =
        fmt::format("block {} of group {} was on disk in slot {}", block.key.hex().substr(0, 12),
                    block.group.value(), block.slot.value());
    if (!found.contains(block)) fail("durable", which + " and is not found after the restart");
    if (const auto rank = rank_with_other_bytes(block)) {
      fail("durable",
           fmt::format("{}, but after the restart rank {} has other bytes there", which, *rank));
    }
  }
}

void DiskPromises::check_adopted(Cache& cache, const DiskParts& parts) const {
  const BlockIndex& index = cache.index();
  std::set<std::pair<BlockKey, GroupId>> reached;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const DiskBlock& block : parts.contents.blocks) {
      if (reached.contains(std::pair(block.key, block.group))) continue;
      if (block.has_parent && !index.is_window_group(block.group) &&
          !reached.contains(std::pair(block.parent, block.group))) {
        continue;
      }
      reached.emplace(block.key, block.group);
      goes_on = true;
    }
  }
  for (const DiskBlock& block : parts.contents.blocks) {
    const NodeId node = index.find(block.key, block.group);
    const bool is_here = node != kNoNode && index.is_in(node, Tier::kDisk) &&
                         index.slot(node, Tier::kDisk) == block.slot;
    if (is_here == reached.contains(std::pair(block.key, block.group))) continue;
    fail("reopen",
         fmt::format("block {} of group {} in disk slot {} {} after the restart, though "
                     "the blocks before it {}",
                     block.key.hex().substr(0, 12), block.group.value(), block.slot.value(),
                     is_here ? "is known" : "is not known", is_here ? "are gone" : "are there"));
  }
  const CacheStats stats = cache.stats();
  if (stats.disk_recovered_blocks != reached.size() ||
      stats.disk_recovered_blocks + stats.disk_unreachable_blocks != parts.contents.blocks.size()) {
    fail("reopen", fmt::format("{} blocks count as recovered and {} as unreachable; {} of {} are "
                               "within reach",
                               stats.disk_recovered_blocks, stats.disk_unreachable_blocks,
                               reached.size(), parts.contents.blocks.size()));
  }
}

}  // namespace tiercel::sim
