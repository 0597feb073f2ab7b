// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

namespace tiercel {
namespace {

constexpr uint32_t kNoBlock = UINT32_MAX;

// What a slot has, on one rank and joined; a higher one hides the lower ones.
enum class Seen : uint8_t { kEmpty, kBlock, kDisagreeing, kCleared, kMisplaced, kTorn };

// What the scan of one rank remembers of a slot.
struct SlotSeen {
  uint64_t sequence = 0;
  GroupId group;
  Seen seen = Seen::kEmpty;
};

// A block as rank 0 has it.
struct Candidate {
  DiskBlock block;
  bool is_other_namespace = false;
};

bool is_slice_of(const Slice& slice, uint32_t rank, uint32_t rank_count) {
  return slice.is_all() ? slice.rank == 0 : slice.rank == rank && slice.rank_count == rank_count;
}

class Scanner {
 public:
  Scanner(const SlotGeometry& geometry, const DiskFolderId& folder_id, const Namespace& name_space)
      : geometry_(geometry),
        folder_id_(folder_id),
        name_space_(name_space),
        joined_(geometry.slot_count_max()),
        block_at_(geometry.slot_count_max(), kNoBlock) {}

  // Ranks in their order.
  Result<DiskRankRecords> add(const DiskScanRank& rank_files, uint32_t rank, uint32_t rank_count) {
    DiskRankRecords records(rank_files.first_sequence, geometry_.slot_count_max());
    seen_.assign(geometry_.slot_count_max(), SlotSeen{});
    DiskRecordReader reader(rank_files.records, 0, geometry_.slot_count_max());
    TIERCEL_TRY(reader.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
      SlotSeen& seen = seen_[slot.value()];
      const Result<DiskRecord> record = decode_disk_record(bytes, folder_id_, slot);
      if (!record) {
        seen.seen = record.code() == Code::kNotFound ? Seen::kEmpty : Seen::kTorn;
        return;
      }
      records.note(*record);
      seen.sequence = record->sequence;
      seen.group = record->group;
      if (!is_slice_of(record->slice, rank, rank_count)) {
        seen.seen = Seen::kTorn;
      } else if (record->sequence < rank_files.first_sequence) {
        seen.seen = Seen::kCleared;
      } else if (!geometry_.exists(slot, record->group)) {
        seen.seen = Seen::kMisplaced;
      } else {
        seen.seen = rank == 0 ? take(*record) : compare(*record);
      }
    }));
    settle_extents();
    join(rank == 0);
    return records;
  }

  DiskContents finish(bool purge) {
    DiskContents contents;
    std::vector<uint32_t> kept;
    for (size_t slot = 0; slot < joined_.size(); ++slot) {
      switch (joined_[slot]) {
        case Seen::kEmpty:
          break;
        case Seen::kBlock:
          kept.push_back(block_at_[slot]);
          break;
        case Seen::kDisagreeing:
          ++contents.disagreeing;
          break;
        case Seen::kCleared:
          ++contents.cleared;
          break;
        case Seen::kMisplaced:
          ++contents.misplaced;
          break;
        case Seen::kTorn:
          ++contents.torn;
          break;
      }
    }
    keep_newest(kept, contents);
    contents.blocks.reserve(kept.size());
    for (const uint32_t index : kept) {
      const Candidate& candidate = candidates_[index];
      if (candidate.is_other_namespace) ++contents.other_namespace;
      if (!candidate.is_other_namespace || !purge) contents.blocks.push_back(candidate.block);
    }
    return contents;
  }

 private:
  Seen take(const DiskRecord& record) {
    block_at_[record.slot.value()] = static_cast<uint32_t>(candidates_.size());
    candidates_.push_back({.block = {.slot = record.slot,
                                     .group = record.group,
                                     .has_parent = record.parent.has_value(),
                                     .key = record.key,
                                     .parent = record.parent.value_or(BlockKey{}),
                                     .sequence = record.sequence},
                           .is_other_namespace = record.name_space != name_space_});
    return Seen::kBlock;
  }

  Seen compare(const DiskRecord& record) const {
    const uint32_t index = block_at_[record.slot.value()];
    if (index == kNoBlock) return Seen::kBlock;  // rank 0 has none, which decides
    const auto& [block, is_other_namespace] = candidates_[index];
    const bool is_same = block.key == record.key && block.group == record.group &&
                         block.has_parent == record.parent.has_value() &&
                         block.parent == record.parent.value_or(BlockKey{}) &&
                         is_other_namespace == (record.name_space != name_space_);
    return is_same ? Seen::kBlock : Seen::kDisagreeing;
  }

  // Finds the group that each extent serves on this rank. With one group there is nothing to find.
  void settle_extents() {
    if (geometry_.group_count() == 1) return;
    const uint32_t extent_slots = geometry_.slots_per_extent_max();
    for (size_t begin = 0; begin < seen_.size(); begin += extent_slots) {
      const size_t end = std::min(seen_.size(), begin + extent_slots);
      const SlotSeen* newest = nullptr;
      for (size_t slot = begin; slot < end; ++slot) {
        if (!counts(seen_[slot])) continue;
        if (newest == nullptr || seen_[slot].sequence > newest->sequence) newest = &seen_[slot];
      }
      if (newest == nullptr) continue;
      for (size_t slot = begin; slot < end; ++slot) {
        if (counts(seen_[slot]) && seen_[slot].group != newest->group) {
          seen_[slot].seen = Seen::kMisplaced;
        }
      }
    }
  }

  static bool counts(const SlotSeen& slot) {
    return slot.seen == Seen::kBlock || slot.seen == Seen::kDisagreeing;
  }

  void join(bool is_first_rank) {
    for (size_t slot = 0; slot < joined_.size(); ++slot) {
      const Seen here = seen_[slot].seen;
      Seen& joined = joined_[slot];
      if (is_first_rank) {
        joined = here;
      } else if (here != Seen::kBlock || joined != Seen::kBlock) {
        // A block here and nothing there is not the same on every rank.
        const bool only_one = (here == Seen::kEmpty) != (joined == Seen::kEmpty) &&
                              std::max(here, joined) == Seen::kBlock;
        joined = only_one ? Seen::kDisagreeing : std::max(here, joined);
      }
    }
  }

  // What ordering and the search for copies need of a candidate, side by side: they go through the
  // candidates in an order that no cache follows.
  struct Ranking {
    uint64_t sequence = 0;
    uint32_t index = 0;  // into candidates_
    uint32_t hash = 0;

    bool operator<(const Ranking& other) const { return sequence < other.sequence; }
  };

  // Sorts `kept` by sequence and leaves out what there is a newer copy of.
  void keep_newest(std::vector<uint32_t>& kept, DiskContents& contents) const {
    std::vector<Ranking> order;
    order.reserve(kept.size());
    for (const uint32_t index : kept) {
      const DiskBlock& block = candidates_[index].block;
      // A key is a digest, and any bytes of it are as good as a hash.
      uint32_t hash = 0;
      std::memcpy(&hash, &block.key.bytes[1], sizeof(hash));
      order.push_back({block.sequence, index, hash + block.group.value()});
    }
    std::sort(order.begin(), order.end());
    // Open addressing; a place is 1 + the position in `order`, or 0.
    const size_t mask = std::bit_ceil(2 * order.size() + 1) - 1;
    std::vector<uint32_t> places(mask + 1);
    const auto is_newest = [&](size_t position) {
      const Ranking& ranking = order[position];
      for (size_t at = ranking.hash & mask;; at = (at + 1) & mask) {
        if (places[at] == 0) {
          places[at] = static_cast<uint32_t>(position) + 1;
          return true;
        }
        const Ranking& newer = order[places[at] - 1];
        if (newer.hash == ranking.hash && is_same_block(newer.index, ranking.index)) return false;
      }
    };
    kept.clear();
    for (size_t position = order.size(); position > 0; --position) {
      if (is_newest(position - 1)) {
        kept.push_back(order[position - 1].index);
      } else {
        ++contents.duplicates;
      }
    }
    std::reverse(kept.begin(), kept.end());
  }

  bool is_same_block(uint32_t a, uint32_t b) const {
    const DiskBlock& one = candidates_[a].block;
    const DiskBlock& other = candidates_[b].block;
    return one.key == other.key && one.group == other.group;
  }

  const SlotGeometry& geometry_;
  const DiskFolderId& folder_id_;
  const Namespace& name_space_;
  std::vector<SlotSeen> seen_;        // [slot], of the rank that is being read
  std::vector<Seen> joined_;          // [slot], of all ranks so far
  std::vector<uint32_t> block_at_;    // [slot], index into candidates_
  std::deque<Candidate> candidates_;  // grows without being copied
};

}  // namespace

Result<DiskScan> scan_disk_records(std::span<const DiskScanRank> ranks,
                                   const SlotGeometry& geometry, const DiskFolderId& folder_id,
                                   const Namespace& name_space, bool purge) {
  Scanner scanner(geometry, folder_id, name_space);
  DiskScan scan;
  const auto rank_count = static_cast<uint32_t>(ranks.size());
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    TIERCEL_TRY_ASSIGN(DiskRankRecords records, scanner.add(ranks[rank], rank, rank_count));
    scan.next_sequence.push_back(records.next_sequence);
    scan.payload_checksums.push_back(std::move(records.payload_checksums));
  }
  scan.contents = scanner.finish(purge);
  return scan;
}

}  // namespace tiercel
