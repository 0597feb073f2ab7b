// SPDX-License-Identifier: Apache-2.0
//
// The options of `tiercel replay`, as a table for all sources and as plain values for the code.
#pragma once

#include <cstdint>
#include <string>

#include "tiercel/clock.h"
#include "tiercel/local_cache.h"
#include "tiercel/status.h"

#include "base/memory_limit.h"
#include "base/option_table.h"
#include "cli/disk_options.h"
#include "cli/engine_replay_options.h"
#include "cli/trace.h"

namespace tiercel {

OptionTable replay_option_table();

// As the table's options of the same names.
struct ReplayOptions {
  std::string trace;
  uint32_t device_blocks = 0;
  uint32_t host_blocks = 10000;
  uint64_t block_bytes = 64u << 10;
  uint32_t block_tokens = 512;
  uint32_t ranks = 1;
  RankHost rank_host = RankHost::kThread;
  uint64_t kill_rank_every = 0;
  std::string policy = "lru";
  std::string store;
  DiskOptions disk;
  bool metadata_only = false;
  bool full_blocks_only = false;
  bool verify = true;
  bool prefault = false;
  bool skip_bad_lines = false;
  bool optimum = true;
  uint64_t limit = 0;
  Duration deadline{0};
  Duration patience = std::chrono::seconds(60);
  EngineOptions engine;
  std::string json;

  uint32_t blocks_per_id() const { return kTokensPerId / block_tokens; }
  // Ids of a request that count as blocks.
  uint32_t used_ids(const TraceRequest& request) const {
    const bool has_partial = request.input_length % kTokensPerId != 0;
    return request.id_count - (full_blocks_only && has_partial && request.id_count > 0 ? 1 : 0);
  }
};

// kInvalid where a value is refused that its option alone allows, with option, value and allowed
// range: block_tokens that do not divide an id, no trace.
Result<ReplayOptions> read_replay_options(const OptionValues& values);

// Blocks of the longest request of `trace`.
uint64_t longest_request_blocks(const Trace& trace, const ReplayOptions& options);

// Memory of the control plane for each block that a tier has room for.
uint64_t index_bytes_per_block(const ReplayOptions& options);

// kNoSpace with option, value and allowed range if what the replay needs (host tier of all ranks,
// device blocks, index) is more than `memory`.
Status check_replay_memory(const ReplayOptions& options, uint64_t longest_request_blocks,
                           const MemoryLimit& memory);

}  // namespace tiercel
