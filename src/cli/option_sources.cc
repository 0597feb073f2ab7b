// SPDX-License-Identifier: Apache-2.0
#include "cli/option_sources.h"

#include <algorithm>

namespace tiercel {
namespace {

constexpr std::string_view kPrefix = "TIERCEL_";
constexpr std::string_view kConfig = "config";

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
  // A later source stays when an earlier one is read after it, so the file can come last: only then
  // is it known which one.
  OptionValues values = table.defaults();
  TIERCEL_TRY(table.read_environment(values, environment, kPrefix));
  TIERCEL_TRY(read_command_line(table, command_line, values));
  if (table.find(kConfig) == nullptr || !values.is_set(kConfig)) return values;
  const std::string path = values.get_string(kConfig);
  if (path.empty()) return values;
  TIERCEL_TRY(table.read_file(values, path));
  return values;
}

}  // namespace tiercel
