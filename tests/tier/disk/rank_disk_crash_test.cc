// SPDX-License-Identifier: Apache-2.0
//
// What a rank's disk still has after its process was killed, or the power failed: many lives over
// one disk, each at random, each ended at random, and read as the folder reads it.
//
// Each proof is run again with a protection switched off and has to find that out.
#include <cerrno>
#include <set>

#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

using testing::RankDiskRig;

enum class Ending { kCrash, kPowerCut, kEither };

class CrashRun {
 public:
  CrashRun(uint64_t seed, DiskSync sync, Ending ending, const RankDiskProtections& protections)
      : random_(seed), ending_(ending) {
    rig_.options.sync = sync;
    rig_.options.sync_interval = std::chrono::seconds(1);
    rig_.protections = protections;
    rig_.order_seed = random_.next();
    rig_.queue_depth = random_.chance(0.5) ? 64 : 4;
  }

  // What went wrong; empty: nothing. Without `verifies` a reader believes the records; if
  // `has_faults` the disk fails now and then.
  std::string run(bool verifies, bool has_faults) {
    has_faults_ = has_faults;
    for (int life = 0; life < 4 && wrong_.empty(); ++life) {
      if (!rig_.read_header()) return "no header is valid";
      rig_.open();
      if (has_faults) add_faults();
      for (uint64_t step = random_.between(5, 80); step > 0 && wrong_.empty(); --step) act();
      const bool loses_power =
          ending_ == Ending::kPowerCut || (ending_ == Ending::kEither && random_.chance(0.5));
      if (loses_power) {
        rig_.disk.power_cut(random_);
      } else {
        rig_.disk.crash(random_);
      }
      rig_.stop();
      check(loses_power, verifies);
    }
    return wrong_;
  }

 private:
  // Puts and clears are numbered in the order of starting: the number of a put is its block's.
  struct Slot {
    uint64_t under_way = 0;
    uint64_t kept = 0;        // acknowledged or found, and nothing was put over it since
    bool is_durable = false;  // `kept` is
    std::set<uint64_t> ever;  // all that were put here
  };

  void act() {
    const uint64_t choice = random_.below(20);
    if (choice == 0) {
      start_clear();
    } else if (choice == 1) {
      let_interval_pass();
    } else if (choice < 5) {
      rig_.rank_disk->flush();
    } else if (choice < 9) {
      poll();
    } else {
      put(static_cast<uint32_t>(random_.below(RankDiskRig::kSlots)));
    }
  }

  void add_faults() {
    using testing::DiskFaultAction;
    for (const auto action :
         {DiskFaultAction::kError, DiskFaultAction::kTornError, DiskFaultAction::kShort}) {
      for (const int error : {EIO, ENOSPC, EINTR}) {
        // A sync cut short would be one that lies.
        const bool is_short = action == DiskFaultAction::kShort;
        rig_.faulty->add({.action = action,
                          .error = error,
                          .kind = is_short ? std::optional(DiskIoKind::kWrite) : std::nullopt,
                          .first = random_.between(1, 100),
                          .count = random_.between(1, 3)});
      }
    }
  }

  void put(uint32_t number) {
    const uint64_t id = ++last_id_;
    const Code code = rig_.put(id, number);
    if (code == Code::kBusy) return;
    if (code != Code::kOk) wrong_ = "a put was refused: " + std::string(to_string(code));
    Slot& slot = slots_[number];
    slot.under_way = id;
    slot.kept = 0;
    slot.ever.insert(id);
  }

  void start_clear() {
    const uint64_t id = ++last_id_;
    if (rig_.rank_disk->start_clear(id) == Code::kOk) clears_.insert(id);
  }

  bool poll() {
    rig_.ended.clear();
    const uint64_t before = rig_.rank_disk->stats().requests;
    rig_.poll();
    for (const auto& [id, code] : rig_.ended) {
      if (code != Code::kOk && !has_faults_) {
        wrong_ = "an operation failed: " + std::string(to_string(code));
      }
      if (clears_.contains(id)) {
        // One that has failed may have been carried out all the same.
        if (code != Code::kOk) continue;
        clears_.erase(id);
        cleared_ = std::max(cleared_, id);
        continue;
      }
      for (auto& [number, slot] : slots_) {
        if (slot.under_way != id) continue;
        slot.under_way = 0;
        if (code != Code::kOk) continue;
        slot.kept = id;
        slot.is_durable = rig_.options.sync == DiskSync::kData;
      }
    }
    return !rig_.ended.empty() || rig_.rank_disk->stats().requests != before;
  }

  void settle() {
    rig_.rank_disk->flush();
    for (int quiet = 0; quiet < 3; quiet = poll() ? 0 : quiet + 1) {
    }
  }

  // What is acknowledged when an interval begins is durable when its sync has ended.
  void let_interval_pass() {
    std::map<uint32_t, uint64_t> kept;
    const uint64_t failed_syncs = rig_.rank_disk->stats().failed_syncs;
    for (const auto& [number, slot] : slots_) kept[number] = slot.kept;
    // The first may end a sync that had begun before.
    for (int i = 0; i < 2; ++i) {
      rig_.clock.advance(rig_.options.sync_interval);
      settle();
    }
    if (rig_.options.sync != DiskSync::kInterval) return;
    if (rig_.rank_disk->stats().failed_syncs != failed_syncs) return;
    for (const auto& [number, id] : kept) {
      Slot& slot = slots_[number];
      if (id != 0 && slot.kept == id) slot.is_durable = true;
    }
  }

  void check(bool power_was_lost, bool verifies) {
    const auto records = rig_.records();
    // A clear that has not ended may have been carried out.
    const uint64_t may_be_cleared = std::max(cleared_, clears_.empty() ? 0 : *clears_.rbegin());
    clears_.clear();
    for (auto& [number, slot] : slots_) {
      const std::string where = "slot " + std::to_string(number);
      const uint64_t found = rig_.block_in(number, records, &wrong_, verifies);
      if (found != 0 && !slot.ever.contains(found)) wrong_ = where + " has a block of another";
      if (found != 0 && found < cleared_) wrong_ = where + " has a block that was cleared";
      const bool must_be_there = slot.kept > may_be_cleared && (slot.is_durable || !power_was_lost);
      if (must_be_there && found != slot.kept) {
        wrong_ = where + " has lost block " + std::to_string(slot.kept);
      }
      slot.is_durable = power_was_lost || (slot.is_durable && found == slot.kept);
      slot.kept = found;
      slot.under_way = 0;
    }
  }

  RankDiskRig rig_;
  Random random_;
  const Ending ending_;
  bool has_faults_ = false;
  std::string wrong_;
  std::map<uint32_t, Slot> slots_;
  std::set<uint64_t> clears_;  // of this life: under way, or failed
  uint64_t cleared_ = 0;       // the last that has ended
  uint64_t last_id_ = 0;
};

struct Proof {
  const char* name;
  DiskSync sync;
  Ending ending;
  bool RankDiskProtections::*protection = nullptr;  // nothing: all are on
  bool verifies = true;
  bool has_faults = false;
};

constexpr uint64_t kSeeds = 250;

std::string run(const Proof& proof, uint64_t seed) {
  RankDiskProtections protections;
  if (proof.protection != nullptr) protections.*proof.protection = false;
  return CrashRun(seed, proof.sync, proof.ending, protections)
      .run(proof.verifies, proof.has_faults);
}

class RankDiskLives : public ::testing::TestWithParam<Proof> {};

// Acknowledged is there: after a crash always, after a loss of power by policy. What is there is
// right, and what was cleared is not there.
TEST_P(RankDiskLives, LosesNothingThatItPromisedAndBringsBackNothingElse) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_EQ(run(GetParam(), seed), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Proofs, RankDiskLives,
    ::testing::Values(Proof{"none_crash", DiskSync::kNone, Ending::kCrash},
                      Proof{"data_crash", DiskSync::kData, Ending::kCrash},
                      Proof{"interval_crash", DiskSync::kInterval, Ending::kCrash},
                      Proof{"none_power_cut", DiskSync::kNone, Ending::kPowerCut},
                      Proof{"data_power_cut", DiskSync::kData, Ending::kPowerCut},
                      Proof{"interval_power_cut", DiskSync::kInterval, Ending::kPowerCut},
                      Proof{"none_either", DiskSync::kNone, Ending::kEither},
                      Proof{"data_either", DiskSync::kData, Ending::kEither},
                      Proof{"interval_either", DiskSync::kInterval, Ending::kEither},
                      Proof{"none_faults", DiskSync::kNone, Ending::kEither, nullptr, true, true},
                      Proof{"data_faults", DiskSync::kData, Ending::kEither, nullptr, true, true},
                      Proof{"interval_faults", DiskSync::kInterval, Ending::kEither, nullptr, true,
                            true}),
    [](const auto& proof) { return std::string(proof.param.name); });

// Of all that a process acknowledged and, killed before its interval had passed, did not sync.
std::string outlives_a_power_cut_in_the_next_life(bool protection) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RankDiskRig rig;
    Random random(seed);
    rig.options.sync = DiskSync::kInterval;
    rig.protections.sync_left_over = protection;
    rig.open();
    EXPECT_EQ(rig.put_now(1, 1), Code::kOk);
    rig.disk.crash(random);
    rig.stop();
    rig.open();
    for (int i = 0; i < 2; ++i) {
      rig.settle();
      rig.clock.advance(rig.options.sync_interval);
    }
    rig.settle();
    rig.disk.power_cut(random);
    rig.stop();
    if (rig.block_in(1) != 1) return "lost with seed " + std::to_string(seed);
  }
  return "";
}
TEST(RankDiskCrash, WhatAnEarlierProcessDidNotComeToSyncIsSynced) {
  EXPECT_EQ(outlives_a_power_cut_in_the_next_life(true), "");
  EXPECT_NE(outlives_a_power_cut_in_the_next_life(false), "") << "this test cannot fail";
}

class RankDiskLivesProof : public ::testing::TestWithParam<Proof> {};

TEST_P(RankDiskLivesProof, NoticesThatAProtectionIsOff) {
  std::string noticed;
  for (uint64_t seed = 1; seed <= kSeeds && noticed.empty(); ++seed) {
    noticed = run(GetParam(), seed);
    if (!noticed.empty()) RecordProperty("seed", std::to_string(seed));
  }
  EXPECT_NE(noticed, "");
  RecordProperty("noticed", noticed);
}

INSTANTIATE_TEST_SUITE_P(
    Protections, RankDiskLivesProof,
    ::testing::Values(
        Proof{"record_before_done", DiskSync::kNone, Ending::kCrash,
              &RankDiskProtections::record_before_done},
        Proof{"one_put_per_slot", DiskSync::kNone, Ending::kCrash,
              &RankDiskProtections::one_put_per_slot},
        Proof{"sync_payload", DiskSync::kData, Ending::kPowerCut,
              &RankDiskProtections::sync_payload},
        Proof{"sync_record", DiskSync::kData, Ending::kPowerCut, &RankDiskProtections::sync_record},
        Proof{"sync_payload_by_interval", DiskSync::kInterval, Ending::kPowerCut,
              &RankDiskProtections::sync_payload},
        Proof{"sync_record_by_interval", DiskSync::kInterval, Ending::kPowerCut,
              &RankDiskProtections::sync_record},
        Proof{"sync_clear", DiskSync::kNone, Ending::kPowerCut, &RankDiskProtections::sync_clear},
        Proof{"sync_before_clear", DiskSync::kNone, Ending::kEither,
              &RankDiskProtections::sync_before_clear},
        Proof{"alternate_headers", DiskSync::kNone, Ending::kPowerCut,
              &RankDiskProtections::alternate_headers},
        Proof{"bound_of_clear_at_start", DiskSync::kNone, Ending::kCrash,
              &RankDiskProtections::bound_of_clear_at_start},
        Proof{"verification_by_the_reader", DiskSync::kNone, Ending::kPowerCut, nullptr, false},
        Proof{"verification_after_a_crash", DiskSync::kData, Ending::kCrash, nullptr, false}),
    [](const auto& proof) { return std::string(proof.param.name); });

}  // namespace
}  // namespace tiercel
