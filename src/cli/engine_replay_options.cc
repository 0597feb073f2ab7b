// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_replay_options.h"

#include <string>
#include <utility>

#include "tiercel/cache.h"

namespace tiercel {
namespace {

constexpr double kBlocksMax = 1u << 26;
constexpr double kBytesMax = 1e15;

Option number(std::string name, std::string help, std::string value, double low, double high,
              OptionType type = OptionType::kInteger) {
  return make_option("engine_" + std::move(name), type, std::move(help), std::move(value), low,
                     high);
}

void add_link(OptionTable& table, const std::string& name, const std::string& what,
              const std::string& latency, const std::string& bandwidth) {
  table.add(number(name + "_latency", "With engine: latency of " + what, latency, 0, 3600,
                   OptionType::kDuration));
  table.add(number(name + "_bandwidth", "With engine: bytes a second of " + what, bandwidth, 1,
                   kBytesMax, OptionType::kBytes));
  table.add(
      number(name + "_concurrency", "With engine: operations at once on " + what, "32", 1, 65536));
}

LinkSpeed read_link(const OptionValues& values, const std::string& name) {
  return {values.get_duration("engine_" + name + "_latency"),
          static_cast<double>(values.get_integer("engine_" + name + "_bandwidth")),
          static_cast<uint32_t>(values.get_integer("engine_" + name + "_concurrency"))};
}

uint32_t get_count(const OptionValues& values, const char* name) {
  return static_cast<uint32_t>(values.get_integer(name));
}

}  // namespace

void add_engine_options(OptionTable& table) {
  table.add(make_option("engine", OptionType::kBool,
                        "Run a whole engine over the trace in virtual time, with and without each "
                        "tier, and report times to the first token",
                        "false"));
  table.add(number("speedup", "With engine: requests arrive so many times faster", "1", 0.01, 100,
                   OptionType::kReal));
  table.add(number("block_bytes", "With engine: payload of one block on one rank", "16MiB", 1,
                   1u << 30, OptionType::kBytes));
  table.add(number("device_blocks", "With engine: device blocks", "4000", 1, kBlocksMax));
  table.add(number("host_blocks", "With engine: capacity of the host tier, in blocks", "10000",
                   Cache::host_blocks_min(), kBlocksMax));
  table.add(number("disk_blocks", "With engine: capacity of the disk tier, in blocks", "30000", 1,
                   kBlocksMax));
  table.add(number("prefill_rate", "With engine: tokens of prefill a second, without context",
                   "80000", 1, 1e9, OptionType::kReal));
  table.add(number("context_doubling",
                   "With engine: context at which a token of prefill costs twice as much; 0: never",
                   "131072", 0, 1e9, OptionType::kReal));
  table.add(
      number("step_time", "With engine: time of every step", "10ms", 0, 60, OptionType::kDuration));
  table.add(number("decode_time", "With engine: time of every token that is decoded", "100us", 0,
                   60, OptionType::kDuration));
  table.add(number("step_tokens",
                   "With engine: tokens of a step at most; at least engine_running_max", "8192", 1,
                   kEngineStepTokensMax));
  table.add(number("running_max", "With engine: requests that run at once", "256", 1, 65536));
  add_link(table, "device", "the way between host tier and device", "50us", "25GB");
  add_link(table, "disk", "the disk", "200us", "3GB");
  add_link(table, "store", "the store", "2ms", "5GB");
  table.add(make_option("engine_choose", OptionType::kBool,
                        "With engine: load only what is expected to be there before it is computed",
                        "true"));
  table.add(number("stall_at", "With engine: when the store stalls, in the time of the trace",
                   "20min", 0, 86400, OptionType::kDuration));
  table.add(number("stall", "With engine: how long the store stalls; 0: not at all, 24h: for ever",
                   "0", 0, 86400, OptionType::kDuration));
}

EngineOptions read_engine_options(const OptionValues& values) {
  EngineOptions options;
  options.enabled = values.get_bool("engine");
  options.speedup = values.get_real("engine_speedup");
  options.block_bytes = static_cast<uint64_t>(values.get_integer("engine_block_bytes"));
  options.device_blocks = get_count(values, "engine_device_blocks");
  options.host_blocks = get_count(values, "engine_host_blocks");
  options.disk_blocks = get_count(values, "engine_disk_blocks");
  options.prefill = {values.get_real("engine_prefill_rate"),
                     values.get_real("engine_context_doubling")};
  options.step_time = values.get_duration("engine_step_time");
  options.decode_time = values.get_duration("engine_decode_time");
  options.step_tokens = get_count(values, "engine_step_tokens");
  options.running_max = get_count(values, "engine_running_max");
  options.device = read_link(values, "device");
  options.disk = read_link(values, "disk");
  options.store = read_link(values, "store");
  options.choose = values.get_bool("engine_choose");
  options.stall_at = values.get_duration("engine_stall_at");
  options.stall = values.get_duration("engine_stall");
  return options;
}

}  // namespace tiercel
