// SPDX-License-Identifier: Apache-2.0
//
// The disk tier's options: a folder with files of a bounded size, found again after a restart
// (docs/operations.md tells an operator what to choose, docs/format.md what is in the files).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tiercel/clock.h"
#include "tiercel/status.h"

namespace tiercel {

// When what was written is made to survive a loss of power. A crash of the process alone loses
// nothing that was acknowledged, whatever the policy; and no policy is needed for never returning
// wrong bytes.
enum class DiskSync : uint8_t {
  kNone,      // when the system writes it back by itself
  kData,      // before the put completes: payload, then record
  kInterval,  // every `sync_interval`, while there is something to sync
};
// "none", "data", "interval"
std::string_view to_string(DiskSync sync);

// How the files are read and written.
enum class DiskIoWay : uint8_t {
  kAuto,     // io_uring if the system allows it, else threads
  kUring,    // io_uring or an error
  kThreads,  // a pool of threads with pread and pwrite
};
// "auto", "io_uring", "threads"
std::string_view to_string(DiskIoWay way);

struct DiskConfig {
  std::string path;  // of the folder, made if it is not there; empty: no disk tier
  // Name of this engine in the folder, the same over restarts: 1 to 64 of A-Z a-z 0-9 . _ -
  std::string instance = "main";
  uint64_t bytes = 0;  // bound on all files of all ranks together
  bool preallocate =
      false;           // reserve the space at the start; else files are sparse and grow in use
  bool direct = true;  // O_DIRECT where the file system has it
  bool reset = false;  // a folder of another shape or version is started anew, empty
  bool purge = false;  // forget blocks of other namespaces at the start
  DiskSync sync = DiskSync::kNone;
  Duration sync_interval = std::chrono::seconds(1);
  DiskIoWay io = DiskIoWay::kAuto;
  uint32_t queue_depth = 64;    // requests with the disk at once, per rank; 1 to 4096
  bool register_memory = true;  // with the ring, if the memlock limit allows it: pins the host tier
  // No answer of the disk for so long: it is left alone until a probe comes back.
  Duration stuck_after = std::chrono::seconds(2);

  friend bool operator==(const DiskConfig&, const DiskConfig&) = default;
};

}  // namespace tiercel
