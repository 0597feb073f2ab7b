// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the `disk` subject share.
#pragma once

#include <string>

#include "tiercel/status.h"

#include "cli/bench.h"

namespace tiercel {

// A folder below disk_path for the files of the run; gone with the object.
class BenchFolder {
 public:
  static Result<BenchFolder> create(const std::string& parent);
  ~BenchFolder();
  BenchFolder(BenchFolder&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  BenchFolder& operator=(BenchFolder&&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit BenchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A start over a folder with options.disk_reopen_blocks blocks: how long it takes, and the memory
// of the index.
Result<BenchFigures> bench_disk_reopen(const BenchOptions& options, const BenchContext& context);

}  // namespace tiercel
