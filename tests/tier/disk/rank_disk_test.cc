// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/rank_disk.h"

#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

using testing::key_of_block;
using testing::PageBuffer;
using testing::RankDiskRig;

constexpr DiskSync kPolicies[] = {DiskSync::kNone, DiskSync::kData, DiskSync::kInterval};

TEST(RankDisk, WhatWasPutIsGotBack) {
  for (const DiskSync sync : kPolicies) {
    RankDiskRig rig;
    rig.options.sync = sync;
    rig.keeps_memory = true;
    rig.open();
    for (uint32_t slot = 0; slot < RankDiskRig::kSlots; ++slot) {
      ASSERT_EQ(rig.put(100 + slot, slot), Code::kOk);
    }
    rig.settle();
    for (uint32_t slot = 0; slot < RankDiskRig::kSlots; ++slot) {
      EXPECT_EQ(rig.code_of(100 + slot), Code::kOk);
      ASSERT_EQ(rig.get(200 + slot, slot), Code::kOk);
    }
    rig.settle();
    for (uint32_t slot = 0; slot < RankDiskRig::kSlots; ++slot) {
      EXPECT_EQ(rig.code_of(200 + slot), Code::kOk);
      EXPECT_TRUE(testing::same_bytes(rig.memory_of(200 + slot), rig.memory_of(100 + slot)));
    }
    EXPECT_EQ(rig.rank_disk->in_flight(), 0u);
    EXPECT_EQ(rig.rank_disk->stats().puts, RankDiskRig::kSlots);
    EXPECT_EQ(rig.rank_disk->stats().gets, RankDiskRig::kSlots);
    EXPECT_EQ(rig.rank_disk->stats().failed, 0u);
  }
}

TEST(RankDisk, ARecordSaysWhatStandsInTheSlot) {
  RankDiskRig rig;
  rig.open();
  ASSERT_EQ(rig.put(7, 3, GroupId(0), key_of_block(6)), Code::kOk);
  rig.settle();
  rig.unix_time_s += 5;
  ASSERT_EQ(rig.put(8, 17, GroupId(1)), Code::kOk);
  rig.settle();
  const auto records = rig.records();
  ASSERT_EQ(records.size(), 2u);
  const DiskRecord& record = records.at(3);
  Frame frame = decode_frame(slot_frame(rig.slot_bytes(3), RankDiskRig::kPayloadBytes)).value();
  EXPECT_EQ(record.slot, SlotId(3));
  EXPECT_EQ(record.group, frame.group);
  EXPECT_EQ(record.slice, frame.slice);
  EXPECT_EQ(record.codec, frame.codec);
  EXPECT_EQ(record.token_count, frame.token_count);
  EXPECT_EQ(record.stored_bytes, RankDiskRig::kPayloadBytes);
  EXPECT_EQ(record.raw_bytes, frame.raw_bytes);
  EXPECT_EQ(record.payload_checksum, frame.checksum);
  EXPECT_EQ(record.name_space, frame.name_space);
  EXPECT_EQ(record.key, key_of_block(7));
  EXPECT_EQ(record.parent, key_of_block(6));
  EXPECT_EQ(record.written_unix_s, 1'800'000'000);
  EXPECT_EQ(records.at(17).group, GroupId(1));
  EXPECT_EQ(records.at(17).parent, std::nullopt);
  EXPECT_EQ(records.at(17).written_unix_s, 1'800'000'005);
  EXPECT_GT(records.at(17).sequence, record.sequence);
}

TEST(RankDisk, ARecordIsWrittenAfterItsPayload) {
  RankDiskRig rig;
  rig.open();
  rig.faulty->add({.action = testing::DiskFaultAction::kHang, .file = DiskFile::kData});
  ASSERT_EQ(rig.put(1, 0), Code::kOk);
  ASSERT_EQ(rig.put(2, 1), Code::kOk);
  rig.settle();
  EXPECT_EQ(rig.records().size(), 1u);
  EXPECT_EQ(rig.records().count(0), 0u) << "its payload is still on the way";
  rig.faulty->release();
  rig.settle();
  EXPECT_EQ(rig.block_in(0), 1u);
  EXPECT_EQ(rig.block_in(1), 2u);
}

TEST(RankDisk, PayloadsOfOneFlushGoDownTogetherAndNeighboursShareAWrite) {
  RankDiskRig rig;
  rig.open();
  for (const uint32_t slot : {4u, 1u, 2u, 3u, 9u, 20u, 21u}) {
    ASSERT_EQ(rig.put(100 + slot, slot), Code::kOk);
  }
  EXPECT_TRUE(rig.batches.empty()) << "nothing goes before flush()";
  rig.settle();
  ASSERT_EQ(rig.batches.size(), 2u);
  EXPECT_EQ(rig.batches[0].size(), 7u);
  ASSERT_EQ(rig.batches[1].size(), 3u);
  EXPECT_EQ(rig.batches[1][0].offset, disk_record_offset(SlotId(1)));
  EXPECT_EQ(rig.batches[1][0].memory.size(), 4 * kDiskRecordBytes);
  EXPECT_EQ(rig.batches[1][1].memory.size(), kDiskRecordBytes);
  EXPECT_EQ(rig.batches[1][2].memory.size(), 2 * kDiskRecordBytes);
  for (const uint32_t slot : {4u, 1u, 2u, 3u, 9u, 20u, 21u}) {
    EXPECT_EQ(rig.block_in(slot), 100 + slot);
  }
}

TEST(RankDisk, PutsThatAreSyncedShareTheSyncs) {
  RankDiskRig rig;
  rig.options.sync = DiskSync::kData;
  rig.open();
  for (uint32_t slot = 0; slot < 16; ++slot) ASSERT_EQ(rig.put(100 + slot, slot), Code::kOk);
  rig.settle();
  ASSERT_EQ(rig.batches.size(), 4u);
  EXPECT_EQ(rig.batches[0].size(), 16u);
  ASSERT_EQ(rig.batches[1].size(), 1u);
  EXPECT_EQ(rig.batches[1][0].kind, DiskIoKind::kSync);
  EXPECT_EQ(rig.batches[1][0].file, DiskFile::kData);
  ASSERT_EQ(rig.batches[2].size(), 1u);
  EXPECT_EQ(rig.batches[2][0].kind, DiskIoKind::kWrite);
  ASSERT_EQ(rig.batches[3].size(), 1u);
  EXPECT_EQ(rig.batches[3][0].kind, DiskIoKind::kSync);
  EXPECT_EQ(rig.batches[3][0].file, DiskFile::kMetadata);
  EXPECT_EQ(rig.rank_disk->stats().syncs, 2u);
}

TEST(RankDisk, WhatComesWhileARoundIsUnderWayMakesUpTheNext) {
  RankDiskRig rig;
  rig.options.sync = DiskSync::kData;
  rig.open();
  rig.faulty->add({.action = testing::DiskFaultAction::kHang, .kind = DiskIoKind::kSync});
  ASSERT_EQ(rig.put(1, 0), Code::kOk);
  rig.settle();
  for (uint32_t slot = 1; slot < 9; ++slot) ASSERT_EQ(rig.put(1 + slot, slot), Code::kOk);
  rig.settle();
  EXPECT_TRUE(rig.ended.empty());
  rig.faulty->release();
  rig.settle();
  EXPECT_EQ(rig.ended.size(), 9u);
  EXPECT_EQ(rig.request_count(DiskIoKind::kSync, DiskFile::kData), 2u);
  EXPECT_EQ(rig.request_count(DiskIoKind::kSync, DiskFile::kMetadata), 2u);
}

TEST(RankDisk, ADiskIoThatTakesFewRequestsAtOnceIsEnough) {
  RankDiskRig rig;
  rig.options.sync = DiskSync::kData;
  rig.queue_depth = 1;
  rig.open();
  for (uint32_t slot = 0; slot < RankDiskRig::kSlots; slot += 2) {
    ASSERT_EQ(rig.put(100 + slot, slot), Code::kOk);
  }
  rig.settle();
  for (uint32_t slot = 0; slot < RankDiskRig::kSlots; slot += 2) {
    EXPECT_EQ(rig.code_of(100 + slot), Code::kOk);
  }
}

TEST(RankDisk, RefusesWhatMakesNoSense) {
  RankDiskRig rig;
  rig.open();
  RankDisk& disk = *rig.rank_disk;
  EXPECT_EQ(rig.get(1, 32), Code::kInvalid);
  EXPECT_EQ(rig.get(1, UINT32_MAX), Code::kInvalid);
  PageBuffer buffer(rig.stride());
  const std::span<std::byte> memory = buffer.span();
  EXPECT_EQ(disk.start(DiskGet{1, SlotId(0), GroupId(2), memory}), Code::kInvalid);
  EXPECT_EQ(disk.start(DiskGet{1, SlotId(0), GroupId(1), memory}), Code::kInvalid) << "longer";
  EXPECT_EQ(disk.start(DiskGet{1, SlotId(0), GroupId(0), memory.first(4096)}), Code::kInvalid);
  PageBuffer longer(rig.stride() + 4096);
  EXPECT_EQ(disk.start(DiskGet{1, SlotId(0), GroupId(0), longer.span().subspan(8, rig.stride())}),
            Code::kInvalid)
      << "not aligned";
  EXPECT_EQ(disk.start(DiskPut{1, SlotId(0), GroupId(0), memory, {}}), Code::kInvalid)
      << "no frame";
  testing::fill_slot(1, GroupId(1), RankDiskRig::kPayloadBytes, memory);
  EXPECT_EQ(disk.start(DiskPut{1, SlotId(0), GroupId(0), memory, {}}), Code::kInvalid)
      << "a frame of another group";
  EXPECT_EQ(disk.in_flight(), 0u);
}

TEST(RankDisk, TakesSoManyOperationsAtOnceAndNoMore) {
  RankDiskRig rig;
  rig.options.operations_max = 3;
  rig.open();
  EXPECT_EQ(rig.put(1, 1), Code::kOk);
  EXPECT_EQ(rig.get(2, 2), Code::kOk);
  EXPECT_EQ(rig.rank_disk->start_clear(3), Code::kOk);
  EXPECT_EQ(rig.put(4, 4), Code::kBusy);
  EXPECT_EQ(rig.get(4, 4), Code::kBusy);
  EXPECT_EQ(rig.rank_disk->start_clear(4), Code::kBusy);
  rig.rank_disk->flush();
  for (int i = 0; i < 20; ++i) rig.rank_disk->poll({});
  EXPECT_EQ(rig.put(4, 4), Code::kBusy) << "what has ended and was not polled counts";
  EXPECT_LE(rig.rank_disk->next_due(), rig.clock.now()) << "there is something to poll";
  EXPECT_EQ(rig.poll(), 3u);
  EXPECT_EQ(rig.put(4, 4), Code::kOk);
  rig.settle();
  EXPECT_EQ(rig.code_of(4), Code::kOk);
}

TEST(RankDisk, TwoPutsIntoOneSlotAtOnceAreRefused) {
  RankDiskRig rig;
  rig.open();
  EXPECT_EQ(rig.put(1, 5), Code::kOk);
  EXPECT_EQ(rig.put(2, 5), Code::kBusy);
  rig.settle();
  EXPECT_EQ(rig.put_now(2, 5), Code::kOk);
  EXPECT_EQ(rig.block_in(5), 2u);
}

TEST(RankDisk, AFileThatEndsBeforeTheSlotIsCorrupt) {
  RankDiskRig rig;
  rig.disk.resize(DiskFile::kData,
                  disk_slot_offset(rig.geometry->offset(SlotId(9), GroupId(0), 0).value()) + 4096);
  rig.open();
  EXPECT_EQ(rig.get(1, 8), Code::kOk);
  EXPECT_EQ(rig.get(2, 9), Code::kOk);
  EXPECT_EQ(rig.get(3, 10), Code::kOk);
  rig.settle();
  EXPECT_EQ(rig.code_of(1), Code::kOk);
  EXPECT_EQ(rig.code_of(2), Code::kCorrupt) << "ends within";
  EXPECT_EQ(rig.code_of(3), Code::kCorrupt) << "ends before";
}

// New weights under the same names, a clear, and a power cut that keeps the new record and loses
// the new payload: what stands there then agrees with itself, but is the old one.
TEST(RankDisk, AnOlderPayloadUnderANewerRecordIsCorrupt) {
  RankDiskRig rig;
  rig.open();
  ASSERT_EQ(rig.put_now(1, 3), Code::kOk);
  PageBuffer older(rig.stride());
  testing::fill_slot(1, GroupId(0), RankDiskRig::kPayloadBytes, older.span());
  const std::span<std::byte> payload = older.span().first(RankDiskRig::kPayloadBytes);
  testing::fill_payload(77, payload);
  Frame frame = testing::frame_of_block(1, GroupId(0), RankDiskRig::kPayloadBytes);
  frame.checksum = crc32c(payload);
  encode_frame(frame, slot_frame(older.span(), RankDiskRig::kPayloadBytes));
  const uint64_t place = disk_slot_offset(rig.geometry->offset(SlotId(3), GroupId(0), 0).value());
  rig.disk.put(DiskFile::kData, place, older.span());

  const auto get = [&](uint64_t token) {
    EXPECT_EQ(rig.get(token, 3), Code::kOk);
    rig.settle();
    return rig.code_of(token);
  };
  EXPECT_EQ(get(10), Code::kCorrupt) << "against what this process has put";
  rig.stop();
  rig.options.payload_checksums.resize(rig.geometry->slot_count_max());
  for (const auto& [slot, record] : rig.all_records()) {
    rig.options.payload_checksums[slot] = record.payload_checksum;
  }
  rig.open();
  EXPECT_EQ(get(11), Code::kCorrupt) << "against what the record says";
  rig.stop();
  rig.protections.compare_with_record = false;
  rig.open();
  EXPECT_EQ(get(12), Code::kOk) << "only the comparison sees it";
}

TEST(RankDisk, OptionsOutOfRangeAreRefusedByName) {
  RankDiskRig rig;
  const auto message = [&](const RankDiskOptions& options) -> std::string {
    const auto made = RankDisk::create(options, *rig.geometry, rig.read_header().value(), 1,
                                       rig.disk.open({}), rig.clock);
    return made ? "" : made.error().message();
  };
  EXPECT_EQ(message(rig.options), "");
  RankDiskOptions options;
  options.operations_max = 0;
  EXPECT_EQ(message(options), "rank disk: operations_max is 0; allowed: 1 to 4096");
  options.operations_max = 4097;
  EXPECT_EQ(message(options), "rank disk: operations_max is 4097; allowed: 1 to 4096");
  options = {};
  options.rank = 1;
  EXPECT_EQ(message(options), "rank disk: rank is 1; allowed: 0 to 0");
  options = {};
  options.stuck_after = Duration(0);
  EXPECT_NE(message(options).find("stuck_after"), std::string::npos);
  options = {};
  options.sync = DiskSync::kInterval;
  options.sync_interval = Duration(0);
  EXPECT_NE(message(options).find("sync_interval"), std::string::npos);
  options = {};
  options.breaker.backoff_max = std::chrono::milliseconds(1);
  EXPECT_NE(message(options).find("breaker.backoff_max"), std::string::npos);
}

TEST(RankDisk, ClearMakesOlderRecordsInvalidAndLeavesLaterOnes) {
  RankDiskRig rig;
  rig.open();
  EXPECT_EQ(rig.put_now(1, 1), Code::kOk);
  EXPECT_EQ(rig.put(2, 2), Code::kOk);
  EXPECT_EQ(rig.rank_disk->start_clear(10), Code::kOk);
  EXPECT_EQ(rig.put(3, 3), Code::kOk);
  EXPECT_EQ(rig.rank_disk->start_clear(11), Code::kOk);
  EXPECT_EQ(rig.put(4, 4), Code::kOk);
  rig.settle();
  for (const uint64_t token : {2, 10, 3, 11, 4}) EXPECT_EQ(rig.code_of(token), Code::kOk);
  EXPECT_EQ(rig.records().size(), 1u);
  EXPECT_EQ(rig.block_in(4), 4u);
  // Once over each page, so that damage to one does not bring back what was cleared.
  EXPECT_EQ(rig.read_header()->generation, 2u) << "clears that wait together share their headers";
  rig.stop();
  rig.open();
  EXPECT_EQ(rig.rank_disk->start_clear(12), Code::kOk);
  rig.settle();
  EXPECT_EQ(rig.code_of(12), Code::kOk);
  EXPECT_TRUE(rig.records().empty());
  EXPECT_EQ(rig.put_now(5, 4), Code::kOk);
  EXPECT_EQ(rig.block_in(4), 5u);
}

TEST(RankDisk, SyncsByIntervalWhileThereIsSomethingToSync) {
  RankDiskRig rig;
  rig.options.sync = DiskSync::kInterval;
  rig.options.sync_interval = std::chrono::seconds(3);
  rig.open();
  rig.clock.advance(std::chrono::seconds(10));
  rig.settle();
  rig.clock.advance(std::chrono::seconds(10));
  rig.settle();
  const uint64_t before = rig.rank_disk->stats().syncs;
  EXPECT_EQ(before, 2u) << "what an earlier process has left unsynced";
  EXPECT_EQ(rig.rank_disk->next_due(), kNoDeadline);
  EXPECT_EQ(rig.put_now(1, 1), Code::kOk) << "waits for no sync";
  EXPECT_EQ(rig.rank_disk->stats().syncs, before);
  EXPECT_EQ(rig.rank_disk->next_due(), rig.clock.now() + std::chrono::seconds(3));
  rig.clock.advance(std::chrono::seconds(3));
  rig.settle();
  EXPECT_EQ(rig.rank_disk->stats().syncs, before + 2);
  EXPECT_EQ(rig.disk.unsynced_writes(DiskFile::kData), 0u);
  EXPECT_EQ(rig.disk.unsynced_writes(DiskFile::kMetadata), 0u);
  rig.clock.advance(std::chrono::seconds(30));
  rig.settle();
  EXPECT_EQ(rig.rank_disk->stats().syncs, before + 2) << "there was nothing to sync";
}

TEST(RankDisk, PoliciesHaveNames) {
  EXPECT_EQ(to_string(DiskSync::kNone), "none");
  EXPECT_EQ(to_string(DiskSync::kData), "data");
  EXPECT_EQ(to_string(DiskSync::kInterval), "interval");
}

TEST(RankDisk, CloseCarriesOutWhatWasTakenAndSyncs) {
  for (const DiskSync sync : kPolicies) {
    RankDiskRig rig;
    rig.options.sync = sync;
    rig.open();
    EXPECT_EQ(rig.put(1, 1), Code::kOk);
    EXPECT_EQ(rig.get(2, 2), Code::kOk);
    EXPECT_TRUE(rig.rank_disk->close(kNoDeadline));
    EXPECT_EQ(rig.put(3, 3), Code::kUnavailable);
    EXPECT_EQ(rig.get(3, 3), Code::kUnavailable);
    EXPECT_EQ(rig.rank_disk->start_clear(3), Code::kUnavailable);
    EXPECT_EQ(rig.poll(), 2u);
    EXPECT_EQ(rig.code_of(1), Code::kOk);
    EXPECT_EQ(rig.code_of(2), Code::kOk);
    const bool is_synced = rig.disk.unsynced_writes(DiskFile::kData) == 0 &&
                           rig.disk.unsynced_writes(DiskFile::kMetadata) == 0;
    EXPECT_EQ(is_synced, sync != DiskSync::kNone);
    EXPECT_TRUE(rig.rank_disk->close(kNoDeadline)) << "twice is as good as once";
  }
}

TEST(RankDisk, CloseSaysWhatStillHangsAndMayBeCalledAgain) {
  RankDiskRig rig;
  rig.open();
  rig.faulty->add({.action = testing::DiskFaultAction::kHang});
  EXPECT_EQ(rig.get(1, 1), Code::kOk);
  const Status closed = rig.rank_disk->close(rig.clock.now() + std::chrono::seconds(1));
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.code(), Code::kTimeout);
  EXPECT_NE(closed.error().message().find("1 operations and 1 requests"), std::string::npos)
      << closed.error().message();
  rig.faulty->release();
  EXPECT_TRUE(rig.rank_disk->close(rig.clock.now() + std::chrono::seconds(1)));
  EXPECT_EQ(rig.poll(), 1u);
}

TEST(RankDisk, ALastSyncThatFailsIsToldByClose) {
  RankDiskRig rig;
  rig.options.sync = DiskSync::kInterval;
  rig.open();
  EXPECT_EQ(rig.put_now(1, 1), Code::kOk);
  rig.faulty->add({.action = testing::DiskFaultAction::kError, .kind = DiskIoKind::kSync});
  EXPECT_EQ(rig.rank_disk->close(kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(rig.rank_disk->stats().failed_syncs, 1u);
}

// A rig whose slots have payloads of this length.
void resize(RankDiskRig& rig, uint64_t payload_bytes) {
  rig.geometry.emplace(SlotGeometry::for_blocks({{payload_bytes}}, 16, 1).value());
  rig.disk.resize(DiskFile::kData, kDiskHeaderBytes + rig.geometry->tier_bytes(0));
}

TEST(RankDisk, WritesLittleMoreThanThePayload) {
  for (const uint64_t payload_bytes : {uint64_t{64} << 10, uint64_t{1} << 20}) {
    RankDiskRig rig;
    resize(rig, payload_bytes);
    rig.open();
    for (uint32_t slot = 0; slot < 16; ++slot) ASSERT_EQ(rig.put(100 + slot, slot), Code::kOk);
    rig.settle();
    const RankDiskStats stats = rig.rank_disk->stats();
    EXPECT_EQ(stats.payload_bytes, 16 * payload_bytes);
    EXPECT_EQ(stats.written_bytes, 16 * (slot_stride_bytes(payload_bytes) + kDiskRecordBytes));
  }
}

TEST(RankDisk, NeedsFewRequestsForAPut) {
  for (const DiskSync sync : {DiskSync::kNone, DiskSync::kData}) {
    RankDiskRig rig;
    rig.options.sync = sync;
    rig.open();
    const uint64_t syncs = sync == DiskSync::kData ? 2 : 0;
    EXPECT_EQ(rig.put_now(1, 0), Code::kOk);
    EXPECT_EQ(rig.rank_disk->stats().requests, 2 + syncs) << "a put alone";
    for (uint32_t slot = 0; slot < 16; ++slot) ASSERT_EQ(rig.put(100 + slot, slot), Code::kOk);
    rig.settle();
    EXPECT_EQ(rig.rank_disk->stats().requests, 2 + syncs + 17 + syncs) << "16 neighbours";
  }
}

}  // namespace
}  // namespace tiercel
