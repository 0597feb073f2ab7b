// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_thread.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include <poll.h>

#include "base/assert.h"
#include "base/thread.h"

namespace tiercel {
namespace {

// Messages that are moved between ring and worker at once.
constexpr size_t kBatch = 256;
// Blocks that are copied before the rings are looked at again, so that a new load overtakes waiting
// saves.
constexpr uint32_t kMemoryOps = 4;

// For poll(2): milliseconds until `time`, rounded up; -1 for ever.
int timeout_ms(TimePoint time, const Clock& clock) {
  if (time == kNoDeadline) return -1;
  const TimePoint now = clock.now();
  if (time <= now) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time - now).count();
  return static_cast<int>(std::min<int64_t>(ms, std::numeric_limits<int>::max()));
}

}  // namespace

template <typename T>
std::vector<RankThread::CacheLine> RankThread::ring_memory(uint32_t capacity) {
  std::vector<CacheLine> lines((spsc_ring_bytes<T>(capacity) + kCacheLineBytes - 1) /
                               kCacheLineBytes);
  format_spsc_ring(as_bytes(lines));
  return lines;
}

std::span<std::byte> RankThread::as_bytes(std::vector<CacheLine>& lines) {
  return std::as_writable_bytes(std::span(lines));
}

Result<std::unique_ptr<RankThread>> RankThread::start(std::unique_ptr<RankWorker> worker,
                                                      uint32_t ring_ops, const Clock& clock,
                                                      Announcement& announcement) {
  TIERCEL_TRY_ASSIGN(EventFd wake, EventFd::create());
  TIERCEL_TRY_ASSIGN(EventFd ended, EventFd::create());
  const std::string name = "tiercel-rank-" + std::to_string(worker->rank());
  std::unique_ptr<RankThread> rank(new RankThread(std::move(worker), ring_ops, clock, announcement,
                                                  std::move(wake), std::move(ended)));
  TIERCEL_TRY_ASSIGN(rank->thread_, start_thread(name, [self = rank.get()] { self->run(); }));
  return rank;
}

RankThread::RankThread(std::unique_ptr<RankWorker> worker, uint32_t ring_ops, const Clock& clock,
                       Announcement& announcement, EventFd wake, EventFd ended)
    : worker_(std::move(worker)),
      ring_ops_(ring_ops),
      clock_(clock),
      announcement_(announcement),
      ops_memory_(ring_memory<BlockOp>(ring_ops)),
      completions_memory_(ring_memory<Completion>(ring_ops)),
      ops_in_(as_bytes(ops_memory_), ring_ops),
      completions_out_(as_bytes(completions_memory_), ring_ops),
      ops_out_(as_bytes(ops_memory_), ring_ops),
      completions_in_(as_bytes(completions_memory_), ring_ops),
      ops_batch_(kBatch),
      completions_batch_(kBatch),
      sleep_flag_(std::move(wake)),
      ended_(std::move(ended)) {}

RankThread::~RankThread() {
  if (!thread_.joinable()) return;
  ask_to_close(clock_.now());
  thread_.join();
}

void RankThread::submit(std::span<const BlockOp> ops) {
  const size_t taken = ops_in_.push(ops);
  TIERCEL_ASSERT(taken == ops.size(), "the ring has room for everything within capacity()");
  in_flight_ += ops.size();
  sleep_flag_.wake();
}

size_t RankThread::poll(std::span<Completion> out) {
  const size_t count = completions_out_.pop(out);
  in_flight_ -= count;
  return count;
}

void RankThread::ask_to_close(TimePoint deadline) {
  if (std::exchange(asked_to_close_, true)) return;
  close_deadline_ = deadline;
  stopping_.store(true, std::memory_order_release);
  sleep_flag_.wake();
}

Status RankThread::wait_closed(TimePoint deadline) {
  if (thread_.joinable()) {
    pollfd ended{.fd = ended_.fd(), .events = POLLIN, .revents = 0};
    int ready = 0;
    do {
      ready = ::poll(&ended, 1, timeout_ms(deadline, clock_));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
      return Error(Code::kTimeout, "rank " + std::to_string(worker_->rank()) +
                                       " has not stopped by the deadline; call close() again");
    }
    thread_.join();
    return close_status_;
  }
  // An earlier close() was given up by the store; the worker is ours now.
  if (!close_status_) {
    close_deadline_ = deadline;
    close_worker();
  }
  return close_status_;
}

void RankThread::run() {
  while (!stopping_.load(std::memory_order_acquire)) {
    bool moved = pass_ops();
    moved |= worker_->progress(kMemoryOps);
    moved |= pass_completions();
    if (!moved) sleep();
  }
  close_worker();
  ended_.signal();
}

bool RankThread::pass_ops() {
  const size_t count = ops_out_.pop(ops_batch_);
  if (count == 0) return false;
  worker_->submit(std::span(ops_batch_).first(count));
  return true;
}

bool RankThread::pass_completions() {
  const size_t count = worker_->take(completions_batch_);
  if (count == 0) return false;
  const size_t taken = completions_in_.push(std::span(completions_batch_).first(count));
  TIERCEL_ASSERT(taken == count, "the ring has room for everything within capacity()");
  announcement_.announce();
  return true;
}

void RankThread::sleep() {
  sleep_flag_.prepare();
  if (ops_out_.size() == 0 && !stopping_.load(std::memory_order_acquire)) {
    // poll() ignores a descriptor of -1.
    std::array<pollfd, 2> sources{{{.fd = sleep_flag_.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = worker_->store_fd(), .events = POLLIN, .revents = 0}}};
    ::poll(sources.data(), sources.size(), timeout_ms(worker_->next_due(), clock_));
  }
  sleep_flag_.done();
}

void RankThread::close_worker() {
  while (pass_ops()) {
  }
  close_status_ = worker_->close(close_deadline_);
  while (pass_completions()) {
  }
}

}  // namespace tiercel
