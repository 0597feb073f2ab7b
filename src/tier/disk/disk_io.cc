// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_io.h"

#include <array>
#include <utility>

#include <fcntl.h>

#include "tier/disk/pool_disk_io.h"
#include "tier/disk/uring_disk_io.h"

namespace tiercel {
namespace {

constexpr uint32_t kQueueDepthMax = 4096;
constexpr uint32_t kThreadsMax = 64;

Status check_range(const char* name, uint32_t value, uint32_t max) {
  if (value >= 1 && value <= max) return {};
  return Error(Code::kInvalid, std::string(name) + " is " + std::to_string(value) +
                                   "; allowed: 1 to " + std::to_string(max));
}

bool is_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0;
}

}  // namespace

std::string_view to_string(DiskIoWay way) {
  switch (way) {
    case DiskIoWay::kAuto:
      return "auto";
    case DiskIoWay::kUring:
      return "io_uring";
    case DiskIoWay::kThreads:
      return "threads";
  }
  return "unknown";
}

Result<std::unique_ptr<DiskIo>> make_disk_io(int data_fd, int metadata_fd,
                                             const DiskIoOptions& options) {
  TIERCEL_TRY(check_range("queue_depth", options.queue_depth, kQueueDepthMax));
  TIERCEL_TRY(check_range("threads", options.threads, kThreadsMax));
  if (to_string(options.way) == "unknown") {
    return Error(Code::kInvalid, "way is " + std::to_string(static_cast<int>(options.way)) +
                                     "; allowed: 0 (auto), 1 (io_uring), 2 (threads)");
  }
  const std::array<int, kDiskFileCount> fds{data_fd, metadata_fd};
  std::string mode = is_direct(data_fd) ? "direct" : "buffered";
  if (options.way != DiskIoWay::kThreads) {
    Result<std::unique_ptr<DiskIo>> ring = make_uring_disk_io(fds, mode, options);
    if (ring) return ring;
    if (options.way == DiskIoWay::kUring) {
      return Error(Code::kUnavailable, "no io_uring: " + ring.error().message() +
                                           "; allow it (kernel.io_uring_disabled, the seccomp "
                                           "profile of the container) or choose 'threads'");
    }
    mode += " (io_uring: " + ring.error().message() + ")";
  }
  return make_pool_disk_io(fds, std::move(mode), options);
}

}  // namespace tiercel
