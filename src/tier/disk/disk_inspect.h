// SPDX-License-Identifier: Apache-2.0
//
// A look at disk tiers from outside, for the tools: reads only, takes no lock (but for the blink of
// an eye, to see whether somebody else has it), and works while an owner writes. What is seen then
// may be half written: a record that looks torn may be whole a moment later.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

#include "tier/disk/disk_file.h"
#include "tier/disk/disk_format.h"

namespace tiercel {

struct DiskFileLook {
  DiskPath file;                 // open for reading
  uint64_t bytes = 0;            // its length
  uint64_t allocated_bytes = 0;  // what it takes on the disk
  // Of the two of a metadata file, the one that counts. Codes as decode_disk_header().
  Result<DiskHeader> header = Error(Code::kNotFound, "not there");
};

struct DiskRankLook {
  uint32_t rank = 0;
  DiskFileLook data;
  DiskFileLook metadata;

  // Records that the metadata header speaks of; 0 without one.
  uint32_t slot_count() const;
  // Calls visit(slot, record) for each of them, in their order; kNotFound: the slot is empty,
  // kCorrupt: no record of this folder and slot. kUnavailable if the file cannot be read; the
  // error of the header if there is none.
  Status for_each_record(const std::function<void(SlotId, const Result<DiskRecord>&)>& visit) const;
};

struct DiskInstanceLook {
  std::string path;                   // DIR/<instance>
  std::vector<DiskRankLook> ranks;    // that have a folder, in their order
  std::optional<std::string> holder;  // who has the lock, as describe_disk_owner() says
};

// Names of the instances in DIR, in alphabetical order. kNotFound, kInvalid (a file) and
// kUnavailable with the path.
Result<std::vector<std::string>> list_disk_instances(const std::string& path);

// kNotFound with the path if there is no such instance, kUnavailable if something cannot be read. A
// file that is missing or damaged is no error: its header says so.
Result<DiskInstanceLook> look_at_disk_instance(const std::string& path,
                                               const std::string& instance);

}  // namespace tiercel
