// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_options.h"

#include <algorithm>

#include "tiercel/cache.h"

#include "cli/oracle.h"
#include "index/eviction_policy.h"
#include "tier/slot_geometry.h"

namespace tiercel {
namespace {

constexpr double kBlocksMax = 1u << 28;
// Of each block that a policy with ghosts remembers.
constexpr uint64_t kGhostBytes = 12;

Option number(std::string name, std::string help, std::string default_value, double minimum,
              double maximum, OptionType type = OptionType::kInteger) {
  return make_option(std::move(name), type, std::move(help), std::move(default_value), minimum,
                     maximum);
}

Option flag(std::string name, std::string help, bool default_value) {
  return make_option(std::move(name), OptionType::kBool, std::move(help),
                     default_value ? "true" : "false");
}

Option text(std::string name, std::string help) {
  return make_option(std::move(name), OptionType::kString, std::move(help), "");
}

Option policy_option() {
  Option result = make_option("policy", OptionType::kChoice, "Eviction policy of the tiers", "lru");
  for (std::string_view name : eviction_policy_names()) result.choices.emplace_back(name);
  return result;
}

Option rank_host_option() {
  Option result = make_option("rank_host", OptionType::kChoice, "Where rank workers run", "thread");
  result.choices = {"thread", "process"};
  return result;
}

uint32_t get_count(const OptionValues& values, std::string_view name) {
  return static_cast<uint32_t>(values.get_integer(name));
}

std::string get_text(const OptionValues& values, std::string_view name) {
  return values.is_set(name) ? values.get_string(name) : std::string();
}

uint64_t saturating_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// What makes `url` more than a set of keys that never forgets and never fails; empty if nothing
// does. A guard does not: it only acts on failures.
std::string_view part_that_needs_bytes(std::string_view url) {
  const size_t colon = url.find(':');
  const std::string_view head = url.substr(0, colon);
  if (head != "memory" && head != "guard+memory") {
    return url.substr(0, colon == std::string_view::npos ? colon : colon + 1);
  }
  size_t at = url.find('?');
  while (at != std::string_view::npos) {
    const size_t end = url.find('&', at + 1);
    const std::string_view option =
        url.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
    if (!option.starts_with("guard_") && !option.starts_with("guard-")) return option;
    at = end;
  }
  return {};
}

Status check_store_without_bytes(const std::string& url) {
  const std::string_view part = part_that_needs_bytes(url);
  if (url.empty() || part.empty()) return {};
  return Error(Code::kInvalid,
               "store is " + quoted_text(url) + ", but with metadata_only nothing is stored, and " +
                   quoted_text(part) +
                   " would have no effect; allowed: memory: and the options of guard+, or move "
                   "bytes");
}

}  // namespace

OptionTable replay_option_table() {
  OptionTable table;
  table.add(text("trace", "JSONL file with one request a line (required)"));
  table.add(number("host_blocks", "Capacity of the host tier, in blocks", "10000",
                   Cache::host_blocks_min(), kBlocksMax));
  table.add(number("device_blocks",
                   "Capacity of a device tier that Tiercel owns, in blocks; 0 is none", "0", 0,
                   kBlocksMax));
  table.add(number("block_bytes", "Payload of one block on one rank", "64KiB", kOracleBytesMin,
                   1u << 30, OptionType::kBytes));
  table.add(
      number("block_tokens", "Tokens of a block: 512 or a divisor of it", "512", 1, kTokensPerId));
  table.add(number("ranks", "Ranks that hold a slice of every block", "1", 1, kRankCountMax));
  table.add(rank_host_option());
  table.add(number("kill_rank_every",
                   "Kill a rank's process (-9) each time so many requests have ended; 0 is never. "
                   "One that is not up then is left until it is. Needs rank_host process",
                   "0", 0, 1e12));
  table.add(policy_option());
  table.add(text("store", "URL of a store behind the host tier, such as memory: (see `stores`)"));
  add_disk_options(table);
  table.add(flag("metadata_only", "Move no bytes: for the study of policies", false));
  table.add(
      flag("full_blocks_only", "Leave out the last id of a request if it is not full", false));
  table.add(flag("verify", "Check frame and checksum of every block that arrives", true));
  table.add(flag("prefault", "Touch all host memory at the start, so that no request waits for it",
                 false));
  table.add(number("limit", "Replay only the first requests; 0 is all", "0", 0, 1e12));
  table.add(flag("skip_bad_lines", "Count bad lines of the trace and go on", false));
  table.add(flag("optimum", "Also find what knowing the future would have hit", true));
  table.add(number("deadline", "Longest wait for one load or prefetch, in real time; 0 is none",
                   "0", 0, 3600, OptionType::kDuration));
  table.add(number("patience", "Give up if a request makes no progress for this long, in real time",
                   "60s", 0.01, 86400, OptionType::kDuration));
  add_engine_options(table);
  table.add(text("json", "Write the figures to this file as JSON; - is standard output"));
  table.add(text("config", "TOML file with options (see docs/replay.md)"));
  return table;
}

Result<ReplayOptions> read_replay_options(const OptionValues& values) {
  ReplayOptions options;
  options.trace = get_text(values, "trace");
  options.host_blocks = get_count(values, "host_blocks");
  options.device_blocks = get_count(values, "device_blocks");
  options.block_bytes = static_cast<uint64_t>(values.get_integer("block_bytes"));
  options.block_tokens = get_count(values, "block_tokens");
  options.ranks = get_count(values, "ranks");
  options.rank_host = values.get_string("rank_host") == to_string(RankHost::kProcess)
                          ? RankHost::kProcess
                          : RankHost::kThread;
  options.kill_rank_every = static_cast<uint64_t>(values.get_integer("kill_rank_every"));
  options.policy = values.get_string("policy");
  options.store = get_text(values, "store");
  options.metadata_only = values.get_bool("metadata_only");
  options.full_blocks_only = values.get_bool("full_blocks_only");
  options.verify = values.get_bool("verify");
  options.prefault = values.get_bool("prefault");
  options.limit = static_cast<uint64_t>(values.get_integer("limit"));
  options.skip_bad_lines = values.get_bool("skip_bad_lines");
  options.optimum = values.get_bool("optimum");
  options.deadline = values.get_duration("deadline");
  options.patience = values.get_duration("patience");
  options.engine = read_engine_options(values);
  options.json = get_text(values, "json");
  if (options.trace.empty()) {
    return Error(Code::kInvalid,
                 "trace is not set; name a file, as in --trace data/conversation_trace.jsonl");
  }
  TIERCEL_TRY_ASSIGN(options.disk, read_disk_options(values));
  if (options.engine.enabled && options.engine.step_tokens < options.engine.running_max) {
    // Each request that runs has a token of every step.
    return Error(Code::kInvalid,
                 "engine_step_tokens is " + std::to_string(options.engine.step_tokens) +
                     "; allowed: " + std::to_string(options.engine.running_max) +
                     " (engine_running_max) to " + std::to_string(kEngineStepTokensMax));
  }
  if (options.metadata_only) TIERCEL_TRY(check_store_without_bytes(options.store));
  if (options.metadata_only && options.disk.exists()) {
    return Error(Code::kInvalid,
                 "disk_path is " + quoted_text(options.disk.config.path) +
                     ", but with metadata_only nothing is stored; allowed: one of the two");
  }
  const bool has_processes = options.rank_host == RankHost::kProcess && !options.metadata_only;
  if (options.kill_rank_every > 0 && !has_processes) {
    return Error(Code::kInvalid, "kill_rank_every is " + std::to_string(options.kill_rank_every) +
                                     "; allowed: 0, or set rank_host to process and move bytes");
  }
  if (kTokensPerId % options.block_tokens != 0) {
    return Error(Code::kInvalid, "block_tokens is " + std::to_string(options.block_tokens) +
                                     "; allowed: divisors of " + std::to_string(kTokensPerId) +
                                     ": 1, 2, 4, 8, 16, 32, 64, 128, 256, 512");
  }
  return options;
}

uint64_t longest_request_blocks(const Trace& trace, const ReplayOptions& options) {
  uint64_t longest = 0;
  for (const TraceRequest& request : trace.requests) {
    longest = std::max<uint64_t>(longest, options.used_ids(request));
  }
  return longest * options.blocks_per_id();
}

uint64_t index_bytes_per_block(const ReplayOptions& options) {
  // Node, table, place and the fills' table, for each block and each 32nd one to spare; then what
  // stands beside each slot.
  uint64_t bytes = (48 + 8 + 16 + 4) * 33 / 32 + 6;
  // Places of two tiers stand in a pool or by node, whichever is less: 8 bytes more at most.
  if (options.device_blocks > 0) bytes += 9;
  if (options.policy == "s3fifo") bytes += kGhostBytes;  // what it remembers of departed blocks
  return bytes;
}

Status check_replay_memory(const ReplayOptions& options, uint64_t longest_request_blocks,
                           const MemoryLimit& memory) {
  const bool moves_bytes = !options.metadata_only;
  const uint64_t index_bytes = index_bytes_per_block(options);
  const uint64_t device_stride =
      moves_bytes ? saturating_product(options.block_bytes, options.ranks) : 0;
  const uint64_t slot_bytes = moves_bytes ? slot_stride_bytes(options.block_bytes) : 0;
  const uint64_t host_stride = index_bytes + slot_bytes * options.ranks;
  uint64_t device_bytes =
      saturating_product(device_stride, options.device_blocks + longest_request_blocks);
  if (options.device_blocks > 0) {
    device_bytes += (options.device_blocks + longest_request_blocks) * index_bytes;
  }
  // What a block is made of, as far as it plays a part.
  const std::string size = moves_bytes
                               ? " on " + std::to_string(options.ranks) +
                                     " ranks with block_bytes " + format_bytes(options.block_bytes)
                               : " of index";
  const std::string limit = format_bytes(memory.bytes) + " (" + memory.source + ")";
  if (device_bytes > memory.bytes) {
    const std::string longest =
        std::to_string(longest_request_blocks) + " blocks of the longest request";
    const std::string what =
        options.device_blocks > 0
            ? "device_blocks is " + std::to_string(options.device_blocks) + ": with the " + longest
            : "the " + longest + " must stand on the device at once: that";
    return Error(Code::kNoSpace, what + " takes " + format_bytes(device_bytes) + size +
                                     "; allowed: up to " + limit + " in all");
  }
  const uint64_t allowed = (memory.bytes - device_bytes) / host_stride;
  if (options.host_blocks > allowed) {
    std::string message = "host_blocks is " + std::to_string(options.host_blocks) +
                          ", which takes " +
                          format_bytes(saturating_product(host_stride, options.host_blocks)) + size;
    if (moves_bytes) message += ", each in a slot of " + format_bytes(slot_bytes);
    if (device_bytes > 0) {
      message += ", beside " + format_bytes(device_bytes) + " for the device blocks";
    }
    if (allowed < Cache::host_blocks_min()) {
      return Error(Code::kNoSpace, message + "; not even the least, " +
                                       std::to_string(Cache::host_blocks_min()) + ", fits into " +
                                       limit);
    }
    return Error(Code::kNoSpace, message +
                                     "; allowed: " + std::to_string(Cache::host_blocks_min()) +
                                     " to " + std::to_string(allowed) + ", in " + limit);
  }
  return {};
}

}  // namespace tiercel
