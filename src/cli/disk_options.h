// SPDX-License-Identifier: Apache-2.0
//
// The options of a disk tier on the command line.
#pragma once

#include "tiercel/cache.h"
#include "tiercel/disk.h"
#include "tiercel/status.h"

#include "base/option_table.h"

namespace tiercel {

// disk_path, disk_bytes and what goes with them.
void add_disk_options(OptionTable& table);

struct DiskOptions {
  DiskConfig config;
  WritePolicy policy = WritePolicy::kWriteThrough;  // host → disk
  bool exists() const { return !config.path.empty(); }
};

// kInvalid where options of a disk are set without disk_path, or disk_bytes is missing.
Result<DiskOptions> read_disk_options(const OptionValues& values);

}  // namespace tiercel
