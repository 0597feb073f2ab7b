// SPDX-License-Identifier: Apache-2.0
//
// Processes by their pidfd: whether one has ended and how, and its end.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

#include "tiercel/status.h"

#include "base/file_descriptor.h"

namespace tiercel {

// How a process has ended, as far as can be told.
struct ProcessEnd {
  std::string how;  // "exited with status 1"
  // Of the table of processes. Not so while a debugger, which is told first, still looks at it:
  // then ask again. Its memory is gone all the same.
  bool is_reaped = false;
  bool is_killed = false;  // by SIGKILL
};
// Looks whether the process behind a pidfd, a child of ours, has ended, and reaps it then.
std::optional<ProcessEnd> reap_process(int process);
// Waits for the end of a child of ours, and reaps it.
ProcessEnd await_process(int process);
// As reap_process, of a process that is not ours to reap.
std::optional<ProcessEnd> look_at_process(int process);
void kill_process(int process);
// Whether a child of ours is stopped, by a signal or a debugger.
bool is_process_stopped(int process);
// A pidfd; kUnavailable, also if there is no such process.
Result<FileDescriptor> open_process(int64_t pid);
// A pidfd of a child that has just been started. One that cannot be watched is killed and reaped:
// then there is none, and *error is errno.
FileDescriptor watch_child(pid_t child, int* error);

}  // namespace tiercel
