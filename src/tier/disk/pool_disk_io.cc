// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/pool_disk_io.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include <unistd.h>

#include "base/assert.h"
#include "base/event_fd.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace tiercel {
namespace {

class PoolDiskIo final : public DiskIo {
 public:
  PoolDiskIo(const std::array<int, kDiskFileCount>& fds, std::string mode,
             const DiskIoOptions& options, EventFd event)
      : fds_(fds),
        mode_(std::move(mode)),
        queue_depth_(options.queue_depth),
        event_(std::move(event)),
        executor_(make_thread_executor({.threads = std::min(options.threads, options.queue_depth),
                                        // One more: the task of check() may still wait.
                                        .queue_tasks = options.queue_depth + 1,
                                        .name = "tiercel-disk"})) {}

  ~PoolDiskIo() override {
    // The executor would drop what waits; what was handed over is carried out, as by a ring.
    MutexLock lock(mutex_);
    while (taken_ != completed_.size()) one_completed_.wait(mutex_);
  }

  // kUnavailable if there is no thread.
  Status check() {
    return executor_->submit([] {});
  }

  size_t capacity() const override { return queue_depth_ - taken_; }

  void submit(std::span<const DiskIoRequest> requests) override {
    TIERCEL_ASSERT(requests.size() <= capacity(), "no more is submitted than there is room for");
    for (const DiskIoRequest& request : requests) {
      ++taken_;
      const Status status = executor_->submit(
          [this, request] { complete({.token = request.token, .result = carry_out(request)}); });
      TIERCEL_ASSERT(status.has_value(), "there are threads, and a place for each request");
    }
  }

  size_t poll(std::span<DiskIoCompletion> out) override {
    // First: what completes from here on signals again.
    event_.drain();
    MutexLock lock(mutex_);
    const size_t count = std::min(out.size(), completed_.size());
    const auto end = completed_.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(completed_.begin(), end, out.begin());
    completed_.erase(completed_.begin(), end);
    taken_ -= count;
    if (!completed_.empty()) event_.signal();
    return count;
  }

  int completion_fd() const override { return event_.fd(); }
  std::string describe() const override { return "threads, " + mode_; }

 private:
  int64_t carry_out(const DiskIoRequest& request) const {
    const int fd = fds_[static_cast<size_t>(request.file)];
    const auto offset = static_cast<off_t>(request.offset);
    ssize_t result = 0;
    switch (request.kind) {
      case DiskIoKind::kRead:
        result = ::pread(fd, request.memory.data(), request.memory.size(), offset);
        break;
      case DiskIoKind::kWrite:
        result = ::pwrite(fd, request.memory.data(), request.memory.size(), offset);
        break;
      case DiskIoKind::kSync:
        result = ::fdatasync(fd);
        break;
    }
    return result < 0 ? -int64_t{errno} : result;
  }

  void complete(const DiskIoCompletion& completion) {
    // Under the lock: the destructor may go on as soon as it sees the last one.
    MutexLock lock(mutex_);
    completed_.push_back(completion);
    event_.signal();
    one_completed_.notify_one();
  }

  const std::array<int, kDiskFileCount> fds_;
  const std::string mode_;
  const uint32_t queue_depth_;
  size_t taken_ = 0;  // submitted and not yet polled; of the caller's thread

  EventFd event_;
  Mutex mutex_;
  CondVar one_completed_;
  std::deque<DiskIoCompletion> completed_ TIERCEL_GUARDED_BY(mutex_);
  std::unique_ptr<Executor> executor_;  // last: its threads end before what they use
};

}  // namespace

Result<std::unique_ptr<DiskIo>> make_pool_disk_io(const std::array<int, kDiskFileCount>& fds,
                                                  std::string mode, const DiskIoOptions& options) {
  TIERCEL_TRY_ASSIGN(EventFd event, EventFd::create());
  auto io = std::make_unique<PoolDiskIo>(fds, std::move(mode), options, std::move(event));
  TIERCEL_TRY(io->check());
  return io;
}

}  // namespace tiercel
