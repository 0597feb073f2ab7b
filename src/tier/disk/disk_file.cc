// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/error_text.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

constexpr mode_t kFolderMode = S_IRWXU;
constexpr mode_t kFileMode = S_IRUSR | S_IWUSR;

struct alignas(kDiskHeaderBytes) Page {
  std::array<std::byte, kDiskHeaderBytes> bytes{};
};

Error open_error(const std::string& path, const std::string& what, DiskOpen how, int error) {
  if (error == ENOENT && how != DiskOpen::kMake) {
    return Error(Code::kNotFound, what + " " + quoted_path(path) + " is not there");
  }
  if (error == ENOTDIR && what == "folder") {
    return Error(Code::kInvalid,
                 quoted_path(path) + " is not a folder; name another, or remove it");
  }
  if (error == ELOOP) {
    return Error(Code::kInvalid, quoted_path(path) + " is a link; allowed: a " + what);
  }
  return disk_error(path, "open", error);
}

Result<DiskPath> open_folder(int parent, const std::string& name, std::string path, int flags,
                             DiskOpen how) {
  if (how == DiskOpen::kMake && ::mkdirat(parent, name.c_str(), kFolderMode) != 0 &&
      errno != EEXIST) {
    if (errno != ENOENT) return disk_error(path, "make folder", errno);
    return Error(Code::kUnavailable, "folder " + quoted_path(path) +
                                         " cannot be made: its parent is not there; make it, or "
                                         "mount what belongs there");
  }
  FileDescriptor fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags));
  if (!fd) return open_error(path, "folder", how, errno);
  return DiskPath{std::move(fd), std::move(path)};
}

Error with_path(const DiskPath& file, const Error& error) {
  return Error(error.code(), quoted_path(file.path) + ": " + error.message());
}

}  // namespace

Error disk_error(const std::string& path, const std::string& doing, int error) {
  const Code code = error == ENOSPC || error == EDQUOT ? Code::kNoSpace : Code::kUnavailable;
  return Error(code, "cannot " + doing + " " + quoted_path(path) + ": " + error_text(error));
}

Result<DiskPath> open_disk_folder(const std::string& path, DiskOpen how) {
  return open_folder(AT_FDCWD, path, path, 0, how);
}

Result<DiskPath> open_disk_folder(const DiskPath& parent, const std::string& name, DiskOpen how) {
  return open_folder(parent.fd.get(), name, parent.path + "/" + name, O_NOFOLLOW, how);
}

Result<DiskPath> open_disk_file(const DiskPath& parent, const std::string& name, DiskOpen how) {
  std::string path = parent.path + "/" + name;
  const int access = how == DiskOpen::kRead ? O_RDONLY : O_RDWR;
  const int make = how == DiskOpen::kMake ? O_CREAT : 0;
  // O_NONBLOCK: a pipe of that name must not hold us up.
  FileDescriptor fd(::openat(parent.fd.get(), name.c_str(),
                             access | make | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, kFileMode));
  if (!fd) return open_error(path, "file", how, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return disk_error(path, "examine", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error(Code::kInvalid, quoted_path(path) + " is no regular file; remove it");
  }
  // With it io_uring may answer EAGAIN where it should wait.
  if (::fcntl(fd.get(), F_SETFL, access) != 0) return disk_error(path, "set the flags of", errno);
  return DiskPath{std::move(fd), std::move(path)};
}

bool is_still_there(const DiskPath& parent, const std::string& name, const DiskPath& file) {
  struct stat by_name {};
  struct stat open {};
  return ::fstatat(parent.fd.get(), name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(file.fd.get(), &open) == 0 && by_name.st_dev == open.st_dev &&
         by_name.st_ino == open.st_ino;
}

Result<uint64_t> disk_file_length(const DiskPath& file) {
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) return disk_error(file.path, "examine", errno);
  return static_cast<uint64_t>(status.st_size);
}

Result<size_t> read_disk_file(const DiskPath& file, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(file.fd.get(), out.data() + done, out.size() - done,
                                  static_cast<off_t>(offset + done));
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return disk_error(file.path, "read", errno);
    done += static_cast<size_t>(count);
  }
  return done;
}

Status write_disk_file(const DiskPath& file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(file.fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return disk_error(file.path, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

Status sync_disk_file(const DiskPath& file) {
  if (::fsync(file.fd.get()) != 0) return disk_error(file.path, "sync", errno);
  return {};
}

Status truncate_disk_file(const DiskPath& file, uint64_t bytes) {
  if (::ftruncate(file.fd.get(), static_cast<off_t>(bytes)) == 0) return {};
  return disk_error(file.path, "set the length to " + exact_bytes(bytes) + " of", errno);
}

Result<bool> reserve_disk_file(const DiskPath& file, uint64_t bytes) {
  while (::fallocate(file.fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return false;
    return disk_error(file.path, "reserve " + format_bytes(bytes) + " for", errno);
  }
  return true;
}

Status check_file_size_limit(uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes <= limit.rlim_cur) {
    return {};
  }
  return Error(Code::kInvalid,
               "disk_bytes asks for files of " + format_bytes(bytes) +
                   ", but the process may not write any longer than RLIMIT_FSIZE = " +
                   exact_bytes(limit.rlim_cur) + "; raise it (ulimit -f) or make disk_bytes less");
}

Status set_direct(const DiskPath& file, bool direct) {
  const int flags = ::fcntl(file.fd.get(), F_GETFL);
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  if (flags < 0 || ::fcntl(file.fd.get(), F_SETFL, wanted) != 0) {
    return Error(Code::kUnsupported, error_text(errno));
  }
  if (!direct) return {};
  Page page;
  if (::pread(file.fd.get(), page.bytes.data(), page.bytes.size(), 0) >= 0) return {};
  const int error = errno;
  TIERCEL_TRY(set_direct(file, false));
  return Error(Code::kUnsupported, error_text(error));
}

Result<DiskHeader> read_data_header(const DiskPath& file) {
  Page page;
  // What a shorter file lacks reads as zeros.
  TIERCEL_TRY(read_disk_file(file, 0, page.bytes));
  Result<DiskHeader> header = decode_disk_header(page.bytes);
  if (!header) return with_path(file, header.error());
  if (header->kind != DiskFileKind::kData) {
    return with_path(file, Error(Code::kCorrupt, "header of another kind of file"));
  }
  return header;
}

Result<DiskHeader> read_metadata_header(const DiskPath& file) {
  const auto read_page = [&file](uint64_t index) -> Result<DiskHeader> {
    Page page;
    TIERCEL_TRY(read_disk_file(file, index * kDiskHeaderBytes, page.bytes));
    Result<DiskHeader> header = decode_disk_header(page.bytes);
    if (header && (header->kind != DiskFileKind::kMetadata || header->generation % 2 != index)) {
      return Error(Code::kCorrupt, "disk header in a place that is not its own");
    }
    return header;
  };
  Result<DiskHeader> a = read_page(0);
  Result<DiskHeader> b = read_page(1);
  // A failed read and another version say more than a page that can be read.
  for (const Result<DiskHeader>* page : {&a, &b}) {
    if (*page || page->code() == Code::kNotFound || page->code() == Code::kCorrupt) continue;
    return page->code() == Code::kUnsupported ? with_path(file, page->error()) : page->error();
  }
  if (a && b) return a->generation > b->generation ? a : b;
  if (a) return a;
  if (b) return b;
  return with_path(file, a.code() == Code::kCorrupt ? a.error() : b.error());
}

Status write_disk_header(const DiskPath& file, const DiskHeader& header) {
  Page page;
  encode_disk_header(header, page.bytes);
  const bool is_data = header.kind == DiskFileKind::kData;
  TIERCEL_TRY(
      write_disk_file(file, is_data ? 0 : disk_header_offset(header.generation), page.bytes));
  return sync_disk_file(file);
}

}  // namespace tiercel
