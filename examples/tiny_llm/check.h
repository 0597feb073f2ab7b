// SPDX-License-Identifier: Apache-2.0
//
// `tiercel-tiny --check`, without the command line around it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/option_table.h"
#include "tiny_llm/check_run.h"

namespace tiercel::tiny {

struct CheckOptions {
  std::vector<KvType> kv_types;
  std::vector<uint32_t> rank_counts;
  std::vector<uint32_t> window_layers;  // 0: full attention in every layer
  std::string only;                     // cases whose names contain it; empty: all
  CheckWorld::Options world;
};

OptionTable tiny_option_table();

// kInvalid with the option's name, the value and what is allowed.
Result<CheckOptions> read_check_options(const OptionValues& values);

// Runs every case for every KV type and number of ranks, and hands each line of the table to
// `print` as soon as there is one. True if nothing was wrong; an error is one of the machinery.
Result<bool> run_check(const CheckOptions& options, const Clock& clock,
                       const std::function<void(std::string_view)>& print);

}  // namespace tiercel::tiny
