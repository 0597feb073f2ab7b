// SPDX-License-Identifier: Apache-2.0
//
// The protections of the control plane, each of which the meta-test of the simulation switches off
// in turn to see that the simulation notices. Production code only ever uses the defaults.
#pragma once

#include <memory>

#include "tiercel/cache.h"

#include "cache/disk_parts.h"

namespace tiercel {

struct Protections {
  bool quarantine = true;         // a slot is not used again while a transfer may still touch it
  bool all_ranks = true;          // a block counts only when every rank has it
  bool load_holds = true;         // what is being loaded is not evicted
  bool commit_gate = true;        // nothing is read from the device before its KV was computed
  bool publish_when_done = true;  // a block is visible only after its bytes have arrived
  bool device_release = true;     // the engine is told when transfers still touch its device blocks
  bool deadlines = true;          // what has not ended by its deadline is given up
  bool tail_first = true;         // no block is evicted while one behind it stays
  bool put_bound = true;          // what waits for the store is bounded
  bool memory_loss = true;        // slots of a rank that lost its memory count as empty
  bool disk_clear = true;         // clear() makes the records on disk invalid too
};

// The only maker of caches; Cache::create calls it with all protections on.
class CacheFactory {
 public:
  // `disk`: null without a disk tier. With replicated_slices it is that of rank 0 alone.
  static Result<std::unique_ptr<Cache>> create(const Protections& protections,
                                               const CacheConfig& config, DataPlane& plane,
                                               const Clock& clock, const DiskParts* disk = nullptr);
};

}  // namespace tiercel
