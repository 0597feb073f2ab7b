// SPDX-License-Identifier: Apache-2.0
//
// Replays of the shipped trace, for tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>

#include <gtest/gtest.h>

#include "cli/replay.h"
#include "cli/trace_reader.h"
#include "support/paths.h"

namespace tiercel {

inline const Trace& whole_trace() {
  static const Trace trace = [] {
    auto read = read_trace(testing::source_path("data/conversation_trace.jsonl"));
    EXPECT_TRUE(read.has_value()) << read.error().message();
    return read ? *std::move(read) : Trace();
  }();
  return trace;
}

inline Trace head_of(const Trace& trace, size_t request_count) {
  Trace head = trace;
  head.requests.resize(std::min(request_count, trace.requests.size()));
  return head;
}

inline ReplayReport run(const Trace& trace, const ReplayOptions& options,
                        const std::atomic<bool>* stop = nullptr) {
  const SystemClock clock;
  ReplayContext context{clock};
  context.stop = stop;
  auto report = replay(trace, options, context);
  EXPECT_TRUE(report.has_value()) << report.error().message();
  if (!report) return {};
  EXPECT_EQ(report->failure, "");
  EXPECT_EQ(report->cache.unbalanced_unholds, 0u);
  EXPECT_EQ(report->cache.refused_frees, 0u);
  EXPECT_EQ(report->cache.holds, 0u);
  return *std::move(report);
}

inline ReplayOptions small_blocks(uint32_t host_blocks, uint32_t ranks = 1) {
  ReplayOptions options;
  options.host_blocks = host_blocks;
  options.block_bytes = 1000;
  options.ranks = ranks;
  return options;
}

}  // namespace tiercel
