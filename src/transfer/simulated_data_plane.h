// SPDX-License-Identifier: Apache-2.0
//
// SimulatedDataPlane: real rank workers on real (small) memory, but when an operation runs, whether
// it fails, and when its completion arrives is decided by a seed on a virtual clock. So framing,
// verification and stores are the production code, and every race that delays and reordering can
// make happens sooner or later and can be repeated exactly. Only a disk clear keeps its place among
// the disk puts of a rank, as it does on every plane.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tiercel/transfer.h"

#include "base/manual_clock.h"
#include "transfer/rank_worker.h"

namespace tiercel {

// Probabilities per operation and rank, 0 to 1.
struct SimulatedFaults {
  Duration delay_min{0}, delay_max = std::chrono::milliseconds(5);  // ordinary time to execution
  double slow = 0;  // executes late instead, after up to slow_max: later than deadlines
  Duration slow_max = std::chrono::seconds(5);
  double late_completion = 0;  // executes in time, but its completion arrives after up to slow_max
  double fail = 0;             // completes `unavailable` without having run
  double fail_after_run = 0;   // ran, but completes `unavailable`
  // One bit flips before the operation runs, in payload or frame of one of the host slots that were
  // named lately on that rank.
  double corrupt_slot = 0;
  double stall = 0;  // the rank stops for up to stall_max; everything on it waits
  Duration stall_max = std::chrono::seconds(2);
};

// What was really met, for coverage reports.
struct SimulatedCounts {
  uint64_t executed = 0, slow = 0, late_completions = 0, failed = 0, failed_after_run = 0,
           corrupted_slots = 0, stalls = 0, reordered = 0, replaced_ranks = 0;
};

class SimulatedDataPlane : public DataPlane {
 public:
  // `clock` is the one that the workers use too.
  static Result<std::unique_ptr<SimulatedDataPlane>> create(
      std::vector<std::unique_ptr<RankWorker>> workers, ManualClock& clock, uint64_t seed,
      const SimulatedFaults& faults, uint32_t ops_in_flight_max);

  // Runs everything that is due at the clock's present time. Call after moving the clock.
  virtual void run_due() = 0;
  // When something will be due next, never before the present; kNoDeadline if nothing waits. A
  // store has times of its own: while one has something in flight, that is at most a millisecond
  // away, for ever if the store never answers. Completions that have arrived and wait for poll()
  // are not counted.
  virtual TimePoint next_due() const = 0;
  // The process of a rank dies, and `successor`, with nothing in its host memory, is up at
  // `up_at`: what was in flight on the rank ends as unavailable, and so does what is to run before
  // then, or is submitted before a poll() has noticed. The host memory is overwritten with garbage.
  virtual void replace_rank(uint32_t rank, std::unique_ptr<RankWorker> successor,
                            TimePoint up_at) = 0;
  // From now on.
  virtual void set_faults(const SimulatedFaults& faults) = 0;
  virtual SimulatedCounts counts() const = 0;
};

}  // namespace tiercel
