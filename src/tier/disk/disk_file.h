// SPDX-License-Identifier: Apache-2.0
//
// Files and folders of the disk tier on the control side: opened by name below an open folder, so
// that nothing that is renamed or linked meanwhile leads elsewhere; their lengths; their headers.
// Every error names the path and the system's reason.
//
// Threads: one at a time for each file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "tier/disk/disk_format.h"

namespace tiercel {

// A file or folder with its path, for messages only.
struct DiskPath {
  FileDescriptor fd;
  std::string path;
};

enum class DiskOpen : uint8_t {
  kRead,   // to look at; kNotFound if it is not there
  kWrite,  // to change; kNotFound if it is not there
  kMake,   // to change; made, for the owner only, if it is not there
};

// kUnavailable: "cannot <doing> '<path>': <reason>".
Error disk_error(const std::string& path, const std::string& doing, int error);

// DIR of the options; its own name may be a link. kInvalid if it is a file.
Result<DiskPath> open_disk_folder(const std::string& path, DiskOpen how);
// Below `parent`; links are refused.
Result<DiskPath> open_disk_folder(const DiskPath& parent, const std::string& name, DiskOpen how);
Result<DiskPath> open_disk_file(const DiskPath& parent, const std::string& name, DiskOpen how);
// Whether the name still leads to the open file.
bool is_still_there(const DiskPath& parent, const std::string& name, const DiskPath& file);

Result<uint64_t> disk_file_length(const DiskPath& file);
// Reads up to the end of `out` or of the file; returns how much.
Result<size_t> read_disk_file(const DiskPath& file, uint64_t offset, std::span<std::byte> out);
Status write_disk_file(const DiskPath& file, uint64_t offset, std::span<const std::byte> bytes);
Status sync_disk_file(const DiskPath& file);
Status truncate_disk_file(const DiskPath& file, uint64_t bytes);
// Reserves the file's space up to `bytes`, making it longer if it is shorter. False: the file
// system has no such thing, nothing was done. kNoSpace with the size if there is not so much.
Result<bool> reserve_disk_file(const DiskPath& file, uint64_t bytes);

// kInvalid, naming the limit, if the process may not write files so long: beyond it a signal comes
// in place of an error.
Status check_file_size_limit(uint64_t bytes);

// Switches direct I/O on, if the file's first page can be read in that way; else says why not.
// Switched off again: direct I/O wants aligned memory.
Status set_direct(const DiskPath& file, bool direct);

// Of a data file. As decode_disk_header(), whose message is then preceded by the path; kNotFound
// also if the file is shorter than a header.
Result<DiskHeader> read_data_header(const DiskPath& file);
// Of a metadata file: the one that counts. kUnsupported if either page is of another version: a
// newer build may have written only one of them. kNotFound if neither was ever written whole.
Result<DiskHeader> read_metadata_header(const DiskPath& file);
// At the place of its kind and generation, synced.
Status write_disk_header(const DiskPath& file, const DiskHeader& header);

}  // namespace tiercel
