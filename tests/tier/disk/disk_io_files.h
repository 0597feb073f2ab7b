// SPDX-License-Identifier: Apache-2.0
//
// What the tests of DiskIo share: two files in a folder of their own, memory as direct I/O wants
// it, and running requests to their end.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/file_descriptor.h"
#include "base/random.h"
#include "support/temp_folder.h"
#include "support/wait_readable.h"
#include "tier/disk/disk_io.h"

namespace tiercel::testing {

inline constexpr size_t kPage = kDiskAlignmentBytes;

class AlignedMemory {
 public:
  explicit AlignedMemory(size_t pages)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(kPage, pages * kPage)), &std::free),
        size_(pages * kPage) {
    std::memset(bytes_.get(), 0, size_);
  }
  std::span<std::byte> all() const { return {bytes_.get(), size_}; }
  std::span<std::byte> pages(size_t first, size_t count) const {
    return all().subspan(first * kPage, count * kPage);
  }
  void fill(uint64_t seed) const { fill(all(), seed); }
  static void fill(std::span<std::byte> memory, uint64_t seed) {
    Random random(seed);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random.next() & 0xff);
  }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> bytes_;
  size_t size_;
};

struct DiskIoFiles {
  explicit DiskIoFiles(bool direct = false) {
    const auto open = [this](const char* name, int flags) {
      const std::string path = folder.path(name);
      return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600));
    };
    data = open("data", direct ? O_DIRECT : 0);
    metadata = open("metadata", 0);
  }

  TempFolder folder;
  FileDescriptor data;  // empty: the file system refuses O_DIRECT
  FileDescriptor metadata;
};

inline DiskIoRequest read_request(DiskFile file, uint64_t offset, std::span<std::byte> memory,
                                  uint64_t token = 0) {
  return {
      .token = token, .kind = DiskIoKind::kRead, .file = file, .offset = offset, .memory = memory};
}
inline DiskIoRequest write_request(DiskFile file, uint64_t offset, std::span<std::byte> memory,
                                   uint64_t token = 0) {
  return {
      .token = token, .kind = DiskIoKind::kWrite, .file = file, .offset = offset, .memory = memory};
}
inline DiskIoRequest sync_request(DiskFile file, uint64_t token = 0) {
  return {.token = token, .kind = DiskIoKind::kSync, .file = file};
}

// Waits for `count` completions as an event loop would. Fewer: it hung.
inline std::vector<DiskIoCompletion> wait_for(DiskIo& io, size_t count, size_t at_once = 64) {
  std::vector<DiskIoCompletion> done;
  std::vector<DiskIoCompletion> some(at_once);
  while (done.size() < count) {
    if (io.completion_fd() >= 0 && !readable(io.completion_fd(), kHangMs)) {
      ADD_FAILURE() << "hung with " << done.size() << " of " << count << " completions";
      break;
    }
    const size_t polled = io.poll(some);
    done.insert(done.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(polled));
  }
  return done;
}

// The result of one request, run alone.
inline int64_t run_alone(DiskIo& io, DiskIoRequest request) {
  request.token = 0x0123'4567'89ab'cdef;
  io.submit(std::span(&request, 1));
  const auto done = wait_for(io, 1);
  if (done.size() != 1 || done.front().token != request.token) {
    ADD_FAILURE() << "not the completion of the request";
    return INT64_MIN;
  }
  return done.front().result;
}

// For a child process, which cannot report through gtest. Empty: what was written is read again.
inline std::string write_and_read_back(DiskIo& io, std::span<std::byte> memory) {
  const size_t half = memory.size() / 2;
  const auto out = memory.first(half);
  const auto in = memory.subspan(half, half);
  AlignedMemory::fill(out, 1);
  const auto expected = static_cast<int64_t>(half);
  if (run_alone(io, write_request(DiskFile::kData, 0, out)) != expected) return "not written";
  if (run_alone(io, read_request(DiskFile::kData, 0, in)) != expected) return "not read";
  if (run_alone(io, sync_request(DiskFile::kData)) != 0) return "not synced";
  if (!std::equal(in.begin(), in.end(), out.begin())) return "other bytes";
  return "";
}

}  // namespace tiercel::testing
