// SPDX-License-Identifier: Apache-2.0
//
// The table of the check: a line for each configuration.
#pragma once

#include <string>
#include <string_view>

#include "tiny_llm/check_run.h"

namespace tiercel::tiny {

// The names of the columns.
std::string report_header();

// One line, and below it what was wrong.
std::string report_line(std::string_view name, const TinyConfig& config,
                        const CaseOutcome& outcome);

}  // namespace tiercel::tiny
