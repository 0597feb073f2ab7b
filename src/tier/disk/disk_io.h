// SPDX-License-Identifier: Apache-2.0
//
// DiskIo: reads, writes and syncs of the two files of a rank's disk tier, many at once. The disk
// tier touches the contents of its files through this interface only, so that a test can put
// faults, hangs and power cuts below it.
//
// A submission returns at once, and every request completes exactly once, in any order. Nothing is
// retried and nothing is completed in part: a short read or write is reported as it is, and whoever
// asked goes on from there.
//
// Ownership: the memory of a request must stay valid, and for a read untouched, until the request
//            has completed; the destructor waits for that.
// Threads:   one at a time calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tiercel/status.h"

namespace tiercel {

enum class DiskFile : uint8_t { kData = 0, kMetadata = 1 };
inline constexpr size_t kDiskFileCount = 2;

enum class DiskIoKind : uint8_t { kRead, kWrite, kSync };

// Reads and writes of the data file have offset, length and memory at multiples of
// kDiskAlignmentBytes, as direct I/O wants it; those of the metadata file are free.
inline constexpr size_t kDiskAlignmentBytes = 4096;

struct DiskIoRequest {
  uint64_t token = 0;  // the caller's name for it
  DiskIoKind kind = DiskIoKind::kRead;
  DiskFile file = DiskFile::kData;
  uint64_t offset = 0;
  std::span<std::byte> memory{};  // empty for a sync; a write does not change it
};

struct DiskIoCompletion {
  uint64_t token = 0;
  int64_t result = 0;  // bytes moved (0 for a sync; 0 for a read at the end of the file), or −errno
};

class DiskIo {
 public:
  virtual ~DiskIo() = default;

  // Requests that submit() would take now; what has completed and was not polled counts as taken.
  virtual size_t capacity() const = 0;

  // Hands over all of them with as few system calls as the way allows. requests.size() <=
  // capacity().
  virtual void submit(std::span<const DiskIoRequest> requests) = 0;

  // Copies out what has completed; returns how many (at most out.size()).
  virtual size_t poll(std::span<DiskIoCompletion> out) = 0;

  // Readable when poll() may have something; -1 if there is no such thing (virtual time).
  virtual int completion_fd() const = 0;

  // "io_uring, direct, registered buffers", "threads, buffered (io_uring: Operation not permitted)"
  virtual std::string describe() const = 0;
};

// How a rank's files are read and written.
enum class DiskIoWay : uint8_t {
  kAuto,     // io_uring if the system allows it, else threads
  kUring,    // io_uring or an error
  kThreads,  // a pool of threads with pread and pwrite
};
// "auto", "io_uring", "threads"
std::string_view to_string(DiskIoWay way);

struct DiskIoOptions {
  DiskIoWay way = DiskIoWay::kAuto;
  uint32_t queue_depth = 64;  // requests at once; 1 to 4096
  uint32_t threads = 4;       // of the pool; 1 to 64
  // Memory that requests will use, registered with the ring if the memlock limit allows it; it is
  // pinned then. Requests with other memory work too.
  std::span<std::byte> memory{};
  bool register_memory = true;
};

// Over descriptors that the caller keeps open until the DiskIo is gone. kInvalid for options out of
// range, kUnavailable with the reason for kUring where the system has none.
Result<std::unique_ptr<DiskIo>> make_disk_io(int data_fd, int metadata_fd,
                                             const DiskIoOptions& options);

}  // namespace tiercel
