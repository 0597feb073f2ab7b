// SPDX-License-Identifier: Apache-2.0
//
// The border between the control plane and the data plane: block operations go down, completions
// come up.
//
// A job is one unit of work: the same operations on every rank, one per block. Operations are
// fixed-size, carry ids only (addresses never leave a rank), and are validated by whoever receives
// them. Each operation completes exactly once per rank, and a completion means that the rank has
// *let go*: nothing will touch the slot or the device block for this operation any more. A
// completion may come long after the deadline, or, if a rank or store is lost, never; what waits
// for it is the control plane's business (quarantine).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "tiercel/clock.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"
#include "tiercel/store.h"

namespace tiercel {

enum class OpKind : uint8_t {
  kLoad = 0,         // host slot → device block; verified on arrival
  kSave = 1,         // device block → host slot; payload, checksum and frame
  kStoreGet = 2,     // store → host slot; verified on arrival
  kStorePut = 3,     // host slot → store
  kStoreExists = 4,  // asks the store; ok or not_found
  kStoreRemove = 5,  // store only
  kDiskGet = 6,      // disk slot → host slot; verified on arrival
  kDiskPut = 7,      // host slot → disk slot, and its record
  kDiskClear = 8,    // makes every record on disk invalid, for good
};
inline constexpr size_t kOpKindCount = 9;

// Whether operations of this kind touch a host slot, a device block, a disk slot.
constexpr bool uses_slot(OpKind kind) {
  return kind != OpKind::kStoreExists && kind != OpKind::kStoreRemove && kind != OpKind::kDiskClear;
}
constexpr bool uses_device(OpKind kind) { return kind == OpKind::kLoad || kind == OpKind::kSave; }
constexpr bool uses_disk_slot(OpKind kind) {
  return kind == OpKind::kDiskGet || kind == OpKind::kDiskPut;
}
constexpr bool uses_disk(OpKind kind) { return uses_disk_slot(kind) || kind == OpKind::kDiskClear; }

// "load", "save", "store_get", "store_put", "store_exists", "store_remove", "disk_get", "disk_put",
// "disk_clear"
std::string_view to_string(OpKind kind);

// `only_rank` of an operation that every rank carries out.
inline constexpr uint16_t kEveryRank = UINT16_MAX;

// One block of one job. Trivially copyable: it travels through rings as it is.
struct BlockOp {
  JobId job;
  BlockKey key;
  BlockKey parent;                  // disk put: of the block before, if has_parent
  int64_t deadline_ns = INT64_MAX;  // of the injected clock; work not begun by then is `timeout`
  uint32_t item = 0;                // index in the job
  SlotId slot;                      // host slot, where uses_slot(kind)
  SlotId disk_slot;                 // disk get and put
  DeviceBlockId device_block;       // load and save
  uint32_t token_count = 0;         // of the block
  OpKind kind = OpKind::kLoad;
  GroupId group;
  uint16_t only_rank = kEveryRank;  // the one rank that carries it out (equal slices: one writes)
  uint8_t replace = 0;              // store put: 1 = replace an object that was found bad
  uint8_t has_parent = 0;           // disk put: 1 = not the first block of its sequence
  std::array<uint8_t, 6> reserved{};
};
static_assert(std::is_trivially_copyable_v<BlockOp> && sizeof(BlockOp) == 112);

constexpr bool concerns(const BlockOp& op, uint32_t rank) {
  return op.only_rank == kEveryRank || op.only_rank == rank;
}

// One operation of one rank has ended.
struct Completion {
  JobId job;
  uint32_t item = 0;
  uint16_t rank = 0;
  Code code = Code::kOk;
  uint8_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<Completion> && sizeof(Completion) == 16);

// What one rank has done, by kind of operation; counters only rise.
struct PathStats {
  uint64_t ops = 0;      // ended, in whatever way
  uint64_t failed = 0;   // ended in neither ok nor not_found
  uint64_t corrupt = 0;  // of these: bytes that did not prove to be what was asked for
  uint64_t bytes = 0;    // payload moved by ok operations
  // Time spent copying; from submission to completion for a store; for the disk, time in which it
  // had something of the kind to do.
  uint64_t busy_ns = 0;

  PathStats& operator+=(const PathStats& other);
};
struct RankStats {
  std::array<PathStats, kOpKindCount> paths;
  // Of the rank's store and disk, as of the last time that the rank had anything to do.
  StoreHealth store{.condition = StoreCondition::kNone};
  StoreHealth disk{.condition = StoreCondition::kNone};
  // What the files of the disk tier took beside payload is write amplification.
  uint64_t disk_read_bytes = 0, disk_written_bytes = 0, disk_syncs = 0;
  const PathStats& path(OpKind kind) const { return paths[static_cast<size_t>(kind)]; }
};

// The data plane as the control plane sees it: n ranks behind one object.
//
// Threads: all calls from the control thread. None of them waits, locks or touches payload.
class DataPlane {
 public:
  virtual ~DataPlane() = default;

  virtual uint32_t rank_count() const = 0;

  // kUnavailable, with the reason, where the plane cannot work whatever is asked of it: in a
  // process that was forked off, while its ranks run in the parent. It takes nothing there.
  virtual Status usable() const { return {}; }

  // Operations that submit() would take now. Bounded by the rings; what is in flight counts.
  virtual size_t submit_capacity() const = 0;

  // Hands every operation to every rank that it concerns, in order; false and nothing done if there
  // is no room for all. `only_rank` < rank_count() or kEveryRank.
  virtual bool submit(std::span<const BlockOp> ops) = 0;

  // Copies out completions that have arrived; returns how many (at most out.size()).
  virtual size_t poll(std::span<Completion> out) = 0;

  // Becomes readable when poll() may have something; -1 if there is no such thing (virtual time).
  virtual int completion_fd() const = 0;

  // `rank` < rank_count().
  virtual RankStats stats(uint32_t rank) const = 0;
  // Of the rank's disk, as in stats(): what is asked at every poll.
  virtual StoreCondition disk_condition(uint32_t rank) const { return stats(rank).disk.condition; }

  // Why an operation of the rank's store failed last, in the store's words; empty: none has. When
  // the store has answered since, it begins with "earlier: ". `rank` < rank_count().
  virtual ReasonText store_reason(uint32_t rank) const {
    static_cast<void>(rank);
    return {};
  }

  // How often the rank has lost its host memory, `rank` < rank_count(). It rises within the poll()
  // that notices (a process that died, hung for too long or broke the protocol); by then every slot
  // of that rank must count as empty, so owners compare after each poll(), before they submit
  // anything that reads a slot. A poll() that returns with a new epoch, and every later one, brings
  // no ok for a save, store_get or disk_get that ended in the old one. Planes whose ranks live as
  // long as they do never lose memory.
  virtual uint64_t memory_epoch(uint32_t /*rank*/) const { return 0; }

  // Stops taking operations and ends what runs: afterwards no memory is touched and every operation
  // has completed (poll() them). kTimeout if a rank or store still held on at `deadline`.
  virtual Status close(TimePoint deadline) = 0;
};

}  // namespace tiercel
