// SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <string_view>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace tiercel {
namespace {

class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(const ThreadExecutorOptions& options)
      : queue_tasks_(options.queue_tasks) {
    for (uint32_t i = 0; i < options.threads; ++i) {
      Result<std::thread> thread = start_thread(options.name, [this] { work(); });
      if (!thread) {
        // Fewer threads do the same work; none at all shows at submit().
        start_error_ = thread.error();
        break;
      }
      threads_.push_back(*std::move(thread));
    }
  }

  ~ThreadExecutor() override {
    std::deque<std::function<void()>> dropped;
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      dropped.swap(tasks_);
    }
    not_empty_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Status submit(std::function<void()> task) override {
    TIERCEL_ASSERT(task != nullptr, "a task is a function");
    if (threads_.empty()) return start_error_;
    {
      MutexLock lock(mutex_);
      if (stopped_) return Error(Code::kUnavailable, "executor was stopped; the task was not run");
      if (tasks_.size() >= queue_tasks_) {
        return Error(Code::kBusy, "executor queue is full: " + std::to_string(tasks_.size()) +
                                      " tasks wait; try again later");
      }
      tasks_.push_back(std::move(task));
    }
    not_empty_.notify_one();
    return {};
  }

 private:
  void work() {
    while (std::function<void()> task = next()) task();
  }

  // Waits; empty after the stop.
  std::function<void()> next() {
    MutexLock lock(mutex_);
    while (tasks_.empty() && !stopped_) not_empty_.wait(mutex_);
    if (stopped_) return nullptr;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  // Constant after construction.
  const size_t queue_tasks_;
  std::vector<std::thread> threads_;
  Error start_error_{Code::kUnavailable, "executor has no thread"};

  Mutex mutex_;
  CondVar not_empty_;
  std::deque<std::function<void()>> tasks_ TIERCEL_GUARDED_BY(mutex_);
  bool stopped_ TIERCEL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const ThreadExecutorOptions& options) {
  TIERCEL_ASSERT(options.threads >= 1 && options.threads <= 256,
                 "an executor has 1 to 256 threads");
  TIERCEL_ASSERT(options.queue_tasks >= 1, "an executor queues at least 1 task");
  TIERCEL_ASSERT(std::string_view(options.name).size() <= kThreadNameBytesMax,
                 "a thread's name has at most 15 characters");
  return std::make_unique<ThreadExecutor>(options);
}

Status ManualExecutor::submit(std::function<void()> task) {
  TIERCEL_ASSERT(task != nullptr, "a task is a function");
  tasks_.push_back(std::move(task));
  return {};
}

bool ManualExecutor::run_one() {
  if (tasks_.empty()) return false;
  // Taken out first: a task may submit another.
  const std::function<void()> task = std::move(tasks_.front());
  tasks_.pop_front();
  task();
  return true;
}

size_t ManualExecutor::waiting() const { return tasks_.size(); }

}  // namespace tiercel
