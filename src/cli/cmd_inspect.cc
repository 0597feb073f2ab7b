// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>
#include <map>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/disk_survey.h"
#include "cli/disk_tool.h"
#include "cli/progress_bar.h"
#include "cli/result_file.h"

namespace tiercel {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNamespaceDigits = 16;

struct Amount {
  uint64_t blocks = 0, bytes = 0;
};

struct NamespaceFigures {
  Amount amount;
  int64_t youngest_unix_s = INT64_MIN, oldest_unix_s = INT64_MAX;
};

struct ExtentFigures {
  uint64_t total = 0, in_use = 0, partly_full = 0;
  uint64_t free_slots = 0;  // in extents that are in use
};

// What is in one instance.
struct Inspection {
  std::string name;
  DiskInstanceLook look;
  std::vector<std::string> faults;
  std::optional<DiskHeader> header;     // of the first rank that can be read
  std::vector<uint64_t> payload_bytes;  // [group], over all ranks that can be read
  DiskSurvey survey;
  std::vector<std::pair<std::string, NamespaceFigures>> name_spaces;
  std::vector<Amount> groups;
  ExtentFigures extents;
  uint64_t unreachable = 0;
  uint64_t file_bytes = 0, allocated_bytes = 0;
};

void count_blocks(Inspection& inspection) {
  const DiskSurvey& survey = inspection.survey;
  std::vector<NamespaceFigures> figures(survey.name_spaces.size());
  inspection.groups.resize(inspection.header->payload_bytes.size());
  for (const SurveyedSlot& slot : survey.slots) {
    if (slot.state != SlotState::kBlock) continue;
    NamespaceFigures& name_space = figures[slot.name_space];
    for (Amount* amount : {&name_space.amount, &inspection.groups[slot.group.value()]}) {
      ++amount->blocks;
      amount->bytes += slot.stored_bytes;
    }
    name_space.youngest_unix_s = std::max(name_space.youngest_unix_s, slot.written_unix_s);
    name_space.oldest_unix_s = std::min(name_space.oldest_unix_s, slot.written_unix_s);
  }
  for (size_t i = 0; i < figures.size(); ++i) {
    if (figures[i].amount.blocks == 0) continue;
    inspection.name_spaces.emplace_back(survey.name_spaces[i].hex().substr(0, kNamespaceDigits),
                                        figures[i]);
  }
  std::sort(
      inspection.name_spaces.begin(), inspection.name_spaces.end(),
      [](const auto& a, const auto& b) { return a.second.amount.bytes > b.second.amount.bytes; });
}

void count_extents(const SlotGeometry& geometry, Inspection& inspection) {
  ExtentFigures& figures = inspection.extents;
  figures.total = geometry.extent_count();
  for (uint32_t extent = 0; extent < geometry.extent_count(); ++extent) {
    uint64_t used = 0;
    GroupId group;
    for (uint32_t i = 0; i < geometry.slots_per_extent_max(); ++i) {
      const size_t slot = geometry.slot_at(extent, i).value();
      if (slot >= inspection.survey.slots.size()) break;
      if (inspection.survey.slots[slot].state != SlotState::kBlock) continue;
      ++used;
      group = inspection.survey.slots[slot].group;
    }
    if (used == 0) continue;
    const uint64_t room = geometry.slots_in_extent(extent, group);
    ++figures.in_use;
    if (used < room) ++figures.partly_full;
    figures.free_slots += room - std::min(room, used);
  }
}

Result<Inspection> inspect(const std::string& path, const std::string& name,
                           const DiskSurveyContext& context) {
  Inspection inspection;
  inspection.name = name;
  TIERCEL_TRY_ASSIGN(inspection.look, look_at_disk_instance(path, name));
  for (const DiskRankLook& rank : inspection.look.ranks) {
    for (const DiskFileLook* file : {&rank.data, &rank.metadata}) {
      inspection.file_bytes += file->bytes;
      inspection.allocated_bytes += file->allocated_bytes;
    }
  }
  const std::vector<const DiskRankLook*> ranks =
      usable_ranks(inspection.look, [&](uint32_t rank, const std::string& what) {
        inspection.faults.push_back(fmt::format("rank {}: {}", rank, what));
      });
  if (ranks.empty()) return inspection;
  inspection.header = *ranks.front()->metadata.header;
  inspection.payload_bytes.resize(inspection.header->payload_bytes.size());
  for (const DiskRankLook* rank : ranks) {
    for (size_t group = 0; group < inspection.payload_bytes.size(); ++group) {
      inspection.payload_bytes[group] += rank->metadata.header->payload_bytes[group];
    }
  }
  TIERCEL_TRY_ASSIGN(inspection.survey, survey_disk(ranks, context));
  TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, geometry_of(*inspection.header));
  count_blocks(inspection);
  count_extents(geometry, inspection);
  inspection.unreachable = count_unreachable(inspection.survey);
  return inspection;
}

std::string age_text(int64_t written_unix_s, int64_t now_unix_s) {
  if (written_unix_s > now_unix_s) return "in the future";
  const int64_t age_s = now_unix_s - written_unix_s;
  constexpr int64_t kDay = 86400;
  constexpr int64_t kHour = 3600;
  if (age_s >= 2 * kDay) return fmt::format("{} days", age_s / kDay);
  if (age_s >= 2 * kHour) return fmt::format("{} h", age_s / kHour);
  if (age_s >= 120) return fmt::format("{} min", age_s / 60);
  return fmt::format("{} s", age_s);
}

double percent(uint64_t part, uint64_t all) {
  return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

std::string state_text(const DiskSurvey& survey) {
  std::string text = fmt::format("{} slots: {} blocks, {} empty", survey.slots.size(),
                                 survey.count(SlotState::kBlock), survey.count(SlotState::kEmpty));
  const std::pair<SlotState, std::string_view> others[] = {
      {SlotState::kDuplicate, "older copies"},
      {SlotState::kCleared, "cleared"},
      {SlotState::kMisplaced, "out of place"},
      {SlotState::kDisagreeing, "not the same on every rank"},
      {SlotState::kBad, "bad"}};
  for (const auto& [state, what] : others) {
    if (survey.count(state) > 0) text += fmt::format(", {} {}", survey.count(state), what);
  }
  return text;
}

std::string to_text(const Inspection& inspection) {
  const auto now_unix_s = static_cast<int64_t>(::time(nullptr));
  std::string text = escaped_path(inspection.look.path) + "\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", name, value);
  };
  line("in use", inspection.look.holder
                     ? "by " + *inspection.look.holder + "; it may write while this is read"
                     : std::string("by nobody"));
  for (const std::string& fault : inspection.faults) line("fault", fault);
  line("on disk",
       fmt::format("{} taken of {} at most ({:.1f} %)", format_bytes(inspection.allocated_bytes),
                   format_bytes(inspection.file_bytes),
                   percent(inspection.allocated_bytes, inspection.file_bytes)));
  if (!inspection.header) return text;
  const DiskSurvey& survey = inspection.survey;
  line("format",
       fmt::format("version {}, {} rank{}", kDiskFormatVersion, inspection.header->rank_count,
                   inspection.header->rank_count == 1 ? "" : "s"));
  line("slots", state_text(survey));
  for (const RankSlots& rank : survey.ranks) {
    line(fmt::format("rank {}", rank.rank),
         fmt::format("{} used, {} empty, {} bad", rank.used, rank.empty, rank.bad));
  }
  for (size_t group = 0; group < inspection.groups.size(); ++group) {
    line(fmt::format("group {}", group),
         fmt::format("{} blocks, {}; payload {} over the ranks", inspection.groups[group].blocks,
                     format_bytes(inspection.groups[group].bytes),
                     exact_bytes(inspection.payload_bytes[group])));
  }
  for (const auto& [name, figures] : inspection.name_spaces) {
    line("namespace", fmt::format("{}  {} blocks, {}; youngest {} old, oldest {} old", name,
                                  figures.amount.blocks, format_bytes(figures.amount.bytes),
                                  age_text(figures.youngest_unix_s, now_unix_s),
                                  age_text(figures.oldest_unix_s, now_unix_s)));
  }
  const ExtentFigures& extents = inspection.extents;
  line("extents",
       fmt::format("{} of {} in use, {} of these partly full ({:.1f} %), {} slots free in them",
                   extents.in_use, extents.total, extents.partly_full,
                   percent(extents.partly_full, extents.in_use), extents.free_slots));
  line("unreachable", fmt::format("{} blocks whose parent is not here", inspection.unreachable));
  if (!survey.complete) line("stopped", "the figures are of a part only");
  return text;
}

Json to_json(const Inspection& inspection) {
  const auto now_unix_s = static_cast<int64_t>(::time(nullptr));
  Json json;
  json["instance"] = inspection.name;
  json["path"] = inspection.look.path;
  json["holder"] = inspection.look.holder ? Json(*inspection.look.holder) : Json();
  json["complete"] = inspection.survey.complete;
  json["faults"] = inspection.faults;
  json["file_bytes"] = inspection.file_bytes;
  json["allocated_bytes"] = inspection.allocated_bytes;
  if (!inspection.header) return json;
  const DiskSurvey& survey = inspection.survey;
  json["format_version"] = kDiskFormatVersion;
  json["rank_count"] = inspection.header->rank_count;
  json["slots"] = {{"total", survey.slots.size()},
                   {"blocks", survey.count(SlotState::kBlock)},
                   {"empty", survey.count(SlotState::kEmpty)},
                   {"duplicates", survey.count(SlotState::kDuplicate)},
                   {"cleared", survey.count(SlotState::kCleared)},
                   {"misplaced", survey.count(SlotState::kMisplaced)},
                   {"disagreeing", survey.count(SlotState::kDisagreeing)},
                   {"bad", survey.count(SlotState::kBad)}};
  json["ranks"] = Json::array();
  for (const RankSlots& rank : survey.ranks) {
    json["ranks"].push_back(
        {{"rank", rank.rank}, {"used", rank.used}, {"empty", rank.empty}, {"bad", rank.bad}});
  }
  json["groups"] = Json::array();
  for (size_t group = 0; group < inspection.groups.size(); ++group) {
    json["groups"].push_back({{"group", group},
                              {"payload_bytes", inspection.payload_bytes[group]},
                              {"blocks", inspection.groups[group].blocks},
                              {"bytes", inspection.groups[group].bytes}});
  }
  json["namespaces"] = Json::array();
  for (const auto& [name, figures] : inspection.name_spaces) {
    json["namespaces"].push_back({{"namespace", name},
                                  {"blocks", figures.amount.blocks},
                                  {"bytes", figures.amount.bytes},
                                  {"youngest_age_s", now_unix_s - figures.youngest_unix_s},
                                  {"oldest_age_s", now_unix_s - figures.oldest_unix_s}});
  }
  json["extents"] = {{"total", inspection.extents.total},
                     {"in_use", inspection.extents.in_use},
                     {"partly_full", inspection.extents.partly_full},
                     {"free_slots", inspection.extents.free_slots}};
  json["unreachable_blocks"] = inspection.unreachable;
  return json;
}

int refuse(const CommandContext& context, const Error& error) {
  context.error << "tiercel inspect: " << error.message() << "\n";
  return kExitRefused;
}

}  // namespace

int run_inspect_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const auto values = read_option_sources(inspect_option_table(), command_line, nullptr);
  if (!values) return refuse(context, values.error());
  const auto options = read_disk_tool_options(*values);
  if (!options) return refuse(context, options.error());
  auto json_file = open_json_file(options->json, *values);
  if (!json_file) return refuse(context, json_file.error());
  if (context.started != nullptr) context.started->store(true);

  int status = kExitOk;
  DiskSurveyContext survey{.stop = context.stop, .progress = {}, .bad = {}};
  Json list = Json::array();
  for (const std::string& name : options->instances) {
    if (survey.stopped()) break;
    std::optional<ProgressBar> bar;
    if (context.error_is_terminal) {
      bar.emplace(context.error, context.clock, "records");
      survey.progress = [&bar](uint64_t done, uint64_t all) { bar->show(done, all); };
    }
    const Result<Inspection> inspection = inspect(options->path, name, survey);
    bar.reset();
    if (!inspection) {
      context.error << "tiercel inspect: " << inspection.error().message() << "\n";
      status = kExitFailed;
      continue;
    }
    list.push_back(to_json(*inspection));
    if (options->json != kStandardOutput) context.out << to_text(*inspection) << std::flush;
  }
  const std::string json = list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return end_disk_tool(context, "inspect", options->json, *json_file, json, status);
}

}  // namespace tiercel
