// SPDX-License-Identifier: Apache-2.0
//
// What the records of a disk tier's instance say, slot by slot and joined over the ranks, as a
// restart would count them (docs/format.md, What a reader checks); and which of them are bad. For
// the tools: reads records only, takes no lock, never changes anything.
//
// 64 bytes a slot are held, and 16 more while a rank is read. Threads: one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "tier/disk/disk_inspect.h"
#include "tier/slot_geometry.h"

namespace tiercel {

// Of a slot; a later one hides an earlier one when ranks are joined.
enum class SlotState : uint8_t {
  kEmpty,
  kBlock,
  kDuplicate,    // an older copy of a block
  kDisagreeing,  // not the same block on every rank
  kCleared,      // older than the last clear
  kMisplaced,    // no slot of its group here, or the extent has come to serve another group
  kBad,          // no record of this folder, slot and rank
};
inline constexpr size_t kSlotStateCount = 7;

struct SurveyedSlot {
  // Halves of digests: enough to tell a million blocks apart.
  std::array<std::byte, 16> key{}, parent{};
  uint64_t sequence = 0;       // on the first rank
  int64_t written_unix_s = 0;  // likewise
  uint64_t stored_bytes = 0;   // on all ranks together
  uint16_t name_space = 0;     // index into DiskSurvey::name_spaces
  GroupId group;
  SlotState state = SlotState::kEmpty;
  bool has_parent = false;
};
static_assert(sizeof(SurveyedSlot) <= 64);

// One rank's own slots, before they are joined.
struct RankSlots {
  uint32_t rank = 0;
  uint64_t used = 0, empty = 0, bad = 0;  // used: any record that is whole
};

struct DiskSurvey {
  std::vector<SurveyedSlot> slots;
  std::vector<Namespace> name_spaces;
  std::vector<RankSlots> ranks;
  std::array<uint64_t, kSlotStateCount> counts{};  // of `slots`, by state
  bool complete = true;                            // not ended by `stop`

  uint64_t count(SlotState state) const { return counts[static_cast<size_t>(state)]; }
};

struct DiskSurveyContext {
  const std::atomic<bool>* stop = nullptr;
  std::function<void(uint64_t done, uint64_t all)> progress;  // records; may be empty
  std::function<void(uint32_t rank, SlotId slot)> bad;        // a record that is none; may be empty

  bool stopped() const { return stop != nullptr && stop->load(); }
};

// Says what is wrong with a rank's files as a whole.
using RankFault = std::function<void(uint32_t rank, const std::string& what)>;

// The ranks whose records can be read together, in their order: their metadata headers are whole
// and agree with each other. What is wrong with the headers and lengths of the others, and of
// these, is told.
std::vector<const DiskRankLook*> usable_ranks(const DiskInstanceLook& look, const RankFault& fault);

// The geometry of one rank alone, as its header says: the only rank in it is 0. kCorrupt for a
// header whose sizes cannot be.
Result<SlotGeometry> geometry_of(const DiskHeader& header);

// `ranks` as usable_ranks() says; at least one. kUnavailable if a file cannot be read.
Result<DiskSurvey> survey_disk(const std::vector<const DiskRankLook*>& ranks,
                               const DiskSurveyContext& context);

// Of the blocks: those whose parent, or a parent of that, is not among the blocks, so that no
// request reaches them.
uint64_t count_unreachable(const DiskSurvey& survey);

// Whether a slice is the one that `rank` of so many holds.
bool is_slice_of_rank(const Slice& slice, uint32_t rank, uint32_t rank_count);

}  // namespace tiercel
