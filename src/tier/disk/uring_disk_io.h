// SPDX-License-Identifier: Apache-2.0
//
// DiskIo on an io_uring: no thread of its own, one system call a batch, and no page tables walked
// per request where the memory could be registered. Needs Linux 5.11.
//
// A request belongs to the thread that submitted it: if that thread ends first, what it has under
// way may complete with -ECANCELED. While a thread sleeps, a completion may wake it as a signal
// would: epoll_wait() then returns EINTR (poll() does not).
//
// The ring holds the open files (so a lock on them, too) until it is destroyed; of a process that
// died, until the kernel has ended its transfers.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "tiercel/status.h"

#include "tier/disk/disk_io.h"

namespace tiercel {

// `options` in range. `mode` is what describe() says of the data file: "direct", "buffered".
// kUnavailable, with the system's reason alone for a message, if there is no ring to be had.
Result<std::unique_ptr<DiskIo>> make_uring_disk_io(const std::array<int, kDiskFileCount>& fds,
                                                   std::string_view mode,
                                                   const DiskIoOptions& options);

}  // namespace tiercel
