// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "cli/disk_check.h"
#include "cli/disk_tool_fixture.h"

namespace tiercel {
namespace {

constexpr uint32_t kBlocks = 8;

// An hour passes with every look at it: nothing is waited for.
class HurriedClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::hours(++hours_)); }
  static const Clock& get() {
    static const HurriedClock clock;
    return clock;
  }

 private:
  mutable std::atomic<int> hours_{0};
};

// Eight blocks on two ranks, in the slots 0 to 7.
class VerifyCommand : public DiskToolTest {
 protected:
  void fill() {
    const auto folder = open();
    for (uint32_t slot = 0; slot < kBlocks; ++slot) write_block(*folder, block(slot));
  }
  static Block block(uint32_t slot) {
    return {.slot = slot, .key = "key" + std::to_string(slot), .sequence = slot + 1};
  }
  nlohmann::json verify(int status = kExitOk) { return figures_of(run_verify_command, {}, status); }
  nlohmann::json repair(int status = kExitOk) {
    return figures_of(run_verify_command, {{"repair", "true"}}, status);
  }
  static void expect_one_fault(const nlohmann::json& json, const std::string& kind,
                               const std::string& place) {
    for (const auto& [name, figures] : json["faults"].items()) {
      EXPECT_EQ(figures["count"], name == kind ? 1 : 0) << name << json["faults"];
    }
    ASSERT_EQ(json["faults"][kind]["places"].size(), 1u);
    EXPECT_NE(json["faults"][kind]["places"][0].get<std::string>().find(place), std::string::npos)
        << json["faults"];
  }
  // What is damaged is found, and nothing is changed by that; once repaired, all but the slot that
  // is lost is there.
  void expect_found_and_repaired(const std::string& kind, const std::string& place,
                                 uint32_t lost_blocks) {
    const auto damaged = snapshot();
    expect_one_fault(verify(kExitFailed), kind, place);
    EXPECT_EQ(snapshot(), damaged);
    const auto repaired = repair();
    expect_one_fault(repaired, kind, place);
    EXPECT_EQ(repaired["dropped"], lost_blocks);
    EXPECT_EQ(repaired["remaining_faults"], 0);
    const auto after = verify();
    EXPECT_EQ(after["slots"]["blocks"], kBlocks - lost_blocks);
    EXPECT_EQ(after["checked_payloads"], 2 * (kBlocks - lost_blocks));
    EXPECT_EQ(contents_of(*open()).blocks.size(), kBlocks - lost_blocks);
  }
  static DiskContents contents_of(DiskFolder& folder) {
    return folder.read_contents(testing::digest_of<Namespace>("namespace"), false).value();
  }
};

TEST_F(VerifyCommand, SaysThatAllIsWell) {
  fill();
  const auto before = snapshot();
  const auto json = verify();
  EXPECT_EQ(json["slots"]["blocks"], kBlocks);
  EXPECT_EQ(json["checked_payloads"], 2 * kBlocks);
  EXPECT_EQ(json["checked_bytes"], 6000 * kBlocks);
  EXPECT_EQ(run_command(run_verify_command, {{"disk_path", options_.path}}), kExitOk);
  EXPECT_NE(out_.str().find("all is well"), std::string::npos) << out_.str();
  EXPECT_EQ(snapshot(), before);
}

TEST_F(VerifyCommand, ABitInAPayload) {
  fill();
  flip_bit(file(1, "data"), slot_offset(*open(), 1, 3) + 4999, 7);
  expect_found_and_repaired("payload", "rank 1 slot 3", 1);
}

TEST_F(VerifyCommand, ABitInAFrame) {
  fill();
  const auto at_frame = [this] {
    const auto folder = open();
    return slot_offset(*folder, 0, 3) + folder->geometry().payload_bytes(GroupId(0), 0);
  };
  flip_bit(file(0, "data"), at_frame() + 100);
  expect_found_and_repaired("frame", "rank 0 slot 3", 1);
}

TEST_F(VerifyCommand, ABitInARecord) {
  fill();
  flip_bit(file(1, "metadata"), disk_record_offset(SlotId(5)) + 17);
  expect_found_and_repaired("record", "rank 1 slot 5", 1);
}

TEST_F(VerifyCommand, ABlockThatIsNotThereOnOneRank) {
  fill();
  overwrite(file(1, "metadata"), disk_record_offset(SlotId(5)), std::string(kDiskRecordBytes, 0));
  expect_found_and_repaired("ranks", "slot 5", 1);
}

TEST_F(VerifyCommand, RanksWithDifferentBlocks) {
  fill();
  Block other = block(5);
  other.key = "another";
  write_slot(*open(), 1, other);
  write_record(*open(), 1, other);
  expect_found_and_repaired("ranks", "slot 5", 1);
}

TEST_F(VerifyCommand, AWholeSlotThatIsAnotherBlocks) {
  fill();
  Block other = block(2);
  other.key = "another";
  write_slot(*open(), 0, other);
  expect_found_and_repaired("frame", "rank 0 slot 2", 1);
}

TEST_F(VerifyCommand, ARecordThatWasCopiedElsewhere) {
  fill();
  const std::string metadata = testing::read_file(file(0, "metadata"));
  overwrite(file(0, "metadata"), disk_record_offset(SlotId(6)),
            metadata.substr(disk_record_offset(SlotId(1)), kDiskRecordBytes));
  expect_found_and_repaired("record", "rank 0 slot 6", 1);
}

TEST_F(VerifyCommand, ARecordThatIsLongerThanItsSlot) {
  fill();
  auto folder = open();
  DiskRecord record = record_of(*folder, 0, block(4));
  record.stored_bytes = record.raw_bytes = UINT64_MAX / 2;
  std::array<std::byte, kDiskRecordBytes> bytes;
  encode_disk_record(record, folder->id(), bytes);
  overwrite(file(0, "metadata"), disk_record_offset(SlotId(4)),
            {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  folder.reset();
  expect_found_and_repaired("record", "rank 0 slot 4", 1);
}

TEST_F(VerifyCommand, ADamagedDataHeader) {
  fill();
  flip_bit(file(1, "data"), 70);
  expect_found_and_repaired("files", "rank 1", 0);
}

TEST_F(VerifyCommand, EitherOfTheTwoMetadataHeaders) {
  for (const uint64_t page : {0, 1}) {
    std::filesystem::remove_all(options_.path);
    fill();
    flip_bit(file(0, "metadata"), page * kDiskHeaderBytes + 40);
    expect_found_and_repaired("files", "rank 0", 0);
  }
}

TEST_F(VerifyCommand, WhatNoRepairMendsIsLeftAndExits1) {
  fill();
  overwrite(file(1, "metadata"), 0, std::string(2 * kDiskHeaderBytes, 'x'));
  expect_one_fault(verify(kExitFailed), "files", "rank 1");
  const auto before = snapshot();
  EXPECT_EQ(repair(kExitFailed)["remaining_faults"], 1);
  EXPECT_EQ(snapshot(), before);
}

TEST_F(VerifyCommand, AFileThatWasCutShort) {
  fill();
  const uint64_t end = slot_offset(*open(), 0, 6) + 10;
  std::filesystem::resize_file(file(0, "data"), end);
  auto json = verify(kExitFailed);
  EXPECT_EQ(json["faults"]["files"]["count"], 1);
  EXPECT_EQ(json["faults"]["frame"]["count"], 2) << json["faults"];  // slots 6 and 7
  // The length is for the next start to mend.
  EXPECT_EQ(repair(kExitFailed)["dropped"], 2);
  EXPECT_EQ(contents_of(*open()).blocks.size(), kBlocks - 2);
  EXPECT_EQ(verify()["slots"]["blocks"], kBlocks - 2);
}

TEST_F(VerifyCommand, AMissingRank) {
  fill();
  std::filesystem::remove_all(options_.path + "/main/rank1");
  expect_one_fault(verify(kExitFailed), "files", "rank 1 the folder is not there");
}

// Whatever bit of a record, a payload or a frame is wrong is found, and at its place.
TEST_F(VerifyCommand, AnyBitOfWhatIsChecked) {
  fill();
  const auto whole = open();
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const auto rank = static_cast<uint32_t>(random.below(2));
    const auto slot = static_cast<uint32_t>(random.below(kBlocks));
    const int bit = static_cast<int>(random.below(8));
    std::string path = file(rank, "metadata");
    uint64_t at = disk_record_offset(SlotId(slot)) + random.below(kDiskRecordBytes);
    if (random.chance(0.6)) {
      path = file(rank, "data");
      const uint64_t payload = whole->geometry().payload_bytes(GroupId(0), rank);
      at = slot_offset(*whole, rank, slot);
      // The frame says, beside what the record says, who wrote it: its own checksum covers that.
      at += random.chance(0.5) ? random.below(payload) : payload + random.below(kFrameBytes);
    }
    flip_bit(path, at, bit);
    const auto report = check_disk({options_.path, "main", false},
                                   {.clock = HurriedClock::get(), .stop = nullptr, .progress = {}});
    ASSERT_TRUE(report);
    EXPECT_EQ(report->fault_count(), 1u) << path << " at " << at << " bit " << bit;
    flip_bit(path, at, bit);
  }
}

TEST_F(VerifyCommand, StaleRecordsAreNoFaults) {
  fill();
  {
    const auto folder = open();
    // An older copy, with a payload that has gone since.
    Block copy = block(3);
    copy.slot = 12;
    copy.sequence = 0;
    write_record(*folder, 0, copy);
    write_record(*folder, 1, copy);
  }
  const auto json = verify();
  EXPECT_EQ(json["slots"]["duplicates"], 1);
  EXPECT_EQ(json["slots"]["blocks"], kBlocks);
  EXPECT_EQ(repair()["dropped"], 0);
}

TEST_F(VerifyCommand, ARepairDoesNotBringBackWhatANewerRecordHid) {
  options_.payload_bytes = {{9000}, {100}};
  options_.bytes = 4 << 20;
  {
    const auto folder = open();
    // The extent has come to serve group 1; the newest record is damaged.
    write_block(*folder, {.slot = 0, .key = "older", .sequence = 1, .group = 0});
    write_block(*folder, {.slot = 1, .key = "newer", .sequence = 2, .group = 1});
    // A copy in another extent, damaged as well.
    const uint32_t other = folder->geometry().slot_at(1, 0).value();
    write_block(*folder, {.slot = other, .key = "copy", .sequence = 3, .group = 0});
    write_block(*folder, {.slot = other + 1, .key = "copy", .sequence = 4, .group = 0});
    flip_bit(file(0, "data"), slot_offset(*folder, 0, 1, 1) + 5);
    flip_bit(file(0, "data"), slot_offset(*folder, 0, other + 1, 0) + 5);
  }
  const auto json = repair();
  EXPECT_EQ(json["faults"]["payload"]["count"], 2);
  EXPECT_EQ(json["dropped"], 2);
  EXPECT_EQ(json["dropped_stale"], 2);
  EXPECT_TRUE(contents_of(*open()).blocks.empty());
}

TEST_F(VerifyCommand, ARepairIsRefusedWhileTheTierIsInUse) {
  fill();
  flip_bit(file(1, "metadata"), disk_record_offset(SlotId(5)) + 17);
  const auto folder = open();
  const auto before = snapshot();
  EXPECT_EQ(run_command(run_verify_command, {{"disk_path", options_.path}, {"repair", "true"}}),
            kExitRefused);
  EXPECT_NE(error_.str().find("process " + std::to_string(::getpid())), std::string::npos)
      << error_.str();
  EXPECT_EQ(snapshot(), before);
}

TEST_F(VerifyCommand, ARepairLetsTheTierGoAgain) {
  fill();
  repair();
  EXPECT_TRUE(open());
}

TEST_F(VerifyCommand, StoppedItExits130AndHasDroppedNothing) {
  fill();
  flip_bit(file(1, "metadata"), disk_record_offset(SlotId(5)) + 17);
  const auto before = snapshot();
  std::atomic<bool> stop{false};
  DiskCheckContext context{.clock = clock_, .stop = &stop, .progress = {}};
  context.progress = [&](uint64_t, uint64_t) { stop = true; };
  const auto report = check_disk({options_.path, "main", true}, context);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->checked_payloads, 1u);
  EXPECT_EQ(report->dropped, 0u);
  EXPECT_EQ(snapshot(), before);
  stop_ = true;
  EXPECT_EQ(run_command(run_verify_command, {{"disk_path", options_.path}}), kExitInterrupted);
}

TEST_F(VerifyCommand, WhatChangesWhileTheTierIsInUseIsLookedAtTwice) {
  fill();
  const auto folder = open();
  // Three puts that are half done, and a block that is bad for good.
  flip_bit(file(0, "data"), slot_offset(*folder, 0, 1) + 5);
  flip_bit(file(1, "metadata"), disk_record_offset(SlotId(2)) + 17);
  overwrite(file(1, "metadata"), disk_record_offset(SlotId(3)), std::string(kDiskRecordBytes, 0));
  flip_bit(file(0, "data"), slot_offset(*folder, 0, 4) + 5);
  bool done = false;
  DiskCheckContext context{.clock = HurriedClock::get(), .stop = nullptr, .progress = {}};
  context.progress = [&](uint64_t at, uint64_t all) {
    if (done || at + 1 < all / 2 + 6) return;
    done = true;
    for (const uint32_t slot : {1u, 2u, 3u}) write_block(*folder, block(slot));
  };
  const auto report = check_disk({options_.path, "main", false}, context);
  ASSERT_TRUE(report);
  EXPECT_TRUE(done);
  EXPECT_TRUE(report->holder);
  EXPECT_EQ(report->changed_meanwhile, 3u);
  EXPECT_EQ(report->fault_count(), 1u);
  EXPECT_EQ(report->faults[static_cast<size_t>(DiskFault::kPayload)].places,
            (std::vector<std::string>{"rank 0 slot 4"}));
}

TEST_F(VerifyCommand, WhatWasSeenOnceInATierInUseIsNoFaultWhenItIsStopped) {
  fill();
  const auto folder = open();
  flip_bit(file(1, "metadata"), disk_record_offset(SlotId(2)) + 17);
  std::atomic<bool> stop{false};
  DiskCheckContext context{.clock = HurriedClock::get(), .stop = &stop, .progress = {}};
  context.progress = [&](uint64_t, uint64_t) { stop = true; };
  const auto report = check_disk({options_.path, "main", false}, context);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->unsettled, 1u);
  EXPECT_EQ(report->fault_count(), 0u);
}

}  // namespace
}  // namespace tiercel
