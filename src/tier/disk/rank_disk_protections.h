// SPDX-License-Identifier: Apache-2.0
//
// The protections of a rank's disk, each of which a test switches off in turn to see that its proof
// notices. Production code only ever uses the defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tier/disk/rank_disk.h"

namespace tiercel {

struct RankDiskProtections {
  bool record_before_done = true;       // a put ends after its record is written
  bool sync_payload = true;             // by policy
  bool sync_record = true;              // by policy
  bool sync_left_over = true;           // what an earlier process has not synced is synced too
  bool sync_clear = true;               // whatever the policy
  bool sync_before_clear = true;        // the header that counts, if an earlier process left it
  bool bound_of_clear_at_start = true;  // what is put after start_clear() is not cleared
  bool alternate_headers = true;        // the header that counts is not written over
  bool remember_failed_syncs = true;    // a sync that fails counts for all that was not yet safe
  bool empty_failed_slots = true;       // a slot whose put failed has no record
  bool one_put_per_slot = true;
  bool stuck_opens = true;          // no answer opens the breaker
  bool compare_with_record = true;  // a slot that holds an older payload than its record is no hit
};

// The only maker; RankDisk::create calls it with all protections on.
class RankDiskFactory {
 public:
  static Result<std::unique_ptr<RankDisk>> create(const RankDiskProtections& protections,
                                                  RankDiskOptions options,
                                                  const SlotGeometry& geometry,
                                                  const DiskHeader& header, uint64_t next_sequence,
                                                  std::unique_ptr<DiskIo> io, const Clock& clock,
                                                  std::function<int64_t()> unix_time_s);
};

}  // namespace tiercel
