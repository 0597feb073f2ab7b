// SPDX-License-Identifier: Apache-2.0
#include "cli/disk_survey.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tier/disk/disk_record_reader.h"

namespace tiercel {
namespace {

constexpr uint32_t kRecordsPerStep = uint32_t{1} << 16;
constexpr uint16_t kNameSpaceMax = UINT16_MAX;

using HalfDigest = std::array<std::byte, 16>;

HalfDigest half_of(const BlockKey& key) {
  HalfDigest half;
  std::memcpy(half.data(), key.bytes.data(), half.size());
  return half;
}

// What the extents need of one rank's slot.
struct RankSlot {
  uint64_t sequence = 0;
  GroupId group;
  SlotState state = SlotState::kEmpty;
};
static_assert(sizeof(RankSlot) <= 16);

bool counts(const RankSlot& slot) {
  return slot.state == SlotState::kBlock || slot.state == SlotState::kDisagreeing;
}

bool agree(const DiskHeader& one, const DiskHeader& other) {
  return one.folder_id == other.folder_id && one.rank_count == other.rank_count &&
         one.slots_per_extent == other.slots_per_extent && one.extent_count == other.extent_count &&
         one.last_extent_slots == other.last_extent_slots;
}

void look_at_length(const DiskFileLook& file, uint64_t wanted, uint32_t rank,
                    const std::string& name, const RankFault& fault) {
  if (!file.header || file.bytes == wanted) return;
  fault(rank, name + ": " + std::to_string(file.bytes) + " bytes long, " + std::to_string(wanted) +
                  " by its header; the next start of the engine mends that");
}

class Surveyor {
 public:
  Surveyor(const std::vector<const DiskRankLook*>& ranks, const DiskSurveyContext& context)
      : ranks_(ranks), context_(context) {}

  Result<DiskSurvey> run() {
    uint64_t all = 0;
    for (const DiskRankLook* rank : ranks_) all += rank->slot_count();
    uint64_t done = 0;
    survey_.slots.resize(ranks_.front()->slot_count());
    for (const DiskRankLook* rank : ranks_) {
      const DiskHeader& header = *rank->metadata.header;
      TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, geometry_of(header));
      here_.assign(survey_.slots.size(), RankSlot{});
      counts_of_rank_ = RankSlots{.rank = rank->rank};
      const auto end = static_cast<uint32_t>(here_.size());
      for (uint32_t begin = 0; begin < end; begin += kRecordsPerStep) {
        if (context_.stopped()) {
          survey_.complete = false;
          break;
        }
        const uint32_t step_end = std::min(end, begin + std::min(end - begin, kRecordsPerStep));
        DiskRecordReader reader(rank->metadata.file, begin, step_end);
        TIERCEL_TRY(reader.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
          take(rank->rank, header, geometry, slot, bytes);
        }));
        done += step_end - begin;
        if (context_.progress) context_.progress(done, all);
      }
      settle_extents(geometry);
      join(rank == ranks_.front());
      survey_.ranks.push_back(counts_of_rank_);
    }
    mark_duplicates();
    for (const SurveyedSlot& slot : survey_.slots) {
      ++survey_.counts[static_cast<size_t>(slot.state)];
    }
    return std::move(survey_);
  }

 private:
  void take(uint32_t rank, const DiskHeader& header, const SlotGeometry& geometry, SlotId slot,
            DiskRecordReader::RecordBytes bytes) {
    RankSlot& here = here_[slot.value()];
    // Most slots of a young tier are empty; no error need be made for each.
    if (std::all_of(bytes.begin(), bytes.end(),
                    [](std::byte byte) { return byte == std::byte{}; })) {
      ++counts_of_rank_.empty;
      return;
    }
    const Result<DiskRecord> record = decode_disk_record(bytes, header.folder_id, slot);
    if (!record || !is_slice_of_rank(record->slice, rank, header.rank_count)) {
      ++counts_of_rank_.bad;
      here.state = SlotState::kBad;
      if (context_.bad) context_.bad(rank, slot);
      return;
    }
    ++counts_of_rank_.used;
    here.sequence = record->sequence;
    here.group = record->group;
    if (record->sequence < header.first_sequence) {
      here.state = SlotState::kCleared;
    } else if (!geometry.exists(slot, record->group)) {
      here.state = SlotState::kMisplaced;
    } else {
      here.state = rank == ranks_.front()->rank ? take_block(*record) : compare(*record);
    }
  }

  SlotState take_block(const DiskRecord& record) {
    SurveyedSlot& slot = survey_.slots[record.slot.value()];
    slot.key = half_of(record.key);
    slot.has_parent = record.parent.has_value();
    slot.parent = half_of(record.parent.value_or(BlockKey{}));
    slot.sequence = record.sequence;
    slot.written_unix_s = record.written_unix_s;
    slot.stored_bytes = record.stored_bytes;
    slot.group = record.group;
    slot.name_space = index_of(record.name_space);
    return SlotState::kBlock;
  }

  SlotState compare(const DiskRecord& record) {
    SurveyedSlot& slot = survey_.slots[record.slot.value()];
    if (slot.state != SlotState::kBlock) return SlotState::kBlock;  // the first rank decides
    const bool is_same = slot.key == half_of(record.key) && slot.group == record.group &&
                         slot.has_parent == record.parent.has_value() &&
                         slot.parent == half_of(record.parent.value_or(BlockKey{})) &&
                         survey_.name_spaces[slot.name_space] == record.name_space;
    slot.stored_bytes += record.stored_bytes;
    return is_same ? SlotState::kBlock : SlotState::kDisagreeing;
  }

  uint16_t index_of(const Namespace& name_space) {
    std::vector<Namespace>& all = survey_.name_spaces;
    if (last_name_space_ < all.size() && all[last_name_space_] == name_space) {
      return last_name_space_;
    }
    const auto found = std::find(all.begin(), all.end(), name_space);
    last_name_space_ = static_cast<uint16_t>(found - all.begin());
    // More than anybody has; those beyond count as the last.
    if (found == all.end() && all.size() < kNameSpaceMax) all.push_back(name_space);
    last_name_space_ = std::min(last_name_space_, static_cast<uint16_t>(all.size() - 1));
    return last_name_space_;
  }

  // An extent serves the group of its newest record; older ones of other groups are overwritten in
  // part.
  void settle_extents(const SlotGeometry& geometry) {
    if (geometry.group_count() == 1) return;
    const uint32_t extent_slots = geometry.slots_per_extent_max();
    for (size_t begin = 0; begin < here_.size(); begin += extent_slots) {
      const size_t end = std::min(here_.size(), begin + extent_slots);
      const RankSlot* newest = nullptr;
      for (size_t slot = begin; slot < end; ++slot) {
        if (!counts(here_[slot])) continue;
        if (newest == nullptr || here_[slot].sequence > newest->sequence) newest = &here_[slot];
      }
      for (size_t slot = begin; newest != nullptr && slot < end; ++slot) {
        if (counts(here_[slot]) && here_[slot].group != newest->group) {
          here_[slot].state = SlotState::kMisplaced;
        }
      }
    }
  }

  void join(bool is_first) {
    for (size_t slot = 0; slot < here_.size(); ++slot) {
      const SlotState here = here_[slot].state;
      SlotState& joined = survey_.slots[slot].state;
      if (is_first) {
        joined = here;
        continue;
      }
      const bool only_one = (here == SlotState::kEmpty) != (joined == SlotState::kEmpty) &&
                            std::max(here, joined) == SlotState::kBlock;
      joined = only_one ? SlotState::kDisagreeing : std::max(here, joined);
    }
  }

  void mark_duplicates() {
    std::vector<uint32_t> blocks;
    for (uint32_t slot = 0; slot < survey_.slots.size(); ++slot) {
      if (survey_.slots[slot].state == SlotState::kBlock) blocks.push_back(slot);
    }
    // The newest of equals comes first.
    std::sort(blocks.begin(), blocks.end(), [&](uint32_t a, uint32_t b) {
      const SurveyedSlot& one = survey_.slots[a];
      const SurveyedSlot& other = survey_.slots[b];
      if (one.key != other.key) return one.key < other.key;
      if (one.group != other.group) return one.group < other.group;
      return one.sequence > other.sequence;
    });
    for (size_t i = 1; i < blocks.size(); ++i) {
      const SurveyedSlot& newer = survey_.slots[blocks[i - 1]];
      SurveyedSlot& older = survey_.slots[blocks[i]];
      if (newer.key == older.key && newer.group == older.group) older.state = SlotState::kDuplicate;
    }
  }

  const std::vector<const DiskRankLook*>& ranks_;
  const DiskSurveyContext& context_;
  DiskSurvey survey_;
  std::vector<RankSlot> here_;  // [slot], of the rank that is being read
  RankSlots counts_of_rank_;
  uint16_t last_name_space_ = 0;
};

}  // namespace

std::vector<const DiskRankLook*> usable_ranks(const DiskInstanceLook& look,
                                              const RankFault& fault) {
  std::vector<const DiskRankLook*> usable;
  const DiskHeader* first = nullptr;
  for (const DiskRankLook& rank : look.ranks) {
    const auto& header = rank.metadata.header;
    if (!header) {
      fault(rank.rank, header.error().message());
      continue;
    }
    if (header->rank != rank.rank) {
      fault(rank.rank, "metadata: the header is of rank " + std::to_string(header->rank));
      continue;
    }
    const Result<SlotGeometry> geometry = geometry_of(*header);
    if (!geometry) {
      fault(rank.rank, "metadata: " + geometry.error().message());
      continue;
    }
    if (first != nullptr && !agree(*first, *header)) {
      fault(rank.rank,
            "metadata: the header is of another folder, or of another size, than that "
            "of rank " +
                std::to_string(first->rank));
      continue;
    }
    if (first == nullptr) first = &*header;
    usable.push_back(&rank);
    look_at_length(rank.metadata, disk_metadata_bytes(*geometry), rank.rank, "metadata", fault);
    look_at_length(rank.data, disk_data_bytes(*geometry, 0), rank.rank, "data", fault);
    if (!rank.data.header) {
      fault(rank.rank, rank.data.header.error().message());
    } else if (rank.data.header->folder_id != header->folder_id ||
               rank.data.header->rank != rank.rank) {
      fault(rank.rank, "data: the header is of another folder, or another rank");
    }
  }
  const uint32_t rank_count = first == nullptr ? 0 : first->rank_count;
  for (uint32_t rank = 0, at = 0; rank < rank_count; ++rank) {
    if (at < look.ranks.size() && look.ranks[at].rank == rank) {
      ++at;
    } else {
      fault(rank, "the folder is not there");
    }
  }
  return usable;
}

bool is_slice_of_rank(const Slice& slice, uint32_t rank, uint32_t rank_count) {
  return slice.is_all() ? slice.rank == 0 : slice.rank == rank && slice.rank_count == rank_count;
}

Result<SlotGeometry> geometry_of(const DiskHeader& header) {
  SlotGeometryOptions options;
  for (const uint64_t bytes : header.payload_bytes) options.payload_bytes.push_back({bytes});
  options.extent_count = header.extent_count;
  options.slots_per_extent = header.slots_per_extent;
  options.last_extent_slots = header.last_extent_slots;
  Result<SlotGeometry> geometry = SlotGeometry::create(std::move(options));
  if (!geometry) return Error(Code::kCorrupt, "the header's sizes: " + geometry.error().message());
  return geometry;
}

Result<DiskSurvey> survey_disk(const std::vector<const DiskRankLook*>& ranks,
                               const DiskSurveyContext& context) {
  return Surveyor(ranks, context).run();
}

uint64_t count_unreachable(const DiskSurvey& survey) {
  // From each block the parents are followed up to one whose fate is known: every step is made
  // once, however long the sequences are.
  std::vector<uint32_t> blocks;
  for (uint32_t slot = 0; slot < survey.slots.size(); ++slot) {
    if (survey.slots[slot].state == SlotState::kBlock) blocks.push_back(slot);
  }
  const auto key_of = [&](uint32_t slot) -> const HalfDigest& { return survey.slots[slot].key; };
  std::sort(blocks.begin(), blocks.end(),
            [&](uint32_t a, uint32_t b) { return key_of(a) < key_of(b); });
  enum Fate : uint8_t { kUnknown, kOnTheWay, kReachable, kLost };
  std::vector<uint8_t> fate(blocks.size(), kUnknown);
  // The first position of a key; the groups of one key share its fate.
  const auto find = [&](const HalfDigest& key) {
    const auto at = std::lower_bound(
        blocks.begin(), blocks.end(), key,
        [&](uint32_t slot, const HalfDigest& wanted) { return key_of(slot) < wanted; });
    return at != blocks.end() && key_of(*at) == key ? static_cast<size_t>(at - blocks.begin())
                                                    : blocks.size();
  };
  uint64_t lost_count = 0;
  std::vector<size_t> way;
  for (const uint32_t start : blocks) {
    way.clear();
    size_t at = find(key_of(start));
    uint8_t end = kLost;
    while (at < blocks.size()) {
      if (fate[at] != kUnknown) {
        end = fate[at] == kOnTheWay ? uint8_t{kLost} : fate[at];  // a ring leads nowhere
        break;
      }
      fate[at] = kOnTheWay;
      way.push_back(at);
      const SurveyedSlot& slot = survey.slots[blocks[at]];
      if (!slot.has_parent) {
        end = kReachable;
        break;
      }
      at = find(slot.parent);
    }
    for (const size_t passed : way) fate[passed] = end;
    if (end == kLost) ++lost_count;
  }
  return lost_count;
}

}  // namespace tiercel
