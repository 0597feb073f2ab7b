// SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/poll_timeout.h"

namespace tiercel {
namespace {

constexpr int kBacklog = 64;
constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

Error socket_error(const std::string& what, int error) {
  return Error(Code::kUnavailable,
               what + ": " + (error == EAGAIN ? error_text(error) : limit_error_text(error)));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(static_cast<char*>(address.sun_path), path.data(), path.size());
  return address;
}

union ControlBuffer {
  cmsghdr aligned;
  std::array<char, CMSG_SPACE(sizeof(int) * kMessageFdsMax)> bytes;
};

// Takes over every descriptor that came with a message.
std::vector<FileDescriptor> take_fds(msghdr& message) {
  std::vector<FileDescriptor> fds;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<std::pair<FileDescriptor, FileDescriptor>> make_socket_pair() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, kSocketType, 0, fds.data()) != 0) {
    return socket_error("socket pair could not be made", errno);
  }
  return std::pair(FileDescriptor(fds[0]), FileDescriptor(fds[1]));
}

Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  const int error = send_socket_message(socket, bytes, fds);
  if (error == 0) return {};
  if (error == EAGAIN || error == ENOBUFS) {
    return Error(Code::kBusy, "the other side does not read its messages");
  }
  return socket_error("a message could not be sent", error);
}

Result<std::optional<SocketMessage>> receive_message(int socket) {
  SocketMessage received;
  received.bytes.resize(kSocketMessageBytesMax);
  iovec part{received.bytes.data(), received.bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  ssize_t count = 0;
  bool is_reset = false;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    // Told once if the other side has hung up without having read all; what it said before, such as
    // why, comes after that.
  } while (count < 0 &&
           (errno == EINTR || (errno == ECONNRESET && !std::exchange(is_reset, true))));
  if (count < 0 && errno == EAGAIN) return std::optional<SocketMessage>();
  if (count < 0) return socket_error("the other side cannot be heard", errno);
  received.fds = take_fds(message);
  // A datagram of nothing is none of ours either.
  if (count == 0) return Error(Code::kUnavailable, "the other side has hung up");
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return Error(Code::kCorrupt, "a message is longer than the " +
                                     std::to_string(kSocketMessageBytesMax) +
                                     " bytes that are allowed");
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    if (received.fds.size() >= kMessageFdsMax) {
      return Error(Code::kCorrupt, "a message has more than the " + std::to_string(kMessageFdsMax) +
                                       " descriptors that are allowed");
    }
    return Error(Code::kNoSpace,
                 "this process has no descriptor left for those of a message; raise the limit of "
                 "open files (ulimit -n)");
  }
  received.bytes.resize(static_cast<size_t>(count));
  return std::optional(std::move(received));
}

Status wait_readable(int socket, TimePoint deadline, const Clock& clock, const std::string& what) {
  pollfd source{.fd = socket, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&source, 1, poll_timeout_ms(deadline, clock));
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return {};
  return Error(Code::kTimeout, what + " did not come in time");
}

Result<SocketPeer> socket_peer(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return socket_error("the other side's user cannot be told", errno);
  }
  return SocketPeer{credentials.pid, credentials.uid};
}

Status check_same_user(const SocketPeer& peer) {
  if (peer.uid == ::geteuid()) return {};
  return Error(Code::kInvalid, "the other side runs as user " + std::to_string(peer.uid) +
                                   "; allowed: " + std::to_string(::geteuid()) +
                                   ", the user of this process");
}

Status check_socket_path(const std::string& path) {
  constexpr size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (!path.empty() && path.size() <= kPathBytesMax && path.find('\0') == std::string::npos) {
    return {};
  }
  return Error(Code::kInvalid, "socket path '" + path + "' has " + std::to_string(path.size()) +
                                   " bytes; allowed: 1 to " + std::to_string(kPathBytesMax));
}

Result<FileDescriptor> listen_on(const std::string& path) {
  TIERCEL_TRY(check_socket_path(path));
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket) return socket_error("socket could not be made", errno);
  const sockaddr_un address = address_of(path);
  // Before it is bound: the file gets these rights, less the umask.
  if (::fchmod(socket.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return socket_error("socket '" + path + "' could not be opened", errno);
  }
  return socket;
}

Result<std::optional<FileDescriptor>> accept_from(int listener) {
  while (true) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return std::optional(FileDescriptor(fd));
    if (errno == EAGAIN) return std::optional<FileDescriptor>();
    // Whoever asked may have gone again.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    return socket_error("a connection could not be let in", errno);
  }
}

Result<FileDescriptor> connect_now(const std::string& path) {
  TIERCEL_TRY(check_socket_path(path));
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket) return socket_error("socket could not be made", errno);
  const sockaddr_un address = address_of(path);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
         0) {
    if (errno != EINTR) return socket_error("nobody listens at '" + path + "'", errno);
  }
  return socket;
}

Result<FileDescriptor> connect_to(const std::string& path, TimePoint deadline, const Clock& clock) {
  TIERCEL_TRY(check_socket_path(path));
  // Blocking until it is connected: while the backlog is full, connect() itself waits.
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return socket_error("socket could not be made", errno);
  const sockaddr_un address = address_of(path);
  while (true) {
    const int64_t ms = poll_timeout_ms(deadline, clock);
    if (ms == 0) return Error(Code::kTimeout, "'" + path + "' let nobody in in time");
    // 0 is for ever.
    const timeval limit{.tv_sec = ms < 0 ? 0 : ms / 1000, .tv_usec = ms < 0 ? 0 : ms % 1000 * 1000};
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
      return socket_error("socket could not be given a limit", errno);
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
        0) {
      break;
    }
    if (errno != EINTR && errno != EAGAIN) {
      return socket_error("nobody listens at '" + path + "'", errno);
    }
  }
  if (::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0) {
    return socket_error("socket could not be made non-blocking", errno);
  }
  return socket;
}

}  // namespace tiercel
