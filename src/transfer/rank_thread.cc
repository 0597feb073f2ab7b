// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_thread.h"

#include <cerrno>
#include <string>
#include <utility>

#include <poll.h>

#include "base/assert.h"
#include "base/poll_timeout.h"
#include "base/thread.h"

namespace tiercel {

Result<std::unique_ptr<RankThread>> RankThread::start(std::unique_ptr<RankWorker> worker,
                                                      uint32_t ring_ops, Duration spin,
                                                      const Clock& clock,
                                                      Announcement& announcement) {
  TIERCEL_TRY_ASSIGN(EventFd wake, EventFd::create());
  TIERCEL_TRY_ASSIGN(EventFd ended, EventFd::create());
  const std::string name = "tiercel-rank-" + std::to_string(worker->rank());
  std::unique_ptr<RankThread> rank(new RankThread(std::move(worker), ring_ops, spin, clock,
                                                  announcement, std::move(wake), std::move(ended)));
  TIERCEL_TRY_ASSIGN(rank->thread_, start_thread(name, [self = rank.get()] { self->run(); }));
  return rank;
}

RankChannel RankThread::format(std::vector<CacheLine>& memory, uint32_t ring_ops, uint32_t rank) {
  return RankChannel::format(std::as_writable_bytes(std::span(memory)),
                             {.ring_ops = ring_ops, .rank = rank, .geometry = {}});
}

RankThread::RankThread(std::unique_ptr<RankWorker> worker, uint32_t ring_ops, Duration spin,
                       const Clock& clock, Announcement& announcement, EventFd wake, EventFd ended)
    : worker_(std::move(worker)),
      clock_(clock),
      memory_((RankChannel::bytes(ring_ops) + kCacheLineBytes - 1) / kCacheLineBytes),
      wake_(std::move(wake)),
      channel_(format(memory_, ring_ops, worker_->rank())),
      loop_(*worker_, channel_, wake_, announcement.announcer(), clock, {.spin = spin}),
      port_(channel_, wake_),
      ended_(std::move(ended)) {}

RankThread::~RankThread() {
  if (!thread_.joinable()) return;
  ask_to_close(clock_.now());
  thread_.join();
}

void RankThread::submit(std::span<const BlockOp> ops) {
  const bool taken = port_.submit(ops);
  TIERCEL_ASSERT(taken, "the ring has room for everything within capacity()");
}

void RankThread::ask_to_close(TimePoint deadline) {
  if (std::exchange(asked_to_close_, true)) return;
  port_.ask_to_close(deadline == kNoDeadline ? Duration::max() : deadline - clock_.now());
}

Status RankThread::wait_closed(TimePoint deadline) {
  if (thread_.joinable()) {
    pollfd ended{.fd = ended_.fd(), .events = POLLIN, .revents = 0};
    int ready = 0;
    do {
      ready = ::poll(&ended, 1, poll_timeout_ms(deadline, clock_));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
      return Error(Code::kTimeout, "rank " + std::to_string(worker_->rank()) +
                                       " has not stopped by the deadline; call close() again");
    }
    thread_.join();
    return close_status_;
  }
  // An earlier close() was given up by the store; the worker is ours now.
  if (!close_status_) close_status_ = loop_.close(deadline);
  return close_status_;
}

void RankThread::run() {
  const RankLoopEnd end = loop_.run();
  TIERCEL_ASSERT(end == RankLoopEnd::kAskedToClose, "a port of this process keeps the protocol");
  close_status_ = loop_.close(loop_.close_deadline());
  ended_.signal();
}

}  // namespace tiercel
