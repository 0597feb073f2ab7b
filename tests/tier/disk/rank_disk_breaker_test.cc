// SPDX-License-Identifier: Apache-2.0
//
// A disk that fails or does not answer is left alone, and tried again.
#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::DiskFaultAction;
using testing::RankDiskRig;

class RankDiskBreaker : public ::testing::Test {
 protected:
  RankDiskBreaker() {
    rig_.options.breaker.failures = 3;
    rig_.options.breaker.backoff = seconds(1);
    rig_.options.breaker.backoff_max = seconds(4);
    rig_.options.stuck_after = seconds(2);
  }

  void hang(uint64_t count = 1) {
    rig_.faulty->add({.action = DiskFaultAction::kHang, .count = count});
  }
  void fail(uint64_t count, int error = EIO) {
    rig_.faulty->add({.error = error, .kind = DiskIoKind::kRead, .count = count});
  }
  Code get_now(uint64_t token, uint32_t slot = 1) {
    const Code code = rig_.get(token, slot);
    if (code != Code::kOk) return code;
    rig_.settle();
    return rig_.code_of(token);
  }
  StoreCondition condition() const { return rig_.rank_disk->health().condition; }

  RankDiskRig rig_;
};

TEST_F(RankDiskBreaker, OpensAfterFailuresInARowAndAProbeClosesIt) {
  rig_.open();
  fail(3);
  EXPECT_EQ(condition(), StoreCondition::kUp);
  for (uint64_t token = 1; token <= 3; ++token) EXPECT_EQ(get_now(token), Code::kUnavailable);
  EXPECT_EQ(condition(), StoreCondition::kOpen);
  EXPECT_EQ(rig_.rank_disk->health().cause, Code::kUnavailable);
  EXPECT_EQ(rig_.rank_disk->health().opened, 1u);
  const uint64_t requests = rig_.rank_disk->stats().requests;
  EXPECT_EQ(get_now(4), Code::kUnavailable);
  EXPECT_EQ(rig_.put(5, 1), Code::kUnavailable);
  EXPECT_EQ(rig_.rank_disk->start_clear(6), Code::kUnavailable);
  EXPECT_EQ(rig_.rank_disk->stats().requests, requests) << "refused without asking the disk";
  EXPECT_EQ(rig_.rank_disk->health().refused, 3u);
  EXPECT_EQ(rig_.rank_disk->next_due(), rig_.clock.now() + seconds(1)) << "it may be probed then";
  rig_.clock.advance(seconds(1));
  EXPECT_EQ(condition(), StoreCondition::kProbing);
  EXPECT_EQ(rig_.put(7, 1), Code::kOk);
  EXPECT_EQ(rig_.get(8, 2), Code::kUnavailable) << "one probe at a time";
  rig_.settle();
  EXPECT_EQ(rig_.code_of(7), Code::kOk);
  EXPECT_EQ(condition(), StoreCondition::kUp);
  EXPECT_EQ(rig_.rank_disk->health().cause, Code::kOk);
  EXPECT_EQ(get_now(9), Code::kOk);
}

TEST_F(RankDiskBreaker, AFailedProbeDoublesTheTimeItIsLeftAlone) {
  rig_.open();
  fail(4);
  for (uint64_t token = 1; token <= 3; ++token) EXPECT_EQ(get_now(token), Code::kUnavailable);
  rig_.clock.advance(seconds(1));
  EXPECT_EQ(get_now(4), Code::kUnavailable);
  EXPECT_EQ(condition(), StoreCondition::kOpen);
  rig_.clock.advance(milliseconds(1999));
  EXPECT_EQ(condition(), StoreCondition::kOpen);
  rig_.clock.advance(milliseconds(1));
  EXPECT_EQ(get_now(5), Code::kOk);
  EXPECT_EQ(condition(), StoreCondition::kUp);
}

TEST_F(RankDiskBreaker, AFullDiskOrAShortFileIsNoFailureOfTheDisk) {
  rig_.disk.resize(DiskFile::kData, disk_slot_offset(0) + 2 * rig_.stride());
  rig_.open();
  rig_.faulty->add(
      {.error = ENOSPC, .kind = DiskIoKind::kWrite, .count = testing::kDiskFaultForEver});
  for (uint64_t token = 1; token <= 10; ++token) {
    EXPECT_EQ(rig_.put_now(token, 1), Code::kNoSpace);
    EXPECT_EQ(get_now(100 + token, 5), Code::kCorrupt);
  }
  EXPECT_EQ(condition(), StoreCondition::kUp);
}

TEST_F(RankDiskBreaker, APutThatFailsInAnyOfItsStepsCounts) {
  rig_.options.sync = DiskSync::kData;
  rig_.options.breaker.failures = 1;
  const std::pair<DiskIoKind, DiskFile> steps[] = {{DiskIoKind::kWrite, DiskFile::kData},
                                                   {DiskIoKind::kSync, DiskFile::kData},
                                                   {DiskIoKind::kWrite, DiskFile::kMetadata},
                                                   {DiskIoKind::kSync, DiskFile::kMetadata}};
  uint64_t id = 0;
  rig_.open();
  for (const auto& [kind, file] : steps) {
    rig_.faulty->add({.kind = kind, .file = file});
    EXPECT_EQ(rig_.put_now(++id, 1), Code::kUnavailable);
    EXPECT_EQ(condition(), StoreCondition::kOpen);
    rig_.clock.advance(seconds(4));
    EXPECT_EQ(rig_.put_now(++id, 1), Code::kOk);
    EXPECT_EQ(condition(), StoreCondition::kUp);
  }
}

TEST_F(RankDiskBreaker, NoAnswerOpensItAndALateOneIsDeliveredOnce) {
  rig_.open();
  EXPECT_EQ(rig_.put_now(1, 1), Code::kOk);
  hang();
  rig_.keeps_memory = true;
  EXPECT_EQ(rig_.get(2, 1), Code::kOk);
  rig_.settle();
  EXPECT_EQ(rig_.rank_disk->next_due(), rig_.clock.now() + seconds(2));
  rig_.clock.advance(milliseconds(1999));
  rig_.settle();
  EXPECT_EQ(condition(), StoreCondition::kUp);
  EXPECT_EQ(get_now(3), Code::kOk) << "others are answered";
  rig_.clock.advance(milliseconds(1));
  rig_.settle();
  EXPECT_EQ(condition(), StoreCondition::kOpen);
  EXPECT_EQ(rig_.rank_disk->health().cause, Code::kTimeout);
  EXPECT_EQ(get_now(4), Code::kUnavailable);
  EXPECT_EQ(rig_.rank_disk->in_flight(), 1u) << "the disk still has its memory";
  rig_.faulty->release();
  rig_.settle();
  EXPECT_EQ(rig_.code_of(2), Code::kOk);
  testing::PageBuffer expected(rig_.stride());
  testing::fill_slot(1, GroupId(0), RankDiskRig::kPayloadBytes, expected.span());
  EXPECT_TRUE(testing::same_bytes(expected.span(), rig_.memory_of(2)));
  EXPECT_EQ(condition(), StoreCondition::kOpen) << "a late answer is no probe";
  EXPECT_EQ(rig_.rank_disk->in_flight(), 0u);
  rig_.clock.advance(seconds(1));
  EXPECT_EQ(get_now(5), Code::kOk);
  EXPECT_EQ(condition(), StoreCondition::kUp);
}

TEST_F(RankDiskBreaker, NoAnswerToAnyStepOfAPutOpensIt) {
  rig_.options.sync = DiskSync::kData;
  const std::pair<DiskIoKind, DiskFile> steps[] = {{DiskIoKind::kWrite, DiskFile::kData},
                                                   {DiskIoKind::kSync, DiskFile::kData},
                                                   {DiskIoKind::kWrite, DiskFile::kMetadata},
                                                   {DiskIoKind::kSync, DiskFile::kMetadata}};
  rig_.open();
  uint64_t id = 0;
  for (const auto& [kind, file] : steps) {
    rig_.faulty->add({.action = DiskFaultAction::kHang, .kind = kind, .file = file});
    const uint64_t hanging = ++id;
    EXPECT_EQ(rig_.put(hanging, 1), Code::kOk);
    rig_.settle();
    rig_.clock.advance(seconds(2));
    rig_.settle();
    EXPECT_EQ(condition(), StoreCondition::kOpen);
    EXPECT_EQ(rig_.code_of(hanging), Code::kInternal) << "has not ended";
    rig_.faulty->release();
    rig_.settle();
    EXPECT_EQ(rig_.code_of(hanging), Code::kOk);
    EXPECT_EQ(rig_.block_in(1), hanging);
    rig_.clock.advance(seconds(4));
    EXPECT_EQ(rig_.put_now(++id, 1), Code::kOk);
    EXPECT_EQ(condition(), StoreCondition::kUp);
  }
}

TEST_F(RankDiskBreaker, NoAnswerToAClearOrASyncByIntervalOpensIt) {
  rig_.options.sync = DiskSync::kInterval;
  rig_.options.sync_interval = seconds(1);
  rig_.open();
  rig_.faulty->add({.action = DiskFaultAction::kHang, .kind = DiskIoKind::kWrite});
  EXPECT_EQ(rig_.rank_disk->start_clear(1), Code::kOk);
  rig_.settle();
  rig_.clock.advance(seconds(2));
  rig_.settle();
  EXPECT_EQ(condition(), StoreCondition::kOpen);
  rig_.faulty->release();
  rig_.settle();
  EXPECT_EQ(rig_.code_of(1), Code::kOk);
  rig_.clock.advance(seconds(1));
  EXPECT_EQ(get_now(2), Code::kOk);
  EXPECT_EQ(condition(), StoreCondition::kUp);

  EXPECT_EQ(rig_.put_now(3, 3), Code::kOk);
  rig_.faulty->add({.action = DiskFaultAction::kHang, .kind = DiskIoKind::kSync});
  rig_.clock.advance(seconds(1));
  rig_.settle();
  rig_.clock.advance(seconds(2));
  rig_.settle();
  EXPECT_EQ(condition(), StoreCondition::kOpen);
}

TEST_F(RankDiskBreaker, ASyncByIntervalThatFailsCountsAndIsTriedAgain) {
  rig_.options.sync = DiskSync::kInterval;
  rig_.options.sync_interval = seconds(1);
  rig_.options.breaker.failures = 1;
  rig_.open();
  EXPECT_EQ(rig_.rank_disk->next_due(), rig_.clock.now() + seconds(1));
  EXPECT_EQ(rig_.put_now(1, 1), Code::kOk);
  rig_.faulty->add({.kind = DiskIoKind::kSync, .file = DiskFile::kMetadata});
  rig_.clock.advance(seconds(1));
  rig_.settle();
  EXPECT_EQ(rig_.rank_disk->stats().failed_syncs, 1u);
  EXPECT_EQ(condition(), StoreCondition::kOpen);
  EXPECT_GT(rig_.disk.unsynced_writes(DiskFile::kMetadata), 0u);
  for (int i = 0; i < 3; ++i) {
    rig_.clock.advance(seconds(1));
    rig_.settle();
  }
  EXPECT_EQ(condition(), StoreCondition::kUp) << "the sync is the probe";
  EXPECT_EQ(rig_.disk.unsynced_writes(DiskFile::kMetadata), 0u);
}

TEST_F(RankDiskBreaker, ADiskThatNeverAnswersAgainIsProbedEverMoreRarely) {
  rig_.open();
  hang(testing::kDiskFaultForEver);
  EXPECT_EQ(rig_.put(1, 1), Code::kOk);
  rig_.rank_disk->flush();
  uint64_t token = 1;
  uint64_t admitted = 1;
  uint64_t refused = 0;
  for (int i = 0; i < 600; ++i) {  // a minute
    rig_.clock.advance(milliseconds(100));
    rig_.poll();
    const Code code = rig_.get(++token, 2);
    if (code == Code::kOk) ++admitted;
    if (code == Code::kUnavailable) ++refused;
    rig_.rank_disk->flush();
  }
  EXPECT_NE(condition(), StoreCondition::kUp);
  EXPECT_EQ(rig_.rank_disk->in_flight(), admitted);
  EXPECT_EQ(admitted + refused, 601u);
  EXPECT_LT(admitted, 20u + 15) << "those of the first two seconds, and a few probes";
  EXPECT_GT(admitted, 20u + 5);
  EXPECT_TRUE(rig_.ended.empty());
  const Status closed = rig_.rank_disk->close(rig_.clock.now() + seconds(1));
  EXPECT_EQ(closed.code(), Code::kTimeout);
}

// Nobody has looked for long, but the disk has answered.
TEST_F(RankDiskBreaker, AnAnswerThatWaitedToBeSeenIsNotLate) {
  rig_.options.sync = DiskSync::kData;
  rig_.open();
  ASSERT_EQ(rig_.put(1, 1), Code::kOk);
  rig_.rank_disk->flush();
  while (rig_.poll() == 0) {
    rig_.clock.advance(seconds(3));
    ASSERT_LT(rig_.rank_disk->stats().requests, 10u);
  }
  EXPECT_EQ(rig_.code_of(1), Code::kOk);
  EXPECT_EQ(condition(), StoreCondition::kUp);
  EXPECT_EQ(rig_.rank_disk->health().opened, 0u);
}

// With the protection off a disk that hangs is asked on and on.
TEST_F(RankDiskBreaker, IsWhatTheseTestsSee) {
  rig_.protections.stuck_opens = false;
  rig_.open();
  hang();
  EXPECT_EQ(rig_.get(1, 1), Code::kOk);
  rig_.settle();
  rig_.clock.advance(seconds(1000));
  rig_.settle();
  EXPECT_EQ(condition(), StoreCondition::kUp);
  rig_.faulty->release();
}

}  // namespace
}  // namespace tiercel
