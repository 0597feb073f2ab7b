// SPDX-License-Identifier: Apache-2.0
//
// DiskIo on a few threads that wait in pread(), pwrite() and fdatasync(): for systems without
// io_uring.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "tiercel/status.h"

#include "tier/disk/disk_io.h"

namespace tiercel {

// `options` in range. describe() says "threads, " and `mode`. kUnavailable if the system gives no
// thread or no descriptor.
Result<std::unique_ptr<DiskIo>> make_pool_disk_io(const std::array<int, kDiskFileCount>& fds,
                                                  std::string mode, const DiskIoOptions& options);

}  // namespace tiercel
