// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/check_report.h"

#include <cinttypes>
#include <cstdio>

namespace tiercel::tiny {
namespace {

// Text columns to the left, numbers to the right.
constexpr const char* kFormat =
    "%-27s %-9s %-4s %5s %8s %7s %9s %7s %7s %7s %6s %6s %9s  %-6s  %s\n";

std::string formatted(const std::string (&cells)[15]) {
  char line[320];
  const int length = std::snprintf(
      line, sizeof line, kFormat, cells[0].c_str(), cells[1].c_str(), cells[2].c_str(),
      cells[3].c_str(), cells[4].c_str(), cells[5].c_str(), cells[6].c_str(), cells[7].c_str(),
      cells[8].c_str(), cells[9].c_str(), cells[10].c_str(), cells[11].c_str(), cells[12].c_str(),
      cells[13].c_str(), cells[14].c_str());
  if (length < 0) return {};
  return {line, std::min<size_t>(static_cast<size_t>(length), sizeof line - 1)};
}

std::string verdict(uint64_t wrong) {
  return wrong == 0 ? "equal" : std::to_string(wrong) + " WRONG";
}

}  // namespace

std::string report_header() {
  return formatted({"configuration", "attention", "KV", "ranks", "requests", "tokens", "preempted",
                    "aborted", "device", "loaded", "disk", "store", "compared", "logits", "bytes"});
}

std::string report_line(std::string_view name, const TinyConfig& config,
                        const CaseOutcome& outcome) {
  const TinyFindings& findings = outcome.findings;
  std::string text =
      formatted({std::string(name), config.window_layers == 0 ? "full" : "hybrid",
                 std::string(to_string(config.kv_type)), std::to_string(config.rank_count),
                 std::to_string(outcome.requests), std::to_string(outcome.computed_tokens),
                 std::to_string(outcome.preempted), std::to_string(outcome.aborted),
                 std::to_string(outcome.device_blocks), std::to_string(outcome.loaded_blocks),
                 std::to_string(outcome.disk_blocks), std::to_string(outcome.store_blocks),
                 std::to_string(findings.compared_blocks), verdict(outcome.wrong_answers),
                 verdict(findings.wrong_blocks)});
  for (const std::string& complaint : findings.complaints) text += "    " + complaint + "\n";
  for (const std::string& complaint : outcome.complaints) text += "    " + complaint + "\n";
  for (const std::string& what : outcome.unproven) text += "    not proven: " + what + "\n";
  return text;
}

}  // namespace tiercel::tiny
