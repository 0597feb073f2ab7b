// SPDX-License-Identifier: Apache-2.0
//
// Executor: runs tasks somewhere else, through a bounded queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "tiercel/status.h"

namespace tiercel {

// Threads: submit() from any thread.
class Executor {
 public:
  virtual ~Executor() = default;
  // kBusy if the queue is full, kUnavailable after the executor was stopped; the task is not run
  // then.
  virtual Status submit(std::function<void()> task) = 0;
};

struct ThreadExecutorOptions {
  uint32_t threads = 1;          // 1 to 256
  uint32_t queue_tasks = 256;    // waiting tasks; at least 1
  const char* name = "tiercel";  // of the threads; at most 15 characters
};

// Runs tasks on its own threads, in order of submission where there is one thread. The destructor
// lets the running tasks end and drops the waiting ones. Threads block all signals. Where the
// system gives no thread at all, every submit() says so (kUnavailable).
std::unique_ptr<Executor> make_thread_executor(const ThreadExecutorOptions& options);

// Runs tasks only when told, on the caller's thread: for tests and simulation.
class ManualExecutor final : public Executor {
 public:
  Status submit(std::function<void()> task) override;
  bool run_one();  // false if nothing waits
  size_t waiting() const;

 private:
  std::deque<std::function<void()>> tasks_;
};

}  // namespace tiercel
