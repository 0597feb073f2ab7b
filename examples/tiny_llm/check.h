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

enum class CheckVerdict : uint8_t {
  kRight,      // every case did its work, and nothing differed
  kWrong,      // something differed
  kNotProven,  // nothing differed, but a case did not come to what it is for
};

// Runs every case for every KV type and number of ranks, and hands each line of the table to
// `print` as soon as there is one. A case that hangs is the last. An error is one of the machinery,
// or kCancelled; kInvalid before the first line: no such case, a store URL or folder that cannot be
// used.
Result<CheckVerdict> run_check(const CheckOptions& options, const Clock& clock,
                               const std::function<void(std::string_view)>& print);

}  // namespace tiercel::tiny
