// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the `mooncake` subject share.
#pragma once

#include <string>

#include "cli/bench.h"
#include "cli/bench_mooncake_pool.h"

namespace tiercel {

// Requests that meet a pool of the run's own whose master has been killed, or is frozen.
Status bench_mooncake_faults(BenchPool& pool, const BenchOptions& options,
                             const BenchContext& context, BenchFigures& figures);

// How soon a sidecar serves, by the size of its memory.
Status bench_mooncake_respawn(const std::string& url, const BenchOptions& options,
                              const BenchContext& context, BenchFigures& figures);

}  // namespace tiercel
