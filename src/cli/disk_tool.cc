// SPDX-License-Identifier: Apache-2.0
#include "cli/disk_tool.h"

#include <algorithm>

#include "base/quantity.h"
#include "tier/disk/disk_inspect.h"

namespace tiercel {

OptionTable inspect_option_table() {
  OptionTable table;
  table.add(make_option("disk_path", OptionType::kString,
                        "Folder of the disk tier; also as a plain word", ""));
  table.add(
      make_option("instance", OptionType::kString, "Only this one; else all that are there", ""));
  table.add(make_option("json", OptionType::kString,
                        "Write the figures to this file as JSON; - is standard output", ""));
  return table;
}

OptionTable verify_option_table() {
  OptionTable table = inspect_option_table();
  table.add(make_option("repair", OptionType::kBool,
                        "Drop what is bad, so that what is left is whole; needs the tier to be "
                        "out of use",
                        "false"));
  return table;
}

Result<DiskToolOptions> read_disk_tool_options(const OptionValues& values) {
  DiskToolOptions options;
  if (!values.is_set("disk_path")) {
    return Error(Code::kInvalid, "disk_path is not set; name the folder of the disk tier");
  }
  options.path = values.get_string("disk_path");
  if (values.is_set("json")) options.json = values.get_string("json");
  TIERCEL_TRY_ASSIGN(options.instances, list_disk_instances(options.path));
  if (options.instances.empty()) {
    return Error(Code::kNotFound, quoted_path(options.path) +
                                      " holds no disk tier: no folder in it has a folder rank0");
  }
  if (values.is_set("instance")) {
    const std::string& wanted = values.get_string("instance");
    std::string all;
    for (const std::string& name : options.instances) {
      all += (all.empty() ? "" : ", ") + quoted_text(name);
    }
    if (std::find(options.instances.begin(), options.instances.end(), wanted) ==
        options.instances.end()) {
      return Error(Code::kNotFound, "instance is " + quoted_text(wanted) + ", but " +
                                        quoted_path(options.path) + " holds " + all);
    }
    options.instances = {wanted};
  }
  return options;
}

int end_disk_tool(const CommandContext& context, std::string_view command,
                  const std::string& json_option, std::optional<ResultFile>& json_file,
                  const std::string& json, int status) {
  if (json_option == kStandardOutput) context.out << json;
  if (json_file) {
    const Status written = json_file->write(json);
    if (!written) {
      context.error << "tiercel " << command << ": " << written.error().message() << "\n";
      status = kExitFailed;
    }
  }
  context.out.flush();
  if (!context.out) {
    context.error << "tiercel " << command << ": standard output could not be written\n";
    status = kExitFailed;
  }
  const bool stopped = context.stop != nullptr && context.stop->load();
  return stopped ? kExitInterrupted : status;
}

}  // namespace tiercel
