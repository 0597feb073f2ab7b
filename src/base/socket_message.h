// SPDX-License-Identifier: Apache-2.0
//
// Whole messages, with descriptors, over a Unix socket of type SOCK_SEQPACKET.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <span>

namespace tiercel {

inline constexpr size_t kSocketMessageFdsMax = 8;

// 0 if all of it has been sent, else errno: EAGAIN or ENOBUFS where the other side does not read
// its messages. Never blocks. At most kSocketMessageFdsMax descriptors, which stay the caller's.
int send_socket_message(int socket, std::span<const std::byte> bytes,
                        std::span<const int> fds = {});

}  // namespace tiercel
