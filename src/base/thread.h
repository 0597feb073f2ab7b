// SPDX-License-Identifier: Apache-2.0
//
// How Tiercel starts threads: named, and with all signals blocked (but those of a thread's own
// faults), so that the application's signal handlers run on the application's threads only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "tiercel/status.h"

namespace tiercel {

inline constexpr size_t kThreadNameBytesMax = 15;

// Runs `body` on a new thread called `name` (as /proc and debuggers show it; longer than
// kThreadNameBytesMax is cut). The caller joins. kUnavailable if the system gives no thread.
Result<std::thread> start_thread(std::string name, std::function<void()> body);

}  // namespace tiercel
