// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.h"

#include <array>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/thread.h"

namespace tiercel {
Result<std::unique_ptr<ChildProcess>> ChildProcess::start(ChildStart start, FileDescriptor socket) {
  TIERCEL_TRY_ASSIGN(EventFd changed, EventFd::create());
  TIERCEL_TRY_ASSIGN(EventFd stop, EventFd::create());
  std::unique_ptr<ChildProcess> child(
      new ChildProcess(std::move(start), std::move(socket), std::move(changed), std::move(stop)));
  TIERCEL_TRY_ASSIGN(child->thread_,
                     start_thread("tiercel-child", [self = child.get()] { self->run(); }));
  return child;
}

ChildProcess::ChildProcess(ChildStart start, FileDescriptor socket, EventFd changed, EventFd stop)
    : start_(std::move(start)),
      socket_(std::move(socket)),
      owner_(::getpid()),
      changed_(std::move(changed)),
      stop_(std::move(stop)) {
  start_.socket = socket_.get();
  start_.parent = owner_;
}

ChildProcess::~ChildProcess() {
  if (!thread_.joinable()) return;
  if (::getpid() != owner_) {
    thread_.detach();
    return;
  }
  kill();
  thread_.join();
}

ChildProcess::State ChildProcess::state() const {
  MutexLock lock(mutex_);
  return state_;
}

pid_t ChildProcess::pid() const {
  MutexLock lock(mutex_);
  return pid_;
}

std::string ChildProcess::end_text() const {
  MutexLock lock(mutex_);
  return end_.how;
}

bool ChildProcess::was_killed() const {
  MutexLock lock(mutex_);
  return end_.is_killed;
}

void ChildProcess::set(State state, pid_t pid, ProcessEnd end) {
  {
    MutexLock lock(mutex_);
    state_ = state;
    pid_ = pid;
    end_ = std::move(end);
  }
  changed_.signal();
}

void ChildProcess::run() {
  const StartedChild child = start_child(start_);
  // The program has it; while we had it too, its end would not close the connection.
  socket_.reset();
  if (child.pid == 0) {
    set(State::kEnded, 0,
        {.how =
             "could not be started: " + std::string(child.call) + ": " + error_text(child.error)});
    return;
  }
  int error = 0;
  const FileDescriptor process = watch_child(child.pid, &error);
  if (!process) {
    set(State::kEnded, 0, {.how = "could not be watched: " + limit_error_text(error)});
    return;
  }
  set(State::kRunning, child.pid);
  std::array<pollfd, 2> sources{{{.fd = process.get(), .events = POLLIN, .revents = 0},
                                 {.fd = stop_.fd(), .events = POLLIN, .revents = 0}}};
  while ((sources[0].revents & POLLIN) == 0) {
    ::poll(sources.data(), sources.size(), -1);
    if ((sources[1].revents & POLLIN) == 0) continue;
    kill_process(process.get());
    sources[1].fd = -1;
    sources[1].revents = 0;
  }
  set(State::kEnded, 0, await_process(process.get()));
}

}  // namespace tiercel
