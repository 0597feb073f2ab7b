// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/disk_check.h"
#include "cli/disk_tool.h"
#include "cli/progress_bar.h"
#include "cli/result_file.h"

namespace tiercel {
namespace {

using Json = nlohmann::ordered_json;

// By SlotState.
constexpr const char* kStateNames[] = {"empty",   "blocks",    "duplicates", "disagreeing",
                                       "cleared", "misplaced", "bad"};
static_assert(std::size(kStateNames) == kSlotStateCount);

uint64_t slot_count(const DiskCheckReport& report) {
  uint64_t count = 0;
  for (const uint64_t slots : report.slots) count += slots;
  return count;
}

std::string verdict(const DiskCheckReport& report, bool repair) {
  if (!report.complete) {
    std::string text = "stopped: the rest was not looked at";
    if (repair) text += ", and nothing was dropped";
    if (report.unsettled > 0) {
      text += fmt::format("; {} places looked bad, but may just have been written to",
                          report.unsettled);
    }
    return text;
  }
  if (report.fault_count() == 0) return "all is well";
  if (!repair) {
    return fmt::format("{} faults; whatever is read of them counts as a miss (--repair drops them)",
                       report.fault_count());
  }
  std::string text = fmt::format("dropped {} slots on every rank", report.dropped);
  if (report.dropped_stale > 0) {
    text += fmt::format(", and {} stale records", report.dropped_stale);
  }
  if (report.mended_headers > 0) {
    text += fmt::format("; wrote {} headers anew", report.mended_headers);
  }
  return text + fmt::format("; {} faults are left", report.remaining_faults);
}

std::string to_text(const DiskCheckReport& report, bool repair) {
  std::string text = escaped_path(report.path) + "\n";
  if (report.holder) {
    text +=
        "  in use by " + *report.holder + "; what changed while it was read was looked at again\n";
  }
  text += fmt::format("  checked {} slots, {} payloads, {}\n", slot_count(report),
                      report.checked_payloads, format_bytes(report.checked_bytes));
  std::string stale;
  for (const SlotState state :
       {SlotState::kDuplicate, SlotState::kCleared, SlotState::kMisplaced}) {
    const uint64_t count = report.slots[static_cast<size_t>(state)];
    if (count == 0) continue;
    stale += fmt::format("{}{} {}", stale.empty() ? "" : ", ", count,
                         kStateNames[static_cast<size_t>(state)]);
  }
  if (!stale.empty()) text += "  stale, as use leaves them: " + stale + "\n";
  for (size_t i = 0; i < kDiskFaultCount; ++i) {
    const DiskFaultFigures& figures = report.faults[i];
    if (figures.count == 0) continue;
    text += fmt::format("  {:<11}{:>6}  ", to_string(static_cast<DiskFault>(i)), figures.count);
    for (size_t place = 0; place < figures.places.size(); ++place) {
      text += (place == 0 ? "" : "; ") + figures.places[place];
    }
    text += figures.count > figures.places.size() ? "; …\n" : "\n";
  }
  return text + "  " + verdict(report, repair) + "\n";
}

Json to_json(const DiskCheckReport& report) {
  Json json;
  json["path"] = report.path;
  json["holder"] = report.holder ? Json(*report.holder) : Json();
  json["complete"] = report.complete;
  for (size_t state = 0; state < kSlotStateCount; ++state) {
    json["slots"][kStateNames[state]] = report.slots[state];
  }
  json["checked_payloads"] = report.checked_payloads;
  json["checked_bytes"] = report.checked_bytes;
  json["changed_meanwhile"] = report.changed_meanwhile;
  json["unsettled"] = report.unsettled;
  for (size_t i = 0; i < kDiskFaultCount; ++i) {
    json["faults"][std::string(to_string(static_cast<DiskFault>(i)))] = {
        {"count", report.faults[i].count}, {"places", report.faults[i].places}};
  }
  json["dropped"] = report.dropped;
  json["dropped_stale"] = report.dropped_stale;
  json["mended_headers"] = report.mended_headers;
  json["remaining_faults"] = report.remaining_faults;
  return json;
}

int refuse(const CommandContext& context, const Error& error) {
  context.error << "tiercel verify: " << error.message() << "\n";
  return kExitRefused;
}

}  // namespace

int run_verify_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const auto values = read_option_sources(verify_option_table(), command_line, nullptr);
  if (!values) return refuse(context, values.error());
  auto options = read_disk_tool_options(*values);
  if (!options) return refuse(context, options.error());
  options->repair = values->get_bool("repair");
  auto json_file = open_json_file(options->json, *values);
  if (!json_file) return refuse(context, json_file.error());
  if (context.started != nullptr) context.started->store(true);

  int status = kExitOk;
  Json list = Json::array();
  DiskCheckContext check{.clock = context.clock, .stop = context.stop, .progress = {}};
  for (const std::string& name : options->instances) {
    if (check.stopped()) break;
    std::optional<ProgressBar> bar;
    if (context.error_is_terminal) {
      bar.emplace(context.error, context.clock, "slots");
      check.progress = [&bar](uint64_t done, uint64_t all) { bar->show(done, all); };
    }
    const Result<DiskCheckReport> report =
        check_disk({options->path, name, options->repair}, check);
    bar.reset();
    if (!report) {
      context.error << "tiercel verify: " << report.error().message() << "\n";
      // What was refused has been left alone.
      status = std::max(status, report.code() == Code::kBusy ? kExitRefused : kExitFailed);
      continue;
    }
    if (report->remaining_faults > 0) status = std::max(status, kExitFailed);
    list.push_back(to_json(*report));
    if (options->json != kStandardOutput) {
      context.out << to_text(*report, options->repair) << std::flush;
    }
  }
  const std::string json = list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return end_disk_tool(context, "verify", options->json, *json_file, json, status);
}

}  // namespace tiercel
