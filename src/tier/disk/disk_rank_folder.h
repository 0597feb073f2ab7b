// SPDX-License-Identifier: Apache-2.0
//
// DiskRankFolder: the two files of one rank as the folder's owner handles them: locked, looked at,
// made, brought to another size, emptied. Every step can be cut off by a crash: what the next open
// finds is either what was there before or what was wanted, or counts as not made.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "tier/disk/disk_file.h"
#include "tier/disk/disk_format.h"
#include "tier/slot_geometry.h"

namespace tiercel {

class DiskRankFolder {
 public:
  // Opens and locks `rank<r>` of the instance. With kMake folder and files are made, empty, where
  // they are not there; with kWrite kNotFound. kBusy as open_locked_disk_file().
  static Result<DiskRankFolder> open(const DiskPath& instance, uint32_t rank, DiskOpen how,
                                     TimePoint deadline);

  uint32_t rank() const { return rank_; }
  const DiskPath& data() const { return data_; }
  const DiskPath& metadata() const { return metadata_; }

  // Reads the headers. What is wrong with the files' contents becomes refusal().
  Status load();
  // Why the files must not be touched: a header is of another version (kUnsupported), or none of
  // ours (kCorrupt).
  const std::optional<Error>& refusal() const { return refusal_; }
  // Of the metadata file; nothing if the rank's files were never made, or not to the end.
  const std::optional<DiskHeader>& header() const { return header_; }
  // Of the data file; nothing if it is damaged.
  const std::optional<DiskHeader>& data_header() const { return data_header_; }
  // Both headers of the metadata file are damaged, and why; the data file's is whole, so that the
  // files are known to be ours. Nothing if a refusal or a header.
  const std::optional<Error>& lost_header() const { return lost_header_; }
  // There is a header, but the data file has been emptied or removed.
  bool is_data_lost() const { return is_data_lost_; }

  // Makes both files empty: they count as not made. The space is given back.
  Status empty();
  // Empties and removes all of it.
  Status remove(const DiskPath& instance);

  // Makes the files as long as `geometry` wants; with `reserve` the data file's space is taken now.
  Status lay_out(const SlotGeometry& geometry, bool reserve);
  // Writes the headers of new files; with that the rank is made. `header`: of the metadata file.
  Status write_first_headers(DiskHeader header);

  // Brings what is there to the header's geometry and folder id; its generation is chosen here,
  // first_sequence stays. `before`: the geometry as the header says now.
  Status fit(DiskHeader header, const SlotGeometry& before, const SlotGeometry& geometry,
             bool reserve);
  Status write_data_header();

  // Makes the names of the files safe.
  Status sync_folder() const { return sync_disk_file(folder_); }

  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  DiskRankFolder() = default;
  Status lengthen(const DiskPath& file, uint64_t bytes, bool reserve);

  uint32_t rank_ = 0;
  DiskPath folder_;
  DiskPath data_;
  DiskPath metadata_;
  std::optional<Error> refusal_;
  std::optional<Error> lost_header_;
  std::optional<DiskHeader> header_;
  std::optional<DiskHeader> data_header_;
  bool is_data_lost_ = false;
  std::vector<std::string> notes_;
};

}  // namespace tiercel
