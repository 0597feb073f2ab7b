// SPDX-License-Identifier: Apache-2.0
//
// Waiting for a descriptor in tests.
#pragma once

#include <poll.h>

namespace tiercel::testing {

// Only there so that what never happens fails a test instead of hanging it.
inline constexpr int kHangMs = 60'000;

inline bool readable(int fd, int timeout_ms) {
  pollfd source{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&source, 1, timeout_ms) == 1;
}

}  // namespace tiercel::testing
