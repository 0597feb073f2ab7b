// SPDX-License-Identifier: Apache-2.0
//
// DiskFolder: the folder of one instance's disk tier: makes or opens the files of all ranks, holds
// their lock, decides the geometry, and reads at the start what is there.
//
//   DIR/<instance>/rank<r>/data       slots
//   DIR/<instance>/rank<r>/metadata   headers and records
//   DIR/<instance>/owner              who has it, for messages only (disk_owner.h)
//
// One owner at a time. The lock is a flock on each data file's open description; descriptors that
// are passed to rank processes share it, so that it is free only when no transfer of a dead owner
// can reach the files any more.
//
// A folder is never overwritten because it does not fit: another shape (world size, groups, payload
// sizes) is refused with a message that names both and the ways out (`reset`, another instance
// name). Another size is not: growing adds extents, shrinking drops the blocks of those that go.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "tier/disk/disk_format.h"
#include "tier/slot_geometry.h"

namespace tiercel {

struct DiskFolderOptions {
  std::string path;               // DIR; made if it is not there (its parent must be)
  std::string instance = "main";  // 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot
  uint64_t bytes = 0;             // bound on all files of all ranks together (disk_geometry.h)
  PayloadBytes payload_bytes;     // [group][rank]
  bool preallocate = false;       // reserve the space now; else files are sparse and grow in use
  bool direct = true;             // O_DIRECT for the data files where the file system has it
  bool reset = false;             // a folder of another shape or version is started anew, empty
  Duration lock_wait = std::chrono::seconds(5);  // for a dead owner's transfers to end
};

// A block that all ranks have, as the records say.
struct DiskBlock {
  SlotId slot;
  GroupId group;
  bool has_parent = false;
  BlockKey key;
  BlockKey parent;
  uint64_t sequence = 0;  // on rank 0
};

struct DiskContents {
  std::vector<DiskBlock>
      blocks;  // in order of writing on rank 0, oldest first; no key and group twice
  // Slots, by why they count as empty though there was something.
  uint64_t torn = 0;         // no valid record: torn, flipped, foreign, of another slot
  uint64_t cleared = 0;      // older than the last clear()
  uint64_t misplaced = 0;    // the slot does not exist for the record's group or geometry, or its
                             // extent has come to serve another group since
  uint64_t disagreeing = 0;  // not the same block on every rank
  uint64_t duplicates = 0;   // an older copy of a block
  uint64_t other_namespace = 0;  // of `blocks`: of another namespace than asked about
};

// What one rank needs; descriptors are duplicates that share the folder's lock.
struct DiskRankFiles {
  FileDescriptor data;
  FileDescriptor metadata;
  bool direct = false;
  DiskHeader header;  // of the metadata file, as it stands
  // Known after read_contents().
  uint64_t next_sequence = 1;               // higher than any in the file
  std::vector<uint32_t> payload_checksums;  // [slot], as the records say; 0 without one
};

class DiskFolder {
 public:
  // kInvalid with the option, its value and what is allowed (also: too small for one slot; shape or
  // version that does not fit, without `reset`; DIR is a file). kCorrupt for files that have no
  // header of ours, without `reset`. kBusy, naming the holder, if another process (or this one) has
  // the instance. kNoSpace if preallocation fails. kUnavailable with the path and the system's
  // reason otherwise. What is refused is not written to. Files and folders are owner-only.
  static Result<std::unique_ptr<DiskFolder>> open(const DiskFolderOptions& options);
  virtual ~DiskFolder() = default;

  // For all ranks; slots of a payload have the host tier's stride.
  virtual const SlotGeometry& geometry() const = 0;
  virtual const DiskFolderId& id() const = 0;
  virtual uint32_t rank_count() const = 0;

  // What an operator should be told: created, grown, shrunk (with how many blocks went), no
  // O_DIRECT and why, reset.
  virtual const std::vector<std::string>& notes() const = 0;

  // Reads all metadata files sequentially. `purge`: records of other namespaces than `name_space`
  // are dropped (counted in other_namespace, not in blocks). To be called once, before any rank
  // writes.
  virtual Result<DiskContents> read_contents(const Namespace& name_space, bool purge) = 0;

  // `rank` < rank_count().
  virtual Result<DiskRankFiles> files(uint32_t rank) const = 0;

  // Once every rank has its own: later files() have no payload_checksums.
  virtual void forget_payload_checksums() = 0;
};

}  // namespace tiercel
