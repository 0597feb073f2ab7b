// SPDX-License-Identifier: Apache-2.0
//
// Reads all of a disk tier's instance and checks it: headers, records, the ranks against each
// other, and of every block the frame and the payload. Changes nothing unless asked to repair.
//
// While an engine has the instance, a slot that is being written looks bad for a moment. So what
// looks bad then is looked at again, until it is whole or has stayed bad for a second.
//
// Threads: one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "cli/disk_survey.h"

namespace tiercel {

enum class DiskFault : uint8_t {
  kFiles,       // a header or a file's length is wrong, or a rank is not there
  kRecord,      // no record of this folder, slot and rank: torn, flipped, of elsewhere
  kRanks,       // not the same block on every rank
  kFrame,       // the frame in the slot is not that of the record's block
  kPayload,     // the payload does not have its checksum
  kUnreadable,  // the disk gave an error
};
inline constexpr size_t kDiskFaultCount = 6;
// "files", "record", "ranks", "frame", "payload", "unreadable"
std::string_view to_string(DiskFault fault);

struct DiskFaultFigures {
  uint64_t count = 0;
  std::vector<std::string> places;  // the first few
};

struct DiskCheckReport {
  std::string path;                                  // DIR/<instance>
  std::optional<std::string> holder;                 // who has it, if somebody else
  bool complete = true;                              // not stopped
  std::array<uint64_t, kSlotStateCount> slots{};     // by what their records say
  uint64_t checked_payloads = 0, checked_bytes = 0;  // on all ranks
  uint64_t changed_meanwhile = 0;  // looked bad once and whole when looked at again
  uint64_t unsettled = 0;          // looked bad once when it was stopped; no faults
  std::array<DiskFaultFigures, kDiskFaultCount> faults;
  // Repair only.
  uint64_t dropped = 0;        // slots whose records were bad, or whose block was
  uint64_t dropped_stale = 0;  // of older copies and out of place
  uint64_t mended_headers = 0;

  uint64_t fault_count() const;
  // That a repair has not done away with.
  uint64_t remaining_faults = 0;
};

struct DiskCheckOptions {
  std::string path;
  std::string instance;
  bool repair = false;
};

struct DiskCheckContext {
  const Clock& clock;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(uint64_t done, uint64_t all)> progress;  // slots, on all ranks; may be empty

  bool stopped() const { return stop != nullptr && stop->load(); }
};

// kBusy, naming the holder, if it is to be repaired and somebody has it. As look_at_disk_instance()
// otherwise. What is damaged is no error. Stopped, it has dropped nothing.
Result<DiskCheckReport> check_disk(const DiskCheckOptions& options,
                                   const DiskCheckContext& context);

}  // namespace tiercel
