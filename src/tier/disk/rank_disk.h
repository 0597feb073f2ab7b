// SPDX-License-Identifier: Apache-2.0
//
// RankDisk: the data side of one rank's disk tier: moves whole slots (payload, padding, frame)
// between memory and the data file, and keeps the records.
//
// A put has completed when the slot and its record are written (and synced, by policy): a process
// that is killed afterwards finds the block again. A get brings the bytes that stand there; who
// asked proves them by their frame. Short transfers are carried on, EINTR and EAGAIN tried again;
// every other error ends the operation.
//
// A put that fails leaves its slot without a record, if the disk lets it: what stood there before
// may be half overwritten. So the old record goes away before the put ends.
//
// A disk that fails, or that does not answer, opens a breaker: operations are then refused at once
// until a probe has come back. An operation that is with the disk completes when the disk has let
// go of its memory, however late.
//
// Ownership: owns the DiskIo. Memory of operations as in DiskIo.
// Threads:   one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/disk.h"
#include "tiercel/health.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "base/breaker.h"
#include "tier/disk/disk_format.h"
#include "tier/disk/disk_io.h"
#include "tier/slot_geometry.h"

namespace tiercel {

struct RankDiskOptions {
  uint32_t rank = 0;
  uint32_t operations_max = 64;  // puts and gets at once; 1 to 4096
  DiskSync sync = DiskSync::kNone;
  Duration sync_interval = std::chrono::seconds(1);
  // No answer to an operation for so long: the breaker opens.
  Duration stuck_after = std::chrono::seconds(2);
  BreakerOptions breaker;
  // [slot], of the records that were found at the start. A slot whose frame promises another
  // checksum holds an older payload than its record: the record has reached the disk, what it was
  // written for has not. Empty: nothing was found, only what this object puts is held against it.
  std::vector<uint32_t> payload_checksums;
};

// A slot in memory, its whole stride long; the frame stands behind its payload.
struct DiskGet {
  uint64_t token = 0;
  SlotId slot;
  GroupId group;
  std::span<std::byte> memory;
};
// `memory` holds a frame that has been checked; record fields are taken from it.
struct DiskPut {
  uint64_t token = 0;
  SlotId slot;
  GroupId group;
  std::span<std::byte> memory;
  std::optional<BlockKey> parent;
};

struct DiskDone {
  uint64_t token = 0;
  Code code = Code::kOk;  // ok; no_space; unavailable; corrupt (the file ends before the slot's
                          // end, or the slot does not hold what its record was written for)
};

// Only rise.
struct RankDiskStats {
  uint64_t gets = 0, puts = 0;  // ended
  uint64_t failed = 0;          // of these
  uint64_t read_bytes = 0;      // from the data file
  uint64_t written_bytes = 0;   // to both files: with payload_bytes the amplification
  uint64_t payload_bytes = 0;   // of puts that ended well
  uint64_t requests = 0;  // answers of the DiskIo: of reads, writes and syncs, retries included
  uint64_t syncs = 0;     // that ended well
  uint64_t failed_syncs = 0;
};

class RankDisk {
 public:
  // `geometry` and `header` as the folder has them (disk_folder.h; the header is the metadata
  // file's that counts); `next_sequence` is higher than that of any record. `unix_time_s` is the
  // wall clock, for the ages of records; nothing: the system's. kInvalid for options out of range.
  static Result<std::unique_ptr<RankDisk>> create(RankDiskOptions options,
                                                  const SlotGeometry& geometry,
                                                  const DiskHeader& header, uint64_t next_sequence,
                                                  std::unique_ptr<DiskIo> io, const Clock& clock,
                                                  std::function<int64_t()> unix_time_s = {});
  virtual ~RankDisk() = default;

  // kOk: taken, completes exactly once. kBusy: operations_max are under way or not yet polled, or a
  // put into this slot is. kUnavailable: the breaker is open, or close() was called. kInvalid: no
  // such slot, memory of another length or alignment, or no frame of this group behind the payload.
  // What is taken is handed to the disk by flush().
  virtual Code start(const DiskGet& get) = 0;
  virtual Code start(const DiskPut& put) = 0;
  // Makes the records of all puts that were started so far invalid, also after a loss of power once
  // it has completed ok, whatever the policy. Those of puts that start later stay. If it fails, the
  // records may be valid or not after a restart: try again.
  virtual Code start_clear(uint64_t token) = 0;

  // Hands over what waits, as one batch.
  virtual void flush() = 0;

  // Takes in what the disk has done, goes on with what is half done (flush included), syncs that
  // are due, and copies out what has ended; returns how many.
  virtual size_t poll(std::span<DiskDone> out) = 0;

  virtual size_t in_flight() const = 0;   // taken and not yet polled
  virtual int completion_fd() const = 0;  // readable when poll() may have something; -1: none
  // When poll() wants to be called though completion_fd() says nothing: a sync is due, an operation
  // counts as stuck, the breaker may probe. kNoDeadline if never.
  virtual TimePoint next_due() const = 0;

  // Of the breaker; `condition` kNone is never answered.
  virtual StoreHealth health() const = 0;
  virtual RankDiskStats stats() const = 0;
  virtual std::string describe() const = 0;  // of the DiskIo

  // Takes nothing more; waits for what is with the disk (poll() it afterwards) and, but for
  // DiskSync::kNone, syncs. kTimeout if something was still under way at `deadline`, or, without a
  // completion_fd(), as soon as nothing moves any more; may be called again then. kUnavailable if
  // the sync failed. The destructor waits as long as it takes: it is the DiskIo's.
  virtual Status close(TimePoint deadline) = 0;
};

}  // namespace tiercel
