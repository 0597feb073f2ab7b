// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_options.h"

#include <algorithm>
#include <filesystem>

#include "cli/bench.h"

namespace tiercel {
namespace {

constexpr uint32_t kLargeIndexBlocks = 10'000'000;
constexpr uint64_t kDiskSizeMax = uint64_t{1} << 30;
constexpr uint64_t kArenaBytesMax = uint64_t{1} << 40;
constexpr uint32_t kLargeCacheBlocks = 1'000'000;

Option number(std::string name, std::string help, std::string default_value, double minimum,
              double maximum, OptionType type = OptionType::kInteger) {
  return make_option(std::move(name), type, std::move(help), std::move(default_value), minimum,
                     maximum);
}

std::string known_subjects() {
  std::string names;
  for (const BenchSubject& subject : bench_subjects()) {
    if (!names.empty()) names += ",";
    names += subject.name;
  }
  return names;
}

Result<std::vector<std::string>> read_subjects(const std::string& text) {
  std::vector<std::string> subjects;
  std::vector<std::string_view> known;
  for (const BenchSubject& subject : bench_subjects()) known.push_back(subject.name);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string_view nearest = nearest_name(name, known);
      return Error(
          Code::kInvalid,
          "subjects has " + quoted_text(name) + "; allowed: " + known_subjects() +
              (nearest.empty() ? std::string() : "; did you mean '" + std::string(nearest) + "'?"));
    }
    if (std::find(subjects.begin(), subjects.end(), name) != subjects.end()) {
      return Error(Code::kInvalid,
                   "subjects has " + quoted_text(name) + " twice; allowed: each of them once");
    }
    subjects.push_back(std::move(name));
  }
  return subjects;
}

std::string temporary_folder() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error);
  return error ? std::string(".") : path.string();
}

Result<std::vector<uint64_t>> read_sizes(const std::string& option, const std::string& text,
                                         uint64_t bytes_max) {
  std::vector<uint64_t> sizes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const Result<uint64_t> size = parse_bytes(part);
    begin = end + 1;
    if (!size || *size == 0 || *size > bytes_max) {
      return Error(Code::kInvalid, option + " has " + quoted_text(part) +
                                       "; allowed: sizes of 1 byte to " + format_bytes(bytes_max) +
                                       ", as in 64KiB,1MiB");
    }
    if (std::find(sizes.begin(), sizes.end(), *size) != sizes.end()) {
      return Error(Code::kInvalid,
                   option + " has " + quoted_text(part) + " twice; allowed: each of them once");
    }
    sizes.push_back(*size);
  }
  return sizes;
}

uint32_t get_count(const OptionValues& values, std::string_view name) {
  return static_cast<uint32_t>(values.get_integer(name));
}

}  // namespace

OptionTable bench_option_table() {
  OptionTable table;
  table.add(make_option("subjects", OptionType::kString,
                        "What to measure, separated by commas; also as plain words",
                        known_subjects()));
  table.add(
      number("runs", "Runs of each measurement, each beside one of its limit", "9", 1, 10000));
  table.add(number("tokens", "Tokens of one request (key, cache, engine)", "50000", 1, 10e6));
  table.add(number("block_tokens", "Tokens of a block", "16", 1, 65536));
  table.add(number("index_blocks", "Blocks of the larger index (index)", "1000000", 1, 100e6));
  table.add(number("checksum_bytes", "Largest piece to checksum (checksum)", "16MiB", 1, 1u << 30,
                   OptionType::kBytes));
  table.add(number("host_bytes",
                   "Payload of the host tier; as much again stands for the device (host, copy)",
                   "1GiB", 4096, 1e12, OptionType::kBytes));
  table.add(number("host_block_bytes",
                   "Payload of a block; host measures four times that too (host, copy)", "1MiB", 1,
                   1u << 28, OptionType::kBytes));
  table.add(
      number("ring_round_trips", "Round trips of one run, and batches (ring)", "2000", 1, 1e6));
  table.add(number("cache_blocks", "Blocks of the host tier (cache)", "100000", 4, 100e6));
  table.add(make_option("disk_path", OptionType::kString,
                        "Folder in which the files are made, and removed at the end (disk)",
                        temporary_folder()));
  table.add(make_option("disk_sizes", OptionType::kString,
                        "Payloads of a block, separated by commas (disk)",
                        "64KiB,256KiB,1MiB,4MiB"));
  table.add(number("disk_file_bytes", "Bound on the tier's files; fio's take as much again (disk)",
                   "1GiB", 65536, 1e12, OptionType::kBytes));
  table.add(number("disk_queue_depth", "Requests with the disk at once (disk)", "32", 1, 4096));
  table.add(number("disk_reopen_blocks", "Blocks of the tier that is opened again (disk)",
                   "1000000", 1, 100e6));
  table.add(make_option("mooncake", OptionType::kString,
                        "Pool to measure on (mooncake://host:port), or the path of "
                        "scripts/mooncake-dev, which then starts one for the run (mooncake)",
                        ""));
  table.add(number("mooncake_rounds",
                   "Rounds of each batch, in turns with the raw client (mooncake)", "20", 1,
                   10000));
  table.add(number("mooncake_batch_bytes", "Payload of a batch (mooncake)", "32MiB", 65536, 1e10,
                   OptionType::kBytes));
  table.add(number("mooncake_round_trips", "Calls whose time is taken one by one (mooncake)", "200",
                   1, 1e6));
  table.add(number("mooncake_faults",
                   "Times that the pool is broken, where it is the run's own "
                   "(mooncake)",
                   "20", 1, 10000));
  table.add(make_option("mooncake_arenas", OptionType::kString,
                        "Sizes of the memory with which a sidecar is started again, separated by "
                        "commas (mooncake)",
                        "64MiB,1GiB,4GiB"));
  table.add(make_option("large", OptionType::kBool,
                        "Also an index of 10 million blocks, and at least 1 million cache_blocks",
                        "false"));
  table.add(make_option("json", OptionType::kString,
                        "Write the figures to this file as JSON; - is standard output", ""));
  table.add(make_option("config", OptionType::kString, "TOML file with options", ""));
  return table;
}

Result<BenchOptions> read_bench_options(const OptionValues& values) {
  BenchOptions options;
  TIERCEL_TRY_ASSIGN(options.subjects, read_subjects(values.get_string("subjects")));
  options.runs = get_count(values, "runs");
  options.tokens = get_count(values, "tokens");
  options.block_tokens = get_count(values, "block_tokens");
  options.index_blocks = get_count(values, "index_blocks");
  options.checksum_bytes = static_cast<uint64_t>(values.get_integer("checksum_bytes"));
  options.host_bytes = static_cast<uint64_t>(values.get_integer("host_bytes"));
  options.host_block_bytes = static_cast<uint64_t>(values.get_integer("host_block_bytes"));
  options.ring_round_trips = get_count(values, "ring_round_trips");
  options.cache_blocks = get_count(values, "cache_blocks");
  options.disk_path = values.get_string("disk_path");
  TIERCEL_TRY_ASSIGN(options.disk_sizes,
                     read_sizes("disk_sizes", values.get_string("disk_sizes"), kDiskSizeMax));
  options.disk_file_bytes = static_cast<uint64_t>(values.get_integer("disk_file_bytes"));
  options.disk_queue_depth = get_count(values, "disk_queue_depth");
  options.disk_reopen_blocks = get_count(values, "disk_reopen_blocks");
  options.mooncake = values.is_set("mooncake") ? values.get_string("mooncake") : "";
  options.mooncake_rounds = get_count(values, "mooncake_rounds");
  options.mooncake_batch_bytes = static_cast<uint64_t>(values.get_integer("mooncake_batch_bytes"));
  options.mooncake_round_trips = get_count(values, "mooncake_round_trips");
  options.mooncake_faults = get_count(values, "mooncake_faults");
  TIERCEL_TRY_ASSIGN(
      options.mooncake_arenas,
      read_sizes("mooncake_arenas", values.get_string("mooncake_arenas"), kArenaBytesMax));
  options.large = values.get_bool("large");
  if (values.is_set("json")) options.json = values.get_string("json");
  if (options.large) {
    options.index_blocks = std::max(options.index_blocks, kLargeIndexBlocks);
    options.cache_blocks = std::max(options.cache_blocks, kLargeCacheBlocks);
  }
  if (options.tokens < options.block_tokens) {
    return Error(Code::kInvalid, "tokens is " + std::to_string(options.tokens) +
                                     "; allowed: at least block_tokens, " +
                                     std::to_string(options.block_tokens));
  }
  if (options.cache_blocks < 2 * options.request_blocks()) {
    return Error(Code::kInvalid, "cache_blocks is " + std::to_string(options.cache_blocks) +
                                     "; allowed: at least twice the " +
                                     std::to_string(options.request_blocks()) +
                                     " blocks of a request");
  }
  return options;
}

}  // namespace tiercel
