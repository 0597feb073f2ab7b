// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/instance_socket.h"

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/file_size_signal.h"
#include "base/quantity.h"
#include "base/unix_socket.h"

namespace tiercel {
namespace {

Status check_name(const std::string& instance) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (!instance.empty() && instance.front() != '.' &&
      instance.find_first_not_of(kAllowed) == std::string::npos) {
    return {};
  }
  return Error(Code::kInvalid, "instance name is " + quoted_text(instance) +
                                   "; allowed: letters, digits, '-', '_' and '.', not first");
}

Status make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Error(Code::kUnavailable,
                 "socket folder '" + folder + "' could not be made: " + error_text(errno));
  }
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) {
    return Error(Code::kUnavailable,
                 "socket folder '" + folder + "' cannot be examined: " + error_text(errno));
  }
  if (S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
      (status.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    return {};
  }
  return Error(Code::kInvalid, "socket folder '" + folder +
                                   "' is not a folder of this user alone; choose another, or "
                                   "chown it and chmod 0700");
}

// The process id that the holder has written; 0 if there is none.
int64_t read_holder(int fd) {
  std::array<char, 32> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size() - 1, 0);
  int64_t pid = 0;
  for (ssize_t i = 0; i < count && text[static_cast<size_t>(i)] >= '0' &&
                      text[static_cast<size_t>(i)] <= '9' && pid < INT32_MAX;
       ++i) {
    pid = pid * 10 + (text[static_cast<size_t>(i)] - '0');
  }
  return pid;
}

Error taken(const std::string& instance, const std::string& lock_path, int64_t pid) {
  return Error(Code::kBusy, "instance '" + instance + "' is held by process " +
                                std::to_string(pid) + " (" + lock_path +
                                ", or by one that it forked); end it or choose another instance "
                                "name");
}

bool is_same_file(int fd, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

Result<FileDescriptor> lock_name(const std::string& instance, const std::string& lock_path) {
  while (true) {
    FileDescriptor fd(
        ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (!fd) {
      return Error(Code::kUnavailable,
                   "lock file '" + lock_path + "' could not be opened: " + limit_error_text(errno));
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) return taken(instance, lock_path, read_holder(fd.get()));
      return Error(Code::kUnavailable,
                   "lock file '" + lock_path + "' could not be locked: " + error_text(errno));
    }
    // The holder before us removes the file when it ends: then we have locked one that nobody will
    // ever find.
    if (!is_same_file(fd.get(), lock_path)) continue;
    const std::string pid = std::to_string(::getpid()) + "\n";
    const FileSizeSignalBlock block;
    if (::ftruncate(fd.get(), 0) != 0 ||
        ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return Error(Code::kUnavailable,
                   "lock file '" + lock_path + "' could not be written: " + error_text(errno));
    }
    return fd;
  }
}

}  // namespace

Result<std::unique_ptr<InstanceSocket>> InstanceSocket::open(const std::string& folder,
                                                             const std::string& instance) {
  TIERCEL_TRY(check_name(instance));
  std::string path = folder + "/" + instance + ".sock";
  TIERCEL_TRY(check_socket_path(path));
  TIERCEL_TRY(make_folder(folder));
  std::string lock_path = folder + "/" + instance + ".lock";
  TIERCEL_TRY_ASSIGN(FileDescriptor lock, lock_name(instance, lock_path));
  // Whoever made it is dead, as we have its lock.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Error(Code::kUnavailable,
                 "old socket '" + path + "' could not be removed: " + error_text(errno));
  }
  TIERCEL_TRY_ASSIGN(FileDescriptor listener, listen_on(path));
  return std::unique_ptr<InstanceSocket>(new InstanceSocket(std::move(path), std::move(lock_path),
                                                            std::move(lock), std::move(listener)));
}

InstanceSocket::InstanceSocket(std::string path, std::string lock_path, FileDescriptor lock,
                               FileDescriptor listener)
    : path_(std::move(path)),
      lock_path_(std::move(lock_path)),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      owner_(::getpid()) {}

InstanceSocket::~InstanceSocket() {
  if (::getpid() != owner_) return;
  // The lock is still ours: nobody else can have put files of the same names there.
  ::unlink(path_.c_str());
  ::unlink(lock_path_.c_str());
}

Result<std::optional<FileDescriptor>> InstanceSocket::accept() {
  while (true) {
    TIERCEL_TRY_ASSIGN(std::optional<FileDescriptor> peer, accept_from(listener_.get()));
    if (!peer) return std::optional<FileDescriptor>();
    const Result<SocketPeer> who = socket_peer(peer->get());
    if (who && check_same_user(*who)) return peer;
  }
}

}  // namespace tiercel
