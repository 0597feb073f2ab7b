// SPDX-License-Identifier: Apache-2.0
//
// `tiercel replay --engine`: the same engine over the same trace with one tier more each time, and,
// if asked for, once more with a store that stalls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tiercel/status.h"

#include "cli/engine_run.h"
#include "cli/replay.h"

namespace tiercel {

// Seconds from arrival to the first token. Percentiles are values that occurred (nearest rank).
struct FirstTokenTimes {
  uint64_t requests = 0;
  double p50 = 0, p90 = 0, p99 = 0, mean = 0, max = 0;
};

// Of the requests whose first token has come.
FirstTokenTimes first_token_times(const EngineRunReport& run);

// Split by whether the request needs the store in the run in which it does not stall. A store that
// helps takes work off the engine, so its loss makes all queues longer: who does not need it is
// held up by the stall only as far as it is slower than without a store.
struct StallReport {
  EngineRunReport run;
  FirstTokenTimes others_without, others_before, others;
  FirstTokenTimes needing_without, needing_before, needing;
};

struct EngineReplayReport {
  ReplayOptions options;
  bool complete = false;
  std::string failure;
  std::vector<EngineRunReport> runs;  // device, +host, +disk, +store; as far as it came
  std::optional<StallReport> stall;   // against the last of them; compares only if its run is whole
  uint64_t skipped_lines = 0;
  double wall_seconds = 0;
  uint64_t peak_rss_bytes = 0;
};

Result<EngineReplayReport> replay_engine(const Trace& trace, const ReplayOptions& options,
                                         const ReplayContext& context);

// For people; a table and some lines.
std::string to_text(const EngineReplayReport& report);
// One JSON object (docs/replay.md), ends with a line feed.
std::string to_json(const EngineReplayReport& report);

}  // namespace tiercel
