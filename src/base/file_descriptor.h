// SPDX-License-Identifier: Apache-2.0
//
// FileDescriptor: owns one descriptor of the operating system.
#pragma once

#include <utility>

#include <unistd.h>

namespace tiercel {

// Ownership: move-only; the destructor closes. An empty one shows -1.
// Threads:   one at a time.
// Errors:    what close() reports is dropped; whoever needs it syncs first.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }

  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

  // Gives the descriptor up without closing it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

  // Closes what is owned and takes `fd` instead. EINTR is not retried: on Linux the descriptor is
  // gone even then, and another thread may have got its number.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace tiercel
