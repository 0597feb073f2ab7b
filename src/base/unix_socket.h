// SPDX-License-Identifier: Apache-2.0
//
// Unix sockets of type SOCK_SEQPACKET: datagrams in order that carry descriptors, and an end that
// each side sees when the other is gone. Nothing here waits but wait_readable() and connect_to().
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "base/socket_message.h"

namespace tiercel {

// What receive_message() takes.
inline constexpr size_t kSocketMessageBytesMax = 8192;
inline constexpr size_t kMessageFdsMax = kSocketMessageFdsMax;

struct SocketMessage {
  std::vector<std::byte> bytes;
  std::vector<FileDescriptor> fds;
};

// Both ends: close-on-exec, never block.
Result<std::pair<FileDescriptor, FileDescriptor>> make_socket_pair();

// kUnavailable if the other side is gone, kBusy if its buffer is full.
Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {});

// Nothing if no message is there. kUnavailable if the other side has hung up; kCorrupt if the
// message is longer or has more descriptors than any of ours; kNoSpace if this process has no
// descriptor left for those that came.
Result<std::optional<SocketMessage>> receive_message(int socket);

// Until something can be received; kTimeout, with `what` was waited for, at `deadline`.
Status wait_readable(int socket, TimePoint deadline, const Clock& clock, const std::string& what);

struct SocketPeer {
  int64_t pid = 0;
  uint32_t uid = 0;
};
Result<SocketPeer> socket_peer(int socket);
// kInvalid unless the other side belongs to this process's user.
Status check_same_user(const SocketPeer& peer);

// kInvalid if the path is longer than a socket's may be.
Status check_socket_path(const std::string& path);
// A socket in the file system, for the owner only. kUnavailable if the system refuses it.
Result<FileDescriptor> listen_on(const std::string& path);
// Nothing if nobody asks to be let in.
Result<std::optional<FileDescriptor>> accept_from(int listener);
// Without waiting. kUnavailable if nobody listens at `path`, or too many wait there.
Result<FileDescriptor> connect_now(const std::string& path);
// kUnavailable if nobody listens at `path`; kTimeout.
Result<FileDescriptor> connect_to(const std::string& path, TimePoint deadline, const Clock& clock);

}  // namespace tiercel
