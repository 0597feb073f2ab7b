// SPDX-License-Identifier: Apache-2.0
//
// Reads one option table from everywhere that options may stand: defaults < file < environment <
// command line. The option `config`, if the table has it, names the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tiercel/status.h"

#include "base/option_table.h"

namespace tiercel {

// What stood on the command line: name as in the table (or with '-'), text, in order.
using CommandLineOptions = std::vector<std::pair<std::string, std::string>>;

// `environment` as environ; null: none. Variables are TIERCEL_ + upper-case name. Those of another
// command or of the project's scripts are passed over, so that they can be exported for all.
Result<OptionValues> read_option_sources(const OptionTable& table,
                                         const CommandLineOptions& command_line,
                                         const char* const* environment);

// "--host-blocks" for "host_blocks".
std::string option_flag(std::string_view name);

}  // namespace tiercel
