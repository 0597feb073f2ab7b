// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <cerrno>
#include <fstream>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/file_descriptor.h"
#include "base/memfd.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

// Also the alignment of every arena: a transparent huge page starts at a multiple of its size.
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

class MappedArena final : public Arena {
 public:
  // Takes over the mapping at `address` and its descriptor.
  MappedArena(std::byte* address, size_t bytes, size_t mapped_bytes, FileDescriptor fd,
              ArenaKind kind)
      : address_(address),
        bytes_(bytes),
        mapped_bytes_(mapped_bytes),
        fd_(std::move(fd)),
        kind_(kind) {}
  ~MappedArena() override { ::munmap(address_, mapped_bytes_); }
  MappedArena(const MappedArena&) = delete;
  MappedArena& operator=(const MappedArena&) = delete;

  std::span<std::byte> memory() override { return {address_, bytes_}; }
  int fd() const override { return fd_ ? fd_.get() : -1; }
  ArenaKind kind() const override { return kind_; }
  PageKind pages() const override { return pages_; }

  void advise(bool huge_pages);
  Status prefault();

 private:
  std::byte* const address_;
  const size_t bytes_;
  const size_t mapped_bytes_;
  const FileDescriptor fd_;
  const ArenaKind kind_;
  PageKind pages_ = PageKind::kOrdinary;
};

// Whether the kernel's setting lets a mapping that asks for huge pages have them. The files read
// such as "always [madvise] never"; madvise() itself succeeds even where the answer is no.
bool huge_pages_allowed(ArenaKind kind) {
  std::ifstream file(kind == ArenaKind::kMemfd ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                                               : "/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(file, line)) return false;
  return line.find("[never]") == std::string::npos && line.find("[deny]") == std::string::npos;
}

void MappedArena::advise(bool huge_pages) {
  // Both are wishes: an arena works without them.
  ::madvise(address_, mapped_bytes_, MADV_DONTDUMP);
  if (!huge_pages) {
    ::madvise(address_, mapped_bytes_, MADV_NOHUGEPAGE);
  } else if (bytes_ >= kHugePageBytes && ::madvise(address_, mapped_bytes_, MADV_HUGEPAGE) == 0 &&
             huge_pages_allowed(kind_)) {
    pages_ = PageKind::kTransparentHuge;
  }
}

Status MappedArena::prefault() {
#ifdef MADV_POPULATE_WRITE
  int error = 0;
  do {
    error = ::madvise(address_, mapped_bytes_, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return {};
  // Before Linux 5.14 the call is unknown (EINVAL); then touch the pages one by one.
  if (error != EINVAL && error != EAGAIN) {
    return Error(Code::kNoSpace, "memory of " + format_bytes(bytes_) +
                                     " could not be touched: " + error_text(error) +
                                     "; make it smaller or give the process more");
  }
#endif
  for (size_t offset = 0; offset < mapped_bytes_; offset += page_bytes()) {
    auto* const page = static_cast<volatile std::byte*>(address_ + offset);
    // In a memfd reading is enough, and another process may have written there meanwhile.
    if (kind_ == ArenaKind::kMemfd) {
      static_cast<void>(*page);
    } else {
      *page = std::byte{0};
    }
  }
  return {};
}

Error mapping_error(const char* call, size_t bytes, int error) {
  return Error(Code::kNoSpace, std::string(call) + " of " + format_bytes(bytes) +
                                   " failed: " + error_text(error) +
                                   "; make it smaller, or raise the limit (ulimit -v, "
                                   "vm.overcommit_memory)");
}

// Maps at a multiple of the huge page's size: reserves more, maps inside, and gives the rest back.
Result<std::byte*> map_aligned(size_t mapped_bytes, const FileDescriptor& fd) {
  const size_t reserved_bytes = mapped_bytes + kHugePageBytes;
  void* const reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return mapping_error("mmap", mapped_bytes, errno);
  auto* const begin = static_cast<std::byte*>(reserved);
  const size_t head_bytes = round_up(reinterpret_cast<uintptr_t>(begin), kHugePageBytes) -
                            reinterpret_cast<uintptr_t>(begin);
  std::byte* const address = begin + head_bytes;
  const int flags = MAP_FIXED | (fd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  if (::mmap(address, mapped_bytes, PROT_READ | PROT_WRITE, flags, fd ? fd.get() : -1, 0) ==
      MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, reserved_bytes);
    return mapping_error("mmap", mapped_bytes, error);
  }
  if (head_bytes > 0) ::munmap(begin, head_bytes);
  const size_t tail_bytes = kHugePageBytes - head_bytes;
  if (tail_bytes > 0) ::munmap(address + mapped_bytes, tail_bytes);
  return address;
}

Result<std::unique_ptr<Arena>> map_arena(size_t bytes, size_t mapped_bytes, FileDescriptor fd,
                                         const ArenaOptions& options) {
  TIERCEL_TRY_ASSIGN(std::byte* const address, map_aligned(mapped_bytes, fd));
  auto arena =
      std::make_unique<MappedArena>(address, bytes, mapped_bytes, std::move(fd), options.kind);
  arena->advise(options.huge_pages);
  if (options.prefault) TIERCEL_TRY(arena->prefault());
  return arena;
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create(size_t bytes, const ArenaOptions& options) {
  if (bytes == 0) return Error(Code::kInvalid, "arena of 0 bytes; allowed: at least 1");
  const MemoryLimit limit = available_memory();
  // Far above every address space; keeps the sums below from overflowing where no limit is known.
  if (bytes > limit.bytes || bytes > SIZE_MAX / 4) {
    return Error(Code::kNoSpace, "arena of " + format_bytes(bytes) + " is more than the " +
                                     (limit.source.empty() ? "address space"
                                                           : format_bytes(limit.bytes) +
                                                                 " left of the " + limit.source) +
                                     "; make it smaller or give the process more");
  }
  const size_t mapped_bytes = round_up(bytes, page_bytes());
  FileDescriptor fd;
  if (options.kind == ArenaKind::kMemfd) {
    TIERCEL_TRY_ASSIGN(fd, make_memfd(options.name, mapped_bytes));
  }
  return map_arena(bytes, mapped_bytes, std::move(fd), options);
}

Result<std::unique_ptr<Arena>> Arena::map(FileDescriptor fd, size_t bytes,
                                          const ArenaOptions& options) {
  if (bytes == 0 || bytes > SIZE_MAX / 4) {
    return Error(Code::kInvalid, "arena of " + std::to_string(bytes) + " bytes; allowed: 1 to " +
                                     std::to_string(SIZE_MAX / 4));
  }
  TIERCEL_TRY(check_memfd(fd.get(), bytes, "the memory of '" + options.name + "'"));
  ArenaOptions shared = options;
  shared.kind = ArenaKind::kMemfd;
  return map_arena(bytes, round_up(bytes, page_bytes()), std::move(fd), shared);
}

}  // namespace tiercel
