// SPDX-License-Identifier: Apache-2.0
//
// MemoryDisk: the two files of a rank's disk tier in memory. It is kept apart from whoever uses it,
// so that it survives a restart, and it knows which writes no sync has covered, so that the test
// can cut the power.
//
//   MemoryDisk disk;
//   auto io = disk.open({.queue_depth = 8});   // a DiskIo, as make_disk_io() gives one
//   …                                          // write
//   disk.power_cut(random);                    // what was not synced is lost, whole or in part
//   io = disk.open({.queue_depth = 8});        // the restart
//
// What the DiskIo promises beyond the contract: no threads, nothing happens but in poll() (a write
// takes its bytes from memory then, not at submit(); the destructor carries out what is left), and
// the order repeats with the seed. A sync covers what had completed when it was submitted. The data
// file refuses what direct I/O would refuse (EINVAL: offset, length or memory not aligned).
//
// Ownership: the disk outlives every DiskIo that it gave.
// Threads:   one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "tier/disk/disk_io.h"

namespace tiercel::testing {

struct MemoryDiskIoOptions {
  uint32_t queue_depth = 64;
  // Nothing: a poll completes all, in order of submission. Else: some (at least one), in an order
  // that the seed gives.
  std::optional<uint64_t> order_seed{};
};

class MemoryDiskIo;

class MemoryDisk {
 public:
  // A sector is written whole or not at all.
  static constexpr uint64_t kSectorBytes = 512;
  // A system writes back by itself what has waited long: of each file, all but so many of the
  // latest writes are as good as synced.
  static constexpr size_t kUnsyncedWritesMax = 4096;

  MemoryDisk();
  ~MemoryDisk();
  MemoryDisk(const MemoryDisk&) = delete;
  MemoryDisk& operator=(const MemoryDisk&) = delete;

  // One user at a time: the one before is destroyed, or cut off by crash() or power_cut().
  std::unique_ptr<DiskIo> open(const MemoryDiskIoOptions& options);

  // What a reader sees now.
  std::span<const std::byte> contents(DiskFile file) const;
  size_t unsynced_writes(DiskFile file) const;

  // Past all users and durable at once: to prepare a disk, or to damage it.
  void put(DiskFile file, uint64_t offset, std::span<const std::byte> bytes);
  void resize(DiskFile file, uint64_t bytes);  // zeros if it grows

  // The process dies. What has completed stays; writes in flight happen whole, in part or not. The
  // user is cut off: all that it has in flight and all that it submits later completes with -EIO
  // and changes nothing.
  void crash(Random& random);

  // The machine dies: as crash(), and of the writes that no completed sync covers, too, each
  // happens whole, in part or not. In part: a leading piece or some of its sectors; in the metadata
  // file a leading piece ends at any byte. What was synced and not written again stays.
  void power_cut(Random& random);

 private:
  friend class MemoryDiskIo;

  struct Write {
    uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  struct File {
    std::vector<std::byte> seen;     // all that completed
    std::vector<std::byte> durable;  // without `unsynced`
    std::deque<Write> unsynced;      // in order of completion
    uint64_t writes = 0;             // ever completed; the last of them ends `unsynced`
  };

  File& file_of(DiskFile file) { return files_[static_cast<size_t>(file)]; }
  const File& file_of(DiskFile file) const { return files_[static_cast<size_t>(file)]; }
  void write(DiskFile file, uint64_t offset, std::span<const std::byte> bytes);
  // The first `writes` that ever completed are durable.
  static void make_durable(File& file, uint64_t writes);
  void cut_off_user(Random& random);

  std::array<File, kDiskFileCount> files_;
  MemoryDiskIo* user_ = nullptr;
};

}  // namespace tiercel::testing
