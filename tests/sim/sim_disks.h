// SPDX-License-Identifier: Apache-2.0
//
// SimDisks: the disks of the simulated machine, one a rank. What is on them stays when processes
// end; when a request is carried out is decided by a seed on the virtual clock.
//
// Ownership: outlives every RankDisk that it gave.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/key.h"

#include "base/random.h"
#include "cache/disk_parts.h"
#include "failure.h"
#include "sim_config.h"
#include "support/faulty_disk_io.h"
#include "support/memory_disk.h"
#include "tier/disk/disk_record_reader.h"
#include "tier/disk/rank_disk.h"

namespace tiercel::sim {

class SimDisks {
 public:
  // Empty disks; none at all if the configuration has no disk tier.
  SimDisks(const SimConfig& config, const Sabotage& sabotage, const Clock& clock);

  bool exist() const { return geometry_.has_value(); }
  const SlotGeometry& geometry() const { return *geometry_; }

  // For a new process of the rank, as the disk stands; null if the rank has none. The process
  // before it has ended, or was cut off.
  std::unique_ptr<RankDisk> open(uint32_t rank, uint64_t seed);
  // What the folder does at a start, before anything is read: where a rank's headers are both
  // damaged, it makes the files anew; those of rank 0 with all others. Fails unless that rank's
  // disk has confirmed something that it did not do: else no loss of power takes both.
  void make_anew_what_has_no_header();
  // What a restart finds on all of them.
  DiskParts read() const;

  // The process of the rank dies, or all of them, or the machine.
  void crash(uint32_t rank, Random& random);
  void crash_all(Random& random);
  void power_cut(Random& random);

  // Some faults in place of those there are, of kinds that the configuration allows; returns their
  // name.
  std::string pick_faults(Random& random);
  // No more faults, and what hangs goes on.
  void heal();
  size_t hanging() const;

  // Nothing that a process has written is still to be lost with the power.
  bool is_all_durable() const;
  // What stands in the slot on the rank; the payload.
  std::span<const std::byte> payload(uint32_t rank, SlotId slot, GroupId group) const;
  uint32_t rank_count() const { return static_cast<uint32_t>(ranks_.size()); }
  // Fails if a file is longer than its bound.
  void check_bounds() const;

  // By kind; requests that a fault befell.
  const Coverage& met() const { return met_; }

 private:
  class Io;
  struct Rank {
    testing::MemoryDisk disk;
    testing::FaultyDiskIo* faulty = nullptr;  // of the process that lives
    bool has_lied = false;                    // to a process before it, since the files were made
  };

  void make_files(uint32_t rank);
  std::optional<DiskHeader> find_header(uint32_t rank) const;
  DiskHeader header(uint32_t rank) const;
  DiskRecordSource records(uint32_t rank) const;

  const SimConfig& config_;
  const RankDiskProtections protections_;
  const Clock& clock_;
  std::optional<SlotGeometry> geometry_;
  DiskFolderId folder_id_{};
  Namespace name_space_;
  Coverage met_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tiercel::sim
