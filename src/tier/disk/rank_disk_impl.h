// SPDX-License-Identifier: Apache-2.0
//
// RankDisk as it is: operations, and what they wait for together.
//
// A put goes: payload written → waits for its round → record written → ended. Rounds are what makes
// puts cheap: all whose payloads have been written share a sync of the data file, the writes of
// their records and a sync of the metadata file, as far as the policy wants them; those that come
// meanwhile make up the next round. There is one round at a time. A put that fails goes through a
// round as well, to have its slot's record emptied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tier/disk/disk_header_writer.h"
#include "tier/disk/disk_record_writer.h"
#include "tier/disk/disk_request_queue.h"
#include "tier/disk/disk_syncer.h"
#include "tier/disk/disk_transfer.h"
#include "tier/disk/rank_disk.h"
#include "tier/disk/rank_disk_protections.h"

namespace tiercel {

// An operation that was taken and has not been polled.
struct DiskOperation {
  enum class Kind : uint8_t { kGet, kPut, kClear };
  Kind kind = Kind::kGet;
  uint64_t token = 0;
  Code code = Code::kOk;
  std::optional<Breaker::Ticket> ticket;  // none once its outcome is known
  // Since when it has been with the disk without an answer; nothing: it is not with the disk.
  std::optional<TimePoint> asked;
  DiskTransfer transfer;  // of the slot; get and put
  // Get.
  SlotId slot;
  GroupId group;
  std::span<const std::byte> memory;
  // Put.
  DiskRecord record;
  uint64_t data_sync_failures = 0;  // before its payload was written
  // Clear: records below are invalid.
  uint64_t first_sequence = 0;
};

class RankDiskImpl final : public RankDisk {
 public:
  RankDiskImpl(const RankDiskProtections& protections, RankDiskOptions options,
               const SlotGeometry& geometry, const DiskHeader& header, uint64_t next_sequence,
               std::unique_ptr<DiskIo> io, const Clock& clock,
               std::function<int64_t()> unix_time_s);

  Code start(const DiskGet& get) override;
  Code start(const DiskPut& put) override;
  Code start_clear(uint64_t token) override;
  void flush() override;
  size_t poll(std::span<DiskDone> out) override;
  size_t in_flight() const override { return operations_.size() - free_.size(); }
  int completion_fd() const override { return io_->completion_fd(); }
  TimePoint next_due() const override;
  StoreHealth health() const override;
  RankDiskStats stats() const override { return stats_; }
  std::string describe() const override { return io_->describe(); }
  Status close(TimePoint deadline) override;

 private:
  enum class RoundStage : uint8_t { kNone, kSyncData, kWriteRecords, kSyncMetadata };
  enum class HeaderStage : uint8_t { kNone, kSyncBefore, kWrite, kSync };

  // A sync of both files that no operation waits for: by interval, and at the end.
  struct FullSync {
    bool is_running = false;
    std::array<uint64_t, kDiskFileCount> syncs{};  // what it waits for
    uint64_t failures_before = 0;                  // of both files
    std::optional<Breaker::Ticket> ticket;
    std::optional<TimePoint> asked;
    Code code = Code::kOk;  // how the last one has ended
  };

  DiskSyncer& syncer(DiskFile file) { return syncers_[static_cast<size_t>(file)]; }
  const DiskSyncer& syncer(DiskFile file) const { return syncers_[static_cast<size_t>(file)]; }

  // rank_disk.cc
  std::optional<uint64_t> place_of(SlotId slot, GroupId group,
                                   std::span<const std::byte> memory) const;
  uint64_t payload_bytes(GroupId group) const;
  std::span<const std::byte, kFrameBytes> frame_in(std::span<const std::byte> slot,
                                                   GroupId group) const;
  // The index of a new operation, or why there is none.
  Code take(DiskOperation::Kind kind, uint64_t token, uint32_t* index);
  bool holds_what_its_record_says(const DiskOperation& operation) const;
  void begin_transfer(uint32_t index, DiskIoKind kind, uint64_t offset,
                      std::span<std::byte> memory);
  bool step();
  size_t hand_over(TimePoint now);
  void take_completion(const DiskIoCompletion& completion);
  void take_slot_answer(uint32_t index, int64_t result);
  void note_outcome(DiskOperation& operation);
  void end(uint32_t index, Code code);
  void note_asked(std::optional<TimePoint>* asked, TimePoint now);
  void check_stuck(TimePoint now);
  size_t under_way() const { return in_flight() - ended_.size(); }
  Status wait_for_io(TimePoint deadline);

  // rank_disk_rounds.cc
  void advance(TimePoint now);
  void advance_round(TimePoint now);
  void begin_round(TimePoint now);
  void drop_unsafe_payloads();
  void begin_records(TimePoint now);
  void end_records(TimePoint now);
  void end_round();
  // The put fails, and its slot's record is emptied before it ends.
  void fail_put(uint32_t index, Code code);
  void advance_clears(TimePoint now);
  void begin_clears(TimePoint now);
  void write_header(TimePoint now);
  void take_header_answer(int64_t result);
  void note_header_written(TimePoint now);
  void end_clears(Code code);
  void advance_full_sync(TimePoint now);
  void begin_full_sync(TimePoint now);
  void note_asked(std::span<const uint32_t> indexes, TimePoint now);

  const RankDiskProtections protections_;
  RankDiskOptions options_;  // constant after construction; its checksums are below
  const SlotGeometry geometry_;
  const Clock& clock_;
  const std::function<int64_t()> unix_time_s_;
  uint64_t next_sequence_;
  Breaker breaker_;
  RankDiskStats stats_;
  bool is_closed_ = false;

  // All of these have their memory from the start. Lists hold indexes into operations_.
  std::vector<DiskOperation> operations_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> ended_;        // oldest first
  std::vector<bool> slots_under_way_;  // [slot]: of puts
  // [slot], of the last put or the record that was found; nothing is known of other slots.
  std::vector<uint32_t> payload_checksums_;
  std::vector<bool> has_checksum_;
  std::vector<uint32_t> waiting_puts_;  // for the next round
  std::vector<uint32_t> round_;         // in the order of their slots
  std::vector<uint32_t> waiting_clears_;
  std::vector<uint32_t> clears_;  // that the present header write is for
  DiskRequestQueue queue_;
  size_t with_io_ = 0;  // requests

  RoundStage round_stage_ = RoundStage::kNone;
  uint64_t round_sync_ = 0;           // what it waits for
  uint64_t round_sync_failures_ = 0;  // of the stage's file, before the stage
  std::array<DiskSyncer, kDiskFileCount> syncers_;
  DiskRecordWriter records_;

  DiskHeaderWriter header_;
  HeaderStage header_stage_ = HeaderStage::kNone;
  // A process that was killed may have left the header that counts in the system's memory only. The
  // other one must not be written over before it is on the disk.
  bool header_is_durable_ = false;
  // A clear is written over both pages, one after the other: the one that is left when the other is
  // damaged must not know of less.
  bool is_second_header_ = false;
  uint64_t header_sync_ = 0;
  uint64_t header_sync_failures_ = 0;

  FullSync full_sync_;
  std::optional<TimePoint> full_sync_due_;
  // No operation is stuck before; may be too early, never too late.
  TimePoint stuck_check_at_ = kNoDeadline;

  // Last, so that it goes first: what it may still touch is above.
  std::unique_ptr<DiskIo> io_;
};

}  // namespace tiercel
