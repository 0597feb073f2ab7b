// SPDX-License-Identifier: Apache-2.0
//
// RankWorker: executes the jobs of one rank. It owns nothing of the control plane's state:
// operations come in, completions go out. The same code runs in every host: a thread beside Cache,
// a process of its own, an engine's worker process, and the simulation.
//
// Framing happens here and only here: a save puts the checksum and the frame behind the payload in
// the slot; a get and a load check namespace, key, group, slice, lengths and checksum and answer
// `corrupt` if anything differs. A load that turns out corrupt has already written to its device
// block, which its request owns alone and will compute. An object of another length than the slot's
// is `corrupt` too: something else stands under our key.
//
// Ownership: host memory and copier are borrowed and outlive the worker; the store is owned.
// Without close() the destructor leaves it to the store's destructor to let go of the memory.
// Threads: one thread at a time calls everything but stats().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "tiercel/clock.h"
#include "tiercel/store.h"
#include "tiercel/transfer.h"

#include "tier/disk/rank_disk.h"
#include "tier/slot_geometry.h"
#include "transfer/device_copier.h"
#include "transfer/store_reason.h"

namespace tiercel {

struct RankWorkerOptions {
  uint32_t rank = 0;
  Slice slice;  // usually {rank, rank_count}
  Namespace name_space;
  uint64_t writer_epoch = 0;
  bool verify = true;              // check frames and checksums of what arrives
  uint32_t store_batch_max = 512;  // blocks per call into the store, and of gets and puts 64 MiB
  uint32_t disk_puts_max = 32;     // puts that are with the disk at once
};

class RankWorker {
 public:
  // `host_memory` is the rank's part of the host tier, geometry.tier_bytes(rank) long. `copier` may
  // be null (no device: load and save are `unsupported`), `store` and `disk` may be null (their
  // operations are `unavailable`). kInvalid where sizes do not agree; registers the memory with the
  // store. `host_memfd` is the memfd whose first bytes it is, or -1.
  static Result<std::unique_ptr<RankWorker>> create(
      const RankWorkerOptions& options, const SlotGeometry& geometry,
      std::span<std::byte> host_memory, DeviceCopier* copier, std::unique_ptr<Store> store,
      const Clock& clock, std::unique_ptr<RankDisk> disk = nullptr, int host_memfd = -1);
  ~RankWorker();

  // Takes operations in. Each is checked (kind, group, slot, device block, token count, reserved
  // bytes); one that does not make sense completes as `invalid`. Loads go before gets before puts
  // and saves among what waits; operations of one kind are begun in order.
  void submit(std::span<const BlockOp> ops);

  // Does a bounded piece of what waits (at most `ops_max` memory operations, one call into the
  // store per kind, what the disk takes) and whatever store and disk have completed. True if
  // anything was done or more can be done now; false if nothing waits or all that waits needs store
  // or disk first: then call again when store_fd() or disk_fd() is readable, at next_due(), or
  // after the next submit().
  bool progress(uint32_t ops_max);

  // When progress() wants to be called though neither submit() nor store_fd() asks for it: to try a
  // busy store again, to end what has waited past its deadline, to ask a store that has no
  // descriptor. kNoDeadline if there is no such time.
  TimePoint next_due() const;

  // Completions so far, at most out.size().
  size_t take(std::span<Completion> out);

  // Readable when the store has completed something; -1 without a store or if never needed.
  int store_fd() const;
  int disk_fd() const;           // likewise of the disk
  size_t ops_in_flight() const;  // submitted and not yet taken

  // Ends what waits as `cancelled`, closes the store and completes what was in flight (take them).
  // kTimeout if the store still held on at `deadline`: what it holds has not completed then,
  // progress() goes on completing it, and close() may be called again. Later submissions complete
  // as `unavailable`.
  Status close(TimePoint deadline);

  uint32_t rank() const;
  const SlotGeometry& geometry() const;
  // What the operations may touch beside the device; for hosts that damage it on purpose.
  std::span<std::byte> host_memory() const;

  // Any thread.
  RankStats stats() const;
  // As DataPlane::store_reason; of the thread that calls the rest.
  const StoreReason& store_reason() const;

 private:
  class Impl;
  explicit RankWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tiercel
