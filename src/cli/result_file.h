// SPDX-License-Identifier: Apache-2.0
//
// The file that a command's figures are written to at its end (--json).
//
// Whatever happens before the end, an earlier file of that name stays as it was: the new one is
// written beside it and takes its name when it is whole. What is no regular file (/dev/full, a
// pipe), or what somebody has open (/dev/stdout), is written to as it is.
//
// Threads: plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "base/option_table.h"

namespace tiercel {

// Files that the run reads: option and path. Empty paths are passed over.
using InputFiles = std::vector<std::pair<std::string_view, std::string>>;

// --json with this name is standard output.
inline constexpr std::string_view kStandardOutput = "-";

class ResultFile {
 public:
  // Writes nothing yet, but finds out whether it could. kInvalid, also if `path` is one of `inputs`
  // under whatever name: the run would destroy what it is about.
  static Result<ResultFile> open(const std::string& path, const InputFiles& inputs);

  // Once.
  Status write(std::string_view text);

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}

  std::string path_;    // as given, for messages
  std::string target_;  // behind symbolic links
  FileDescriptor special_;
  bool in_place_ = false;  // nothing can be made in the folder, but the file itself can be written
};

// The file of --json: nothing if `json` is empty or standard output. `values` may name a config
// file, which is one of the inputs beside `inputs`.
Result<std::optional<ResultFile>> open_json_file(const std::string& json,
                                                 const OptionValues& values,
                                                 InputFiles inputs = {});

}  // namespace tiercel
