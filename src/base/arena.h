// SPDX-License-Identifier: Apache-2.0
//
// Arenas: large memory areas that live as long as a tier. Left out of core dumps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "base/memory_limit.h"

namespace tiercel {

enum class ArenaKind : uint8_t {
  kAnonymous,  // private to this process
  kMemfd,      // other processes can map it through fd()
};

enum class PageKind : uint8_t { kOrdinary, kTransparentHuge };

struct ArenaOptions {
  ArenaKind kind = ArenaKind::kAnonymous;
  bool huge_pages = true;        // ask for transparent huge pages; falls back to ordinary pages
  bool prefault = false;         // touch every page now, so that use never faults
  std::string name = "tiercel";  // of a memfd, for /proc
};

// Owns its mapping; move-only through unique_ptr. Page-aligned, zero-filled.
// Threads: plain memory; creation and destruction by one thread.
class Arena {
 public:
  virtual ~Arena() = default;
  // kInvalid for 0 bytes; kNoSpace with the size and the limit that stands in the way (available
  // memory or the cgroup's limit) if the memory cannot be had.
  static Result<std::unique_ptr<Arena>> create(size_t bytes, const ArenaOptions& options);

  // The first `bytes` of a memfd that another process, or make_memfd, has made; options.kind is
  // ignored. kInvalid as check_memfd, kNoSpace if it cannot be mapped.
  static Result<std::unique_ptr<Arena>> map(FileDescriptor fd, size_t bytes,
                                            const ArenaOptions& options);

  virtual std::span<std::byte> memory() = 0;
  virtual int fd() const = 0;  // -1 unless kMemfd
  virtual ArenaKind kind() const = 0;
  virtual PageKind pages() const = 0;  // what was granted
};

}  // namespace tiercel
