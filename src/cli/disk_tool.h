// SPDX-License-Identifier: Apache-2.0
//
// What `tiercel inspect` and `tiercel verify` have in common: their options and their end. Options
// come from the command line alone: no file or environment of an engine changes what a tool looks
// at, or lets it repair.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/status.h"

#include "base/option_table.h"
#include "cli/commands.h"
#include "cli/option_sources.h"
#include "cli/result_file.h"

namespace tiercel {

OptionTable inspect_option_table();
OptionTable verify_option_table();

struct DiskToolOptions {
  std::string path;
  std::vector<std::string> instances;  // that are there; the one that was asked for, or all
  bool repair = false;
  std::string json;
};

// kInvalid for the options, and as list_disk_instances(); kNotFound, naming those that are there,
// if the instance, or any at all, is not.
Result<DiskToolOptions> read_disk_tool_options(const OptionValues& values);

// Writes `json` where `json_option` says, and returns the exit status: `status`, or that of what
// could not be written or was stopped.
int end_disk_tool(const CommandContext& context, std::string_view command,
                  const std::string& json_option, std::optional<ResultFile>& json_file,
                  const std::string& json, int status);

}  // namespace tiercel
