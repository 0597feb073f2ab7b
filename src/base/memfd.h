// SPDX-License-Identifier: Apache-2.0
//
// Memfds: files in memory that another process can map, through a descriptor and nothing else. They
// are gone with the last process that has them; nothing of them is in the file system.
#pragma once

#include <cstddef>
#include <string>

#include "tiercel/status.h"

#include "base/file_descriptor.h"

namespace tiercel {

// A memfd of `bytes` zeros, for the owner only, close-on-exec, whose size nobody can change any
// more: a peer that shrank it could make our own accesses fault. kInvalid for a name that is too
// long, kNoSpace with the size if there is no room or the limit of file size forbids it,
// kUnavailable if the system refuses memfds.
Result<FileDescriptor> make_memfd(const std::string& name, size_t bytes);

// For a descriptor that came from another process: kInvalid unless it is a memfd of at least
// `bytes` that is sealed against shrinking. `what` names it in the message.
Status check_memfd(int fd, size_t bytes, const std::string& what);

}  // namespace tiercel
