// SPDX-License-Identifier: Apache-2.0
#include "cli/option_sources.h"

#include <algorithm>
#include <array>

#include "cli/bench_options.h"
#include "cli/replay_options.h"

namespace tiercel {
namespace {

constexpr std::string_view kPrefix = "TIERCEL_";
constexpr std::string_view kConfig = "config";

// What is no option of any command, but may be exported beside them, for scripts and tests
// (CONTRIBUTING.md); tests/house/variables_test.py finds one that is missing.
constexpr std::array kScriptVariables = {"crash_all",         "crash_rounds",    "crash_seed",
                                         "fuzz_seconds",      "mooncake_python", "without_mooncake",
                                         "without_namespaces"};

std::vector<std::string> known_names() {
  std::vector<std::string> names(kScriptVariables.begin(), kScriptVariables.end());
  for (const OptionTable& table : {replay_option_table(), bench_option_table()}) {
    for (const Option& option : table.options()) names.push_back(option.name);
  }
  return names;
}

Status read_command_line(const OptionTable& table, const CommandLineOptions& command_line,
                         OptionValues& values) {
  for (const auto& [name, text] : command_line) {
    TIERCEL_TRY(table.set(values, name, text, OptionSource::kCommandLine, option_flag(name)));
  }
  return {};
}

}  // namespace

std::string option_flag(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Result<OptionValues> read_option_sources(const OptionTable& table,
                                         const CommandLineOptions& command_line,
                                         const char* const* environment) {
  // The last two say which file there is, so they are read first, and once more over the file.
  OptionValues values = table.defaults();
  const std::vector<std::string> others = known_names();
  TIERCEL_TRY(table.read_environment(values, environment, kPrefix, others));
  TIERCEL_TRY(read_command_line(table, command_line, values));
  if (table.find(kConfig) == nullptr || !values.is_set(kConfig)) return values;
  const std::string path = values.get_string(kConfig);
  OptionValues of_file = table.defaults();
  TIERCEL_TRY(table.read_file(of_file, path));
  if (of_file.is_set(kConfig)) {
    return Error(Code::kInvalid, "configuration file " + quoted_path(path) +
                                     " sets config; allowed: only --config and TIERCEL_CONFIG "
                                     "name a file");
  }
  TIERCEL_TRY(table.read_environment(of_file, environment, kPrefix, others));
  TIERCEL_TRY(read_command_line(table, command_line, of_file));
  return of_file;
}

}  // namespace tiercel
