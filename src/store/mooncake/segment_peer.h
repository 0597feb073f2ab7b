// SPDX-License-Identifier: Apache-2.0
//
// SegmentPeer: the segment of another process of this node, from its socket (SegmentShare). While
// nobody listens there it is asked again each second, and objects come by the transport.
//
// Threads: one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/unix_socket.h"
#include "store/mooncake/segment_source.h"

namespace tiercel {

class SegmentPeer final : public SegmentSource {
 public:
  // Asks nobody yet. kInvalid for a path that no socket can have, kUnavailable if the system has no
  // descriptor left.
  static Result<std::unique_ptr<SegmentPeer>> create(std::string path);

  bool poll(TimePoint now) override;
  TimePoint next_due() const override { return socket_ ? kNoDeadline : retry_at_; }
  std::vector<int> fds() const override { return {epoll_.get()}; }
  const mooncake::SegmentPlace& place() const override { return place_; }
  int memfd() const override { return memfd_.get(); }
  uint64_t bytes() const override { return bytes_; }
  uint64_t given_bytes() const override { return 0; }
  std::string problem() const override;
  Status close(const Clock& clock, Duration allowed) override;

 private:
  SegmentPeer(std::string path, FileDescriptor epoll);
  Status connect();
  Status take_all();
  Status take(SocketMessage message);

  const std::string path_;
  const FileDescriptor epoll_;
  FileDescriptor socket_;
  FileDescriptor memfd_;
  uint64_t bytes_ = 0;
  mooncake::SegmentPlace place_;
  std::string problem_;
  TimePoint retry_at_{};
};

}  // namespace tiercel
