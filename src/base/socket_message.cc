// SPDX-License-Identifier: Apache-2.0
#include "base/socket_message.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "base/assert.h"

namespace tiercel {

int send_socket_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  TIERCEL_ASSERT(fds.size() <= kSocketMessageFdsMax,
                 "more descriptors than a message has room for");
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kSocketMessageFdsMax)> control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * fds.size());
  }
  // A message of this kind of socket goes whole or not at all.
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace tiercel
