// SPDX-License-Identifier: Apache-2.0
#include "base/memfd.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/error_text.h"
#include "base/file_size_signal.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

Status set_size(int fd, size_t bytes) {
  const FileSizeSignalBlock block;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return {};
  const int error = errno;
  const std::string failed = "memfd of " + format_bytes(bytes) + " failed: " + error_text(error);
  rlimit limit{};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return Error(Code::kNoSpace, failed + "; the limit of file size is " +
                                     format_bytes(limit.rlim_cur) +
                                     ": raise it (ulimit -f) or make the memory smaller");
  }
  return Error(Code::kNoSpace, failed +
                                   "; make it smaller, or raise the limit (ulimit -v, "
                                   "vm.overcommit_memory)");
}

}  // namespace

Result<FileDescriptor> make_memfd(const std::string& name, size_t bytes) {
  FileDescriptor fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    const int error = errno;
    const Code code = error == EINVAL ? Code::kInvalid : Code::kUnavailable;
    return Error(code, "memfd '" + name + "' could not be made: " + limit_error_text(error) +
                           (code == Code::kInvalid ? "; a name has at most 249 bytes" : ""));
  }
  TIERCEL_TRY(set_size(fd.get(), bytes));
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Error(Code::kUnavailable,
                 "memfd '" + name + "' could not be protected: " + error_text(errno));
  }
  return fd;
}

Status check_memfd(int fd, size_t bytes, const std::string& what) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return Error(Code::kInvalid, what + " is not a memfd: " + error_text(errno));
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return Error(Code::kInvalid, what + " is not sealed against shrinking (F_SEAL_SHRINK)");
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    return Error(Code::kInvalid, what + " cannot be examined: " + error_text(errno));
  }
  if (status.st_size < 0 || static_cast<size_t>(status.st_size) < bytes) {
    return Error(Code::kInvalid, what + " has " + std::to_string(status.st_size) +
                                     " bytes; allowed: at least " + std::to_string(bytes));
  }
  return {};
}

}  // namespace tiercel
