// SPDX-License-Identifier: Apache-2.0
//
// Who owns a disk tier: the lock, and the `owner` file that names the holder in messages.
//
// The lock alone decides. It is a flock, which belongs to the open file, not to a process: it is
// held as long as any duplicate of the descriptor is open anywhere, also in the children of an
// owner that is dead.
//
// The `owner` file is text, one "name value" a line: pid, host, program, since. It is written only
// by who has the lock; what stands in it without a lock means nothing.
//
// Threads: any; the functions share nothing.
#pragma once

#include <string>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "tier/disk/disk_file.h"

namespace tiercel {

// Opens (kMake: makes) the file in `folder` and locks it, trying until `deadline`. kBusy, naming
// who has it as the `owner` file in `instance` says.
Result<DiskPath> open_locked_disk_file(const DiskPath& folder, const std::string& name,
                                       DiskOpen how, TimePoint deadline, const DiskPath& instance);

// Whether somebody has the file's lock now. Takes it for a moment, shared, if it is free.
Result<bool> is_disk_file_locked(const DiskPath& file);

// For whoever holds the lock.
Status write_disk_owner(const DiskPath& instance);
void remove_disk_owner(const DiskPath& instance);

// "process 123 (/usr/bin/x) since 2026-01-01T00:00:00Z", and whether it is this one, or no longer
// lives; "an unknown process" if the file cannot be read.
std::string describe_disk_owner(const DiskPath& instance);

}  // namespace tiercel
