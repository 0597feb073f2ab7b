// SPDX-License-Identifier: Apache-2.0
//
// What a rank's disk makes of a disk that fails. Whatever ended ok reads back, whatever failed says
// so, and what comes next goes on.
#include <cerrno>

#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

using testing::DiskFault;
using testing::DiskFaultAction;
using testing::RankDiskRig;

constexpr uint32_t kSlotsUsed = 24;
constexpr int kRounds = 6;
constexpr uint64_t kClearToken = 1'000'000;

// Puts, gets and a clear over and over, on a disk with one fault.
class FaultRun {
 public:
  FaultRun(DiskSync sync, const std::optional<DiskFault>& fault) {
    rig_.options.sync = sync;
    rig_.open();
    if (fault) rig_.faulty->add(*fault);
    // A fault that lasts lets no slot be emptied either.
    empties_ = !fault || fault->count != testing::kDiskFaultForEver;
  }

  // What went wrong; empty: nothing.
  std::string run() {
    for (int round = 0; round < kRounds && wrong_.empty(); ++round) {
      for (uint32_t i = 0; i < kSlotsUsed / 2; ++i) {
        // Neighbours and single ones, each slot again and again.
        const uint32_t slot = (i < 6 ? i : 2 * i) + static_cast<uint32_t>(round % 2);
        put(slot);
      }
      if (round == kRounds / 2) clear();
      settle();
      check_all();
    }
    requests = rig_.rank_disk->stats().requests;
    struck = rig_.faulty->struck();
    rig_.faulty->clear();
    for (uint32_t slot = 0; slot < kSlotsUsed && wrong_.empty(); ++slot) put(slot);
    settle();
    for (uint32_t slot = 0; slot < kSlotsUsed && wrong_.empty(); ++slot) {
      if (!holds_.contains(slot)) wrong_ = "a put after the fault failed";
    }
    // A process that is killed now and started again finds the same.
    rig_.stop();
    if (!rig_.read_header()) return "no header is valid";
    check_records();
    return wrong_;
  }

  uint64_t failed = 0;
  uint64_t requests = 0;
  uint64_t struck = 0;
  std::map<Code, uint64_t> codes;

 private:
  void put(uint32_t slot) {
    const uint64_t id = next_id_++;
    const Code code = rig_.put(id, slot);
    if (code != Code::kOk) wrong_ = "a put was refused: " + std::string(to_string(code));
    under_way_[id] = slot;
    holds_.erase(slot);
  }

  void clear() {
    if (rig_.rank_disk->start_clear(kClearToken) != Code::kOk) wrong_ = "a clear was refused";
  }

  void settle() {
    rig_.settle();
    for (const auto& [id, slot] : under_way_) {
      const auto found = rig_.ended.find(id);
      if (found == rig_.ended.end()) {
        wrong_ = "put " + std::to_string(id) + " has not ended";
        return;
      }
      ++codes[found->second];
      if (found->second == Code::kOk) {
        holds_[slot] = id;
      } else {
        ++failed;
      }
    }
    under_way_.clear();
    if (rig_.ended.contains(kClearToken)) {
      const Code code = rig_.ended.extract(kClearToken).mapped();
      ++codes[code];
      if (code != Code::kOk) ++failed;
      // All of this round was put before it, so nothing may be left after a clear that went well.
      may_be_cleared_ = holds_;
      if (code == Code::kOk && !rig_.records().empty()) wrong_ = "records outlive a clear";
    }
  }

  // Reads what is acknowledged, through the rank's disk.
  void check_all() {
    rig_.keeps_memory = true;
    std::map<uint64_t, uint64_t> gets;
    for (const auto& [slot, id] : holds_) {
      const uint64_t token = next_id_++;
      if (rig_.get(token, slot) != Code::kOk) wrong_ = "a get was refused";
      gets[token] = id;
    }
    rig_.settle();
    testing::PageBuffer expected(rig_.stride());
    for (const auto& [token, id] : gets) {
      const Code code = rig_.code_of(token);
      ++codes[code];
      if (code != Code::kOk) {
        ++failed;
        continue;
      }
      testing::fill_slot(id, GroupId(0), RankDiskRig::kPayloadBytes, expected.span());
      if (!testing::same_bytes(expected.span(), rig_.memory_of(token))) {
        wrong_ = "block " + std::to_string(id) + " was acknowledged and does not read back";
      }
    }
    rig_.keeps_memory = false;
    check_records();
  }

  void check_records() {
    const auto records = rig_.records();
    for (uint32_t slot = 0; slot < RankDiskRig::kSlots; ++slot) {
      const uint64_t found = rig_.block_in(slot, records, &wrong_);
      const auto held = holds_.find(slot);
      if (held != holds_.end() && found != held->second) {
        const auto cleared = may_be_cleared_.find(slot);
        if (cleared != may_be_cleared_.end() && cleared->second == held->second) continue;
        wrong_ = "slot " + std::to_string(slot) + " has lost block " + std::to_string(held->second);
      }
      if (held == holds_.end() && found != 0 && empties_) {
        wrong_ = "slot " + std::to_string(slot) + " whose put failed has a block";
      }
    }
  }

  RankDiskRig rig_;
  std::string wrong_;
  bool empties_ = true;
  uint64_t next_id_ = 1;
  std::map<uint64_t, uint32_t> under_way_;  // puts, by block
  std::map<uint32_t, uint64_t> holds_;      // acknowledged, by slot
  std::map<uint32_t, uint64_t> may_be_cleared_;
};

struct Case {
  const char* name;
  DiskFault fault;
  bool fails;  // some operation has to say so
  Code code = Code::kOk;
};

// The n-th request of all fails, for each n.
class RankDiskFaults : public ::testing::TestWithParam<DiskSync> {};

TEST_P(RankDiskFaults, OnEveryRequestInTurn) {
  const Case cases[] = {
      {"EIO", {.action = DiskFaultAction::kError, .error = EIO}, true, Code::kUnavailable},
      {"torn EIO", {.action = DiskFaultAction::kTornError, .error = EIO}, true, Code::kUnavailable},
      {"ENOSPC", {.action = DiskFaultAction::kError, .error = ENOSPC}, true, Code::kNoSpace},
      {"EINTR", {.action = DiskFaultAction::kError, .error = EINTR}, false},
      {"EAGAIN", {.action = DiskFaultAction::kError, .error = EAGAIN, .count = 20}, false},
      {"short", {.action = DiskFaultAction::kShort}, false},
      {"short to a piece of a record",
       {.action = DiskFaultAction::kShort, .bytes = 100, .file = DiskFile::kMetadata},
       false},
  };
  FaultRun without(GetParam(), std::nullopt);
  ASSERT_EQ(without.run(), "");
  ASSERT_EQ(without.failed, 0u);
  ASSERT_GE(without.requests, 200u);
  for (const Case& each : cases) {
    for (uint64_t number = 1; number <= without.requests; ++number) {
      DiskFault fault = each.fault;
      fault.first = number;
      FaultRun with(GetParam(), fault);
      ASSERT_EQ(with.run(), "") << each.name << " on request " << number;
      // There are fewer of one file than of both.
      ASSERT_TRUE(with.struck >= 1 || fault.file) << each.name << " on request " << number;
      if (!each.fails) {
        ASSERT_EQ(with.failed, 0u) << each.name << " on request " << number;
        continue;
      }
      ASSERT_GE(with.failed, 1u) << each.name << " on request " << number;
      ASSERT_EQ(with.codes[each.code], with.failed) << each.name << " on request " << number;
    }
  }
}

TEST_P(RankDiskFaults, FromSomeRequestOnForEver) {
  for (const int error : {EIO, ENOSPC, EINTR, EAGAIN, EROFS}) {
    for (uint64_t number = 1; number < 200; number += 7) {
      FaultRun with(GetParam(), DiskFault{.action = DiskFaultAction::kError,
                                          .error = error,
                                          .first = number,
                                          .count = testing::kDiskFaultForEver});
      ASSERT_EQ(with.run(), "") << error << " from request " << number;
      ASSERT_GE(with.failed, 1u) << error << " from request " << number;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BySync, RankDiskFaults,
                         ::testing::Values(DiskSync::kNone, DiskSync::kData),
                         [](const auto& policy) { return std::string(to_string(policy.param)); });

TEST(RankDiskFault, AWriteThatMovesNothingEndsAfterSomeTries) {
  RankDiskRig rig;
  rig.open();
  rig.faulty->add({.action = DiskFaultAction::kShort,
                   .bytes = 0,
                   .kind = DiskIoKind::kWrite,
                   .count = testing::kDiskFaultForEver});
  EXPECT_EQ(rig.put_now(1, 1), Code::kUnavailable);
}

// The old block's record would name bytes that are half overwritten.
bool leaves_a_record(bool empties) {
  RankDiskRig rig;
  rig.protections.empty_failed_slots = empties;
  rig.open();
  EXPECT_EQ(rig.put_now(1, 5), Code::kOk);
  rig.faulty->add({.action = DiskFaultAction::kTornError, .file = DiskFile::kData});
  EXPECT_EQ(rig.put_now(2, 5), Code::kUnavailable);
  EXPECT_EQ(rig.block_in(5), 0u) << "which no reader would take for a block";
  return rig.records().contains(5);
}
TEST(RankDiskFault, ASlotWhosePutFailedHasNoRecord) {
  EXPECT_FALSE(leaves_a_record(true));
  EXPECT_TRUE(leaves_a_record(false)) << "this test cannot fail";
}

TEST(RankDiskFault, ASlotThatCannotBeEmptiedEndsAllTheSame) {
  RankDiskRig rig;
  rig.open();
  rig.faulty->add({.kind = DiskIoKind::kWrite, .count = 2});
  EXPECT_EQ(rig.put_now(1, 5), Code::kUnavailable);
  EXPECT_EQ(rig.put_now(2, 5), Code::kOk);
  EXPECT_EQ(rig.block_in(5), 2u);
}

// The system tells of what it could not write back once, to whichever sync comes first.
Code end_of_put_that_another_sync_has_failed(bool remembers) {
  RankDiskRig rig;
  rig.options.sync = DiskSync::kData;
  rig.protections.remember_failed_syncs = remembers;
  rig.open();
  rig.faulty->add({.kind = DiskIoKind::kSync});
  EXPECT_EQ(rig.put(1, 1), Code::kOk);
  rig.rank_disk->flush();
  rig.poll();  // the payload is written, the sync on its way
  EXPECT_EQ(rig.put(2, 2), Code::kOk);
  rig.settle();
  EXPECT_EQ(rig.code_of(1), Code::kUnavailable);
  EXPECT_EQ(rig.rank_disk->stats().failed_syncs, 1u);
  return rig.code_of(2);
}
TEST(RankDiskFault, AFailedSyncCountsForAllThatWasNotYetSafe) {
  EXPECT_EQ(end_of_put_that_another_sync_has_failed(true), Code::kUnavailable);
  EXPECT_EQ(end_of_put_that_another_sync_has_failed(false), Code::kOk) << "this test cannot fail";
}

TEST(RankDiskFault, AClearThatFailsLeavesTheHeaderThatCounted) {
  for (const DiskFault& fault :
       {DiskFault{.action = DiskFaultAction::kTornError, .kind = DiskIoKind::kWrite},
        DiskFault{.kind = DiskIoKind::kSync}}) {
    RankDiskRig rig;
    rig.open();
    EXPECT_EQ(rig.put_now(1, 1), Code::kOk);
    rig.faulty->add(fault);
    EXPECT_EQ(rig.rank_disk->start_clear(2), Code::kOk);
    rig.settle();
    EXPECT_EQ(rig.code_of(2), Code::kUnavailable);
    ASSERT_TRUE(rig.read_header());
    EXPECT_EQ(rig.rank_disk->start_clear(3), Code::kOk);
    rig.settle();
    EXPECT_EQ(rig.code_of(3), Code::kOk);
    EXPECT_TRUE(rig.records().empty());
  }
}

}  // namespace
}  // namespace tiercel
