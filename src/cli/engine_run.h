// SPDX-License-Identifier: Apache-2.0
//
// EngineRun: one engine over one trace, in virtual time: the production ResourceManager,
// PrefixCache and Cache over a data plane that takes stated times. Nothing of its figures but
// control times depends on the machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tiercel/cache.h"
#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/memory_limit.h"
#include "cli/engine_regret.h"
#include "cli/engine_replay_options.h"
#include "cli/replay_options.h"
#include "cli/replay_report.h"
#include "cli/trace.h"
#include "engine/resource_manager.h"

namespace tiercel {

// Which tiers the engine has below its device.
struct EngineTiers {
  bool host = false, disk = false, store = false;
};

// Of one request of the trace.
struct EngineRequestResult {
  Duration first_token{0};   // from its arrival; negative: it has not come
  bool needs_store = false;  // at its arrival the store had blocks for it that no tier had
};

struct EngineRunReport {
  std::string name;
  bool complete = false;
  std::string failure;                        // why it ended early; empty if it did not
  std::vector<EngineRequestResult> requests;  // in the order of the trace
  uint64_t ended = 0;                         // of these
  uint64_t refused = 0;  // of these: empty, or more tokens than the device pool holds
  uint64_t prompt_tokens = 0, device_hit_tokens = 0, loaded_tokens = 0, computed_tokens = 0;
  double prefill_seconds = 0;        // that were spent
  double prefill_seconds_saved = 0;  // of what was hit or loaded, at the stated rate
  double virtual_seconds = 0, busy_seconds = 0;
  // The engine had requests and none of them could run: all waited for copies.
  double waiting_for_copies_seconds = 0;
  // Virtual time that passed within a call of the scheduler; more than 0 means that it waited.
  Duration scheduler_wait{0};
  TimesReport schedule_us;  // real time of schedule()
  double wall_seconds = 0;
  ResourceManagerStats manager;
  CacheStats cache;
  LoadEstimates estimates;
  EngineRegret::Sums regret;
};

struct EngineRunContext {
  const Clock& clock;  // real time, for measurement
  MemoryLimit memory;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(uint64_t done)> progress = nullptr;  // requests that have ended
};

// `stalls`: whether the store stalls as the options say. An error only for what is refused before
// the first request: kInvalid if no request fits into the device pool, kNoSpace if what is kept of
// blocks does not fit into memory.
Result<EngineRunReport> run_engine(const Trace& trace, const ReplayOptions& options,
                                   const EngineTiers& tiers, bool stalls,
                                   const EngineRunContext& context);

}  // namespace tiercel
