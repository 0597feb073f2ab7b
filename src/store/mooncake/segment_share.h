// SPDX-License-Identifier: Apache-2.0
//
// SegmentShare: hands a segment to the other processes of this node that ask for it at a Unix
// socket: its memfd and where it is in the pool, once when they come and again when that changes.
// Only processes of this user are answered; they could write into the memory.
//
// Threads: one. Fork: in a forked child the destructor leaves the socket alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "store/mooncake/wire.h"

namespace tiercel {

class SegmentShare {
 public:
  // `memfd` is borrowed for as long as this lives. A socket that a dead process has left is
  // replaced. kInvalid for a path that no socket can have, kUnavailable if another process listens
  // there or the system refuses it.
  static Result<std::unique_ptr<SegmentShare>> create(std::string path, int memfd, uint64_t bytes);
  // Removes the socket.
  ~SegmentShare();
  SegmentShare(const SegmentShare&) = delete;
  SegmentShare& operator=(const SegmentShare&) = delete;

  // Lets in who has come, forgets who has gone, and tells all of them where the segment is.
  void poll(const mooncake::SegmentPlace& place);
  // Readable when poll() has something to do.
  int fd() const { return epoll_.get(); }

 private:
  SegmentShare(std::string path, int memfd, uint64_t bytes, FileDescriptor epoll,
               FileDescriptor listener);
  void let_in();
  bool tell(int peer) const;

  const std::string path_;
  const int memfd_;
  const uint64_t bytes_;
  const pid_t owner_;
  const FileDescriptor epoll_;
  const FileDescriptor listener_;
  std::vector<FileDescriptor> peers_;
  mooncake::SegmentPlace place_;
};

}  // namespace tiercel
