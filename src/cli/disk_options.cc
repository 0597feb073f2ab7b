// SPDX-License-Identifier: Apache-2.0
#include "cli/disk_options.h"

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace tiercel {
namespace {

constexpr std::array kSyncs = {DiskSync::kNone, DiskSync::kData, DiskSync::kInterval};
constexpr std::array kWays = {DiskIoWay::kAuto, DiskIoWay::kUring, DiskIoWay::kThreads};
constexpr std::array kPolicies = {WritePolicy::kWriteThrough, WritePolicy::kWriteThroughSelective,
                                  WritePolicy::kWriteBack};

template <typename Values>
Option choice(std::string name, std::string help, const Values& values) {
  Option option = make_option(std::move(name), OptionType::kChoice, std::move(help),
                              std::string(to_string(values.front())));
  for (const auto value : values) option.choices.emplace_back(to_string(value));
  return option;
}

// The value that `name` chooses; the option table has refused what is none of them.
template <typename Values>
auto chosen(const OptionValues& values, std::string_view name, const Values& all) {
  const std::string& text = values.get_string(name);
  for (const auto value : all) {
    if (text == to_string(value)) return value;
  }
  return all.front();
}

Option flag(std::string name, std::string help, bool default_value) {
  return make_option(std::move(name), OptionType::kBool, std::move(help),
                     default_value ? "true" : "false");
}

}  // namespace

void add_disk_options(OptionTable& table) {
  table.add(make_option("disk_path", OptionType::kString,
                        "Folder of a disk tier below the host tier; found again by the next run",
                        ""));
  table.add(make_option("disk_bytes", OptionType::kBytes,
                        "Bound on all files of the disk tier together", "0", 0,
                        static_cast<double>(uint64_t{1} << 62)));
  table.add(make_option("disk_instance", OptionType::kString,
                        "Name of this engine in the folder, the same over restarts", "main"));
  table.add(choice("disk_policy", "When a block goes from the host tier to disk", kPolicies));
  table.add(
      choice("disk_sync", "When what was written is made to survive a loss of power", kSyncs));
  table.add(make_option("disk_sync_interval", OptionType::kDuration, "With disk_sync interval",
                        "1s", 0.001, 86400));
  table.add(choice("disk_io", "How the files are read and written", kWays));
  table.add(make_option("disk_queue_depth", OptionType::kInteger,
                        "Requests with the disk at once, per rank", "64", 1, 4096));
  table.add(flag("disk_direct", "O_DIRECT, where the file system has it", true));
  table.add(flag("disk_preallocate", "Reserve the space at the start", false));
  table.add(flag("disk_reset", "Start a folder of another shape or version anew, empty", false));
  table.add(flag("disk_purge", "Forget blocks of other namespaces at the start", false));
}

Result<DiskOptions> read_disk_options(const OptionValues& values) {
  DiskOptions options;
  DiskConfig& config = options.config;
  if (values.is_set("disk_path")) config.path = values.get_string("disk_path");
  config.bytes = static_cast<uint64_t>(values.get_integer("disk_bytes"));
  config.instance = values.get_string("disk_instance");
  options.policy = chosen(values, "disk_policy", kPolicies);
  config.sync = chosen(values, "disk_sync", kSyncs);
  config.sync_interval = values.get_duration("disk_sync_interval");
  config.io = chosen(values, "disk_io", kWays);
  config.queue_depth = static_cast<uint32_t>(values.get_integer("disk_queue_depth"));
  config.direct = values.get_bool("disk_direct");
  config.preallocate = values.get_bool("disk_preallocate");
  config.reset = values.get_bool("disk_reset");
  config.purge = values.get_bool("disk_purge");
  if (options.exists() && config.bytes == 0) {
    return Error(
        Code::kInvalid,
        "disk_path is set, but disk_bytes is 0; set the bound on the disk tier's files, as "
        "in --disk-bytes 10GiB");
  }
  if (!options.exists() && config.bytes != 0) {
    return Error(Code::kInvalid,
                 "disk_bytes is set, but disk_path is not; name the folder of the disk tier, as in "
                 "--disk-path /var/lib/tiercel");
  }
  return options;
}

}  // namespace tiercel
