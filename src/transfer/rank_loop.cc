// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_loop.h"

#include <algorithm>
#include <array>
#include <limits>

#include <poll.h>

#include "base/poll_timeout.h"

namespace tiercel {
namespace {

// Messages that are moved between ring and worker at once: as many as one call into the store has.
constexpr size_t kBatch = 512;
// Blocks that are copied before the rings are looked at again, so that a new load overtakes waiting
// saves.
constexpr uint32_t kMemoryOps = 4;
// Looks at the ring between two looks at the clock while spinning.
constexpr uint32_t kSpinLooks = 64;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

RankLoop::RankLoop(RankWorker& worker, RankChannel channel, EventFd& wake, Announcer announcer,
                   const Clock& clock, const RankLoopOptions& options)
    : worker_(worker),
      channel_(channel),
      clock_(clock),
      options_(options),
      sleep_flag_(channel.words().rank_sleeps, wake),
      announcer_(announcer),
      ops_(channel.ops_memory(), channel.ring_ops()),
      completions_(channel.completions_memory(), channel.ring_ops()),
      ops_batch_(kBatch),
      completions_batch_(kBatch) {
  channel_.words().stats.publish(worker_.stats());
}

RankLoopEnd RankLoop::run() {
  while (!channel_.asked_to_close()) {
    if (step()) continue;
    if (peer_broke_) return RankLoopEnd::kPeerBroke;
    if (options_.spin > Duration::zero() && spin()) continue;
    RankLoopEnd end = RankLoopEnd::kAskedToClose;
    if (sleep(end)) return end;
  }
  return RankLoopEnd::kAskedToClose;
}

bool RankLoop::step() {
  bool moved = pass_ops();
  moved |= worker_.progress(kMemoryOps);
  moved |= pass_completions();
  return moved && !peer_broke_;
}

bool RankLoop::pass_ops() {
  // In this order: what the other side has polled before it sent these is seen then.
  const size_t waiting = ops_.size();
  if (waiting == 0) return false;
  const size_t room = completions_.free_count();
  const size_t owed = worker_.ops_in_flight();
  if (room < owed || waiting > room - owed) {
    peer_broke_ = true;
    return false;
  }
  const size_t count = ops_.pop(ops_batch_);
  worker_.submit(std::span(ops_batch_).first(count));
  return true;
}

bool RankLoop::pass_completions() {
  const size_t room = std::min(completions_batch_.size(), completions_.free_count());
  const size_t count = worker_.take(std::span(completions_batch_).first(room));
  if (count == 0) return false;
  // Before the completions, so that whoever has polled them sees them counted, and why they failed.
  channel_.words().stats.publish(worker_.stats());
  publish_reason();
  if (completions_.push(std::span(completions_batch_).first(count)) < count) peer_broke_ = true;
  announcer_.announce();
  return true;
}

void RankLoop::publish_reason() {
  const StoreReason& reason = worker_.store_reason();
  if (published_reason_ == reason.changes()) return;
  published_reason_ = reason.changes();
  channel_.words().store_reason.set(reason.text());
}

bool RankLoop::spin() {
  const TimePoint until = clock_.now() + options_.spin;
  do {
    for (uint32_t i = 0; i < kSpinLooks; ++i) {
      if (ops_.size() > 0 || channel_.asked_to_close()) return true;
      pause_briefly();
    }
  } while (clock_.now() < until);
  return false;
}

bool RankLoop::sleep(RankLoopEnd& end) {
  bool ends = false;
  sleep_flag_.prepare();
  if (ops_.size() == 0 && !channel_.asked_to_close()) {
    // poll() ignores a descriptor of -1.
    std::array<pollfd, 5> sources{
        {{.fd = sleep_flag_.fd(), .events = POLLIN, .revents = 0},
         {.fd = worker_.store_fd(), .events = POLLIN, .revents = 0},
         {.fd = options_.peer_fd, .events = POLLIN | POLLRDHUP, .revents = 0},
         {.fd = options_.stop_fd, .events = POLLIN, .revents = 0},
         {.fd = worker_.disk_fd(), .events = POLLIN, .revents = 0}}};
    const int ready =
        ::poll(sources.data(), sources.size(), poll_timeout_ms(worker_.next_due(), clock_));
    if (ready > 0 && sources[3].revents != 0) {
      end = RankLoopEnd::kStopped;
      ends = true;
    } else if (ready > 0 && sources[2].revents != 0) {
      const bool hung_up = (sources[2].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
      end = hung_up ? RankLoopEnd::kPeerGone : RankLoopEnd::kPeerBroke;
      ends = true;
    }
  }
  sleep_flag_.done();
  return ends;
}

TimePoint RankLoop::close_deadline() const {
  return deadline_after(clock_.now(), channel_.close_budget());
}

Status RankLoop::close(TimePoint deadline) {
  while (pass_ops()) {
  }
  Status closed = worker_.close(deadline);
  while (pass_completions()) {
  }
  channel_.words().stats.publish(worker_.stats());
  return closed;
}

}  // namespace tiercel
