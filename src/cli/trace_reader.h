// SPDX-License-Identifier: Apache-2.0
//
// Reads a trace from a JSONL file and checks all of it, so that a replay does not start on a bad
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tiercel/status.h"

#include "cli/trace.h"

namespace tiercel {

struct TraceReaderOptions {
  bool skip_bad_lines = false;       // count bad lines and go on
  uint64_t request_count_max = 0;    // read no further; 0: to the end
  size_t id_count_max = 128u << 20;  // of the whole trace: bounds memory
  size_t line_bytes_max = 16u << 20;
};

// Errors name the file, the line, what was wrong with what value, and what is allowed. Blank lines
// are passed over. A request of length 0 without ids is legal: it has no blocks. Never skipped: a
// missing, compressed or unreadable file, and one without a single good request.
Result<Trace> read_trace(const std::string& path, const TraceReaderOptions& options = {});

}  // namespace tiercel
