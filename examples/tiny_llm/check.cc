// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include "base/quantity.h"
#include "store/registry.h"
#include "tiny_llm/check_report.h"

namespace tiercel::tiny {
namespace {

constexpr std::array kFaults = {PlantedFault::kByteFlip, PlantedFault::kSwapBlocks,
                                PlantedFault::kShareUncomputed, PlantedFault::kStaleWeights};

Option choice(std::string name, std::string help, std::string default_value,
              std::vector<std::string> choices) {
  Option option =
      make_option(std::move(name), OptionType::kChoice, std::move(help), std::move(default_value));
  option.choices = std::move(choices);
  return option;
}

std::vector<TinyConfig> configs_of(const CheckOptions& options) {
  std::vector<TinyConfig> configs;
  for (const uint32_t window_layers : options.window_layers) {
    for (const KvType kv_type : options.kv_types) {
      for (const uint32_t rank_count : options.rank_counts) {
        TinyConfig& config = configs.emplace_back(options.world.config);
        config.window_layers = window_layers;
        config.kv_type = kv_type;
        config.rank_count = rank_count;
      }
    }
  }
  return configs;
}

// Whether files can be made in it; it is made if it is not there.
Status check_folder(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return Error(Code::kInvalid, "disk_path: " + quoted_text(path) + " cannot be used: " + why +
                                     "; name a folder that can be written");
  };
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return refuse(error.message());
  std::string trial = path + "/tiercel-tiny-trial-XXXXXX";
  if (::mkdtemp(trial.data()) == nullptr) return refuse(std::strerror(errno));
  ::rmdir(trial.c_str());
  return {};
}

// What would else be found out in the middle of the table.
Status check_start(const CheckWorld::Options& world, const std::vector<CheckCase>& cases,
                   const Clock& clock) {
  TIERCEL_TRY_ASSIGN(const auto store,
                     make_store_registry()->open(world.store_url, StoreContext{clock}));
  const auto has_disk = [](const CheckCase& some) { return some.disk; };
  if (std::none_of(cases.begin(), cases.end(), has_disk)) return {};
  return check_folder(world.disk_folder);
}

}  // namespace

OptionTable tiny_option_table() {
  OptionTable table;
  table.add(make_option("check", OptionType::kBool,
                        "Run the same prompts with and without a cache, and compare logits, tokens "
                        "and the bytes of every block",
                        "false"));
  table.add(choice("kv", "Element type of the KV", "all", {"all", "fp32", "bf16"}));
  table.add(choice("ranks", "Ranks that share the heads", "all", {"all", "1", "2"}));
  table.add(
      choice("attention",
             "Full attention in every layer, or hybrid: a window in the last one, which makes "
             "two groups of layers with block tables of their own",
             "all", {"all", "full", "hybrid"}));
  table.add(make_option("only", OptionType::kString,
                        "Only configurations whose name contains this text", ""));
  table.add(make_option("layers", OptionType::kInteger, "Layers of the model", "2", 2, 64));
  table.add(make_option("block_tokens", OptionType::kInteger, "Tokens of a block", "8", 4, 64));
  table.add(make_option("more_requests", OptionType::kInteger,
                        "Random requests in each wave, beside those that are always there", "0", 0,
                        1000));
  table.add(make_option("seed", OptionType::kInteger, "Of the prompts", "1", 0, 1e15));
  table.add(make_option("store", OptionType::kString,
                        "URL of the store of the configurations that have one", "memory:tiny"));
  table.add(
      make_option("model_id", OptionType::kString,
                  "Part of the namespace: under another name nothing is found of what earlier "
                  "runs have left in a store or folder that lasts",
                  "tiercel-tiny"));
  table.add(make_option("disk_path", OptionType::kString,
                        "Folder for the configurations with a disk; else a temporary one", ""));
  std::vector<std::string> faults{std::string(to_string(PlantedFault::kNone))};
  for (const PlantedFault fault : kFaults) faults.emplace_back(to_string(fault));
  table.add(choice("plant", "Plant a fault, which the check must find", "none", faults));
  return table;
}

Result<CheckOptions> read_check_options(const OptionValues& values) {
  CheckOptions options;
  const std::string& kv = values.get_string("kv");
  for (const KvType type : {KvType::kFp32, KvType::kBf16}) {
    if (kv == "all" || kv == to_string(type)) options.kv_types.push_back(type);
  }
  const std::string& ranks = values.get_string("ranks");
  for (const uint32_t count : {1u, 2u}) {
    if (ranks == "all" || ranks == std::to_string(count)) options.rank_counts.push_back(count);
  }
  const std::string& attention = values.get_string("attention");
  if (attention != "hybrid") options.window_layers.push_back(0);
  if (attention != "full") options.window_layers.push_back(1);
  if (values.is_set("only")) options.only = values.get_string("only");
  options.world.config.layers = static_cast<uint32_t>(values.get_integer("layers"));
  options.world.config.block_tokens = static_cast<uint32_t>(values.get_integer("block_tokens"));
  options.world.config.model_id = values.get_string("model_id");
  options.world.workload.seed = static_cast<uint64_t>(values.get_integer("seed"));
  options.world.workload.more_requests = static_cast<uint32_t>(values.get_integer("more_requests"));
  options.world.store_url = values.get_string("store");
  if (values.is_set("disk_path")) options.world.disk_folder = values.get_string("disk_path");
  const std::string& plant = values.get_string("plant");
  for (const PlantedFault fault : kFaults) {
    if (plant == to_string(fault)) options.world.fault = fault;
  }
  return options;
}

Result<CheckVerdict> run_check(const CheckOptions& options, const Clock& clock,
                               const std::function<void(std::string_view)>& print) {
  std::vector<CheckCase> cases;
  for (const CheckCase& check_case : check_cases()) {
    if (check_case.name.find(options.only) != std::string_view::npos) cases.push_back(check_case);
  }
  if (cases.empty()) {
    return Error(Code::kInvalid, "only is '" + options.only + "', which no configuration has");
  }
  TIERCEL_TRY(check_start(options.world, cases, clock));
  CheckVerdict verdict = CheckVerdict::kRight;
  uint64_t planted = 0;
  print(report_header());
  for (const TinyConfig& config : configs_of(options)) {
    CheckWorld::Options world_options = options.world;
    world_options.config = config;
    world_options.new_weights = std::any_of(
        cases.begin(), cases.end(), [](const CheckCase& some) { return some.has_new_weights(); });
    TIERCEL_TRY_ASSIGN(const auto world, CheckWorld::create(world_options, clock));
    for (const CheckCase& check_case : cases) {
      TIERCEL_TRY_ASSIGN(const CaseOutcome outcome, run_case(check_case, *world));
      print(report_line(check_case.name, config, outcome));
      planted += outcome.findings.planted_faults;
      if (outcome.is_wrong()) {
        verdict = CheckVerdict::kWrong;
      } else if (!outcome.ok() && verdict == CheckVerdict::kRight) {
        verdict = CheckVerdict::kNotProven;
      }
      if (outcome.stuck) return verdict;
    }
  }
  if (options.world.fault != PlantedFault::kNone && planted == 0) {
    return Error(Code::kInvalid, "plant is " + std::string(to_string(options.world.fault)) +
                                     ", but no configuration had a place for it");
  }
  return verdict;
}

}  // namespace tiercel::tiny
