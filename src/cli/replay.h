// SPDX-License-Identifier: Apache-2.0
//
// The main job: drives the production Cache with a trace, one request after the other, and compares
// every block that comes back with what it must be.
//
// Request time is virtual, bytes are real: the cache sees the times of the trace, and between two
// requests everything that was started ends. So no figure but speed depends on the machine, unless
// a deadline is asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/log.h"
#include "base/memory_limit.h"
#include "cli/replay_options.h"
#include "cli/replay_report.h"
#include "cli/trace.h"

namespace tiercel {

struct ReplayContext {
  const Clock& clock;  // real time, for measurement and patience
  MemoryLimit memory = available_memory();
  const std::atomic<bool>* stop = nullptr;  // set by someone else: end early
  std::function<void(uint64_t done, uint64_t all)> progress = nullptr;  // after each request
  // Set when all is open and the first request begins: from then on there may be figures.
  std::atomic<bool>* started = nullptr;
  Logger* logger = nullptr;  // of ranks in processes that are lost or do not start
};

// An error only for what is refused before the first request. Whatever ends the run later stands in
// the report (complete, failure), with all figures up to there.
Result<ReplayReport> replay(const Trace& trace, const ReplayOptions& options,
                            const ReplayContext& context);

}  // namespace tiercel
