// SPDX-License-Identifier: Apache-2.0
//
// start_child: runs a program that dies with this process, whatever the program is.
//
// What posix_spawn does, and one thing that it cannot: the wish to die with the parent is set
// between fork and exec, so that a program which knows nothing of it keeps it too. The child shares
// our memory until it runs the program; nothing is copied, however large this process is.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace tiercel {

inline constexpr int kChildSocketFd = 3;

struct ChildStart {
  std::string program;
  std::vector<std::string> arguments;  // with the program's name as the first
  int socket = -1;                     // becomes its descriptor kChildSocketFd
  std::string log_path;                // appended to as standard error; empty: ours
  pid_t parent = 0;                    // this process; the program is not run for another one
};

struct StartedChild {
  pid_t pid = 0;          // 0: it failed, and no process is left
  int error = 0;          // errno
  const char* call = "";  // that failed
};

// A process group of its own, default signals, /dev/null as standard input and output, and no other
// descriptor of ours. It is killed when the *thread* that calls this ends.
StartedChild start_child(const ChildStart& start);

// Whether the program that could not be run with this error will be runnable in a moment.
bool may_run_later(int error);

}  // namespace tiercel
