// SPDX-License-Identifier: Apache-2.0
//
// The options of `tiercel bench`, as a table for all sources and as plain values for the code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/status.h"

#include "base/option_table.h"

namespace tiercel {

OptionTable bench_option_table();

// As the table's options of the same names.
struct BenchOptions {
  std::vector<std::string> subjects;  // known names, in the order in which they run
  uint32_t runs = 9;
  uint32_t tokens = 50'000;
  uint32_t block_tokens = 16;
  uint32_t index_blocks = 1'000'000;
  uint64_t checksum_bytes = 16u << 20;
  uint64_t host_bytes = 1u << 30;
  uint64_t host_block_bytes = 1u << 20;
  uint32_t ring_round_trips = 2'000;
  uint32_t cache_blocks = 100'000;
  std::string disk_path;
  std::vector<uint64_t> disk_sizes;  // payloads
  uint64_t disk_file_bytes = 1u << 30;
  uint32_t disk_queue_depth = 32;
  uint32_t disk_reopen_blocks = 1'000'000;
  std::string mooncake;  // empty: there is no pool
  uint32_t mooncake_rounds = 20;
  uint64_t mooncake_batch_bytes = 32u << 20;
  uint32_t mooncake_round_trips = 200;
  uint32_t mooncake_faults = 20;
  std::vector<uint64_t> mooncake_arenas;
  bool large = false;
  std::string json;

  // Full blocks of one request; at least 1.
  uint32_t request_blocks() const { return tokens / block_tokens; }
};

// kInvalid where values are refused that their options alone allow: an unknown subject, fewer
// tokens than a block has, a tier that does not hold a request.
Result<BenchOptions> read_bench_options(const OptionValues& values);

}  // namespace tiercel
