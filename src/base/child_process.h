// SPDX-License-Identifier: Apache-2.0
//
// ChildProcess: a program that runs beside us, is watched, and never outlives this object or this
// process.
//
// A thread of this object starts it, waits for its end and reaps it: so nobody else waits for exec
// or for a death, and what dies with its parent, which for the kernel is a *thread*, lives as long
// as this object.
//
// Threads: one; the watching thread is inside.
// Fork:    in a forked child the destructor leaves the program alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <sys/types.h>

#include "tiercel/status.h"

#include "base/child_start.h"
#include "base/event_fd.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/process.h"

namespace tiercel {

class ChildProcess {
 public:
  enum class State : uint8_t { kStarting, kRunning, kEnded };

  // Returns before the program runs. start.socket and start.parent are set here: `socket` becomes
  // the program's descriptor kChildSocketFd. kUnavailable if there is no descriptor or thread left;
  // that the program cannot be run shows as its end.
  static Result<std::unique_ptr<ChildProcess>> start(ChildStart start, FileDescriptor socket);
  // Kills it, and waits until it is gone.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Once it is kEnded no memory that it has shared with us changes any more.
  State state() const;
  // Of the running program; 0 before and after.
  pid_t pid() const;
  // "exited with status 1", "was killed by signal 9", "could not be started: execve: No such file
  // or directory"; empty until it has ended.
  std::string end_text() const;
  // By SIGKILL, whoever sent it.
  bool was_killed() const;

  // Readable after each change of state until acknowledge().
  int event_fd() const { return changed_.fd(); }
  void acknowledge() { changed_.drain(); }

  // SIGKILL, soon; does not wait.
  void kill() { stop_.signal(); }

 private:
  ChildProcess(ChildStart start, FileDescriptor socket, EventFd changed, EventFd stop);
  void run();
  void set(State state, pid_t pid, ProcessEnd end = {});

  ChildStart start_;
  FileDescriptor socket_;
  const pid_t owner_;
  EventFd changed_;
  EventFd stop_;
  mutable Mutex mutex_;
  State state_ TIERCEL_GUARDED_BY(mutex_) = State::kStarting;
  pid_t pid_ TIERCEL_GUARDED_BY(mutex_) = 0;
  ProcessEnd end_ TIERCEL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tiercel
