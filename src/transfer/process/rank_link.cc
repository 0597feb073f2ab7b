// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/rank_link.h"

#include <algorithm>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/process.h"
#include "base/quantity.h"
#include "transfer/rank_loop.h"

namespace tiercel {

RankLink::RankLink(const LinkContext& context, ProcessRank rank, FileDescriptor host_memory)
    : context_(context),
      rank_(std::move(rank)),
      host_memory_(std::move(host_memory)),
      due_(context.clock.now()),
      outstanding_(context.options.ring_ops) {}

std::string RankLink::name() const { return "rank " + std::to_string(rank_.worker.rank); }

RankStatus RankLink::status() const {
  RankStatus status;
  status.pid = pid_;
  status.starts = starts_;
  status.times_up = times_up_;
  status.ops = static_cast<uint32_t>(outstanding_.size());
  status.is_stopped = process_ && is_process_stopped(process_.get());
  status.is_given_up = phase_ == Phase::kGone && !closing_;
  status.last_error = last_error_;
  switch (phase_) {
    case Phase::kWaiting:
    case Phase::kSpawning:
    case Phase::kHello:
    case Phase::kReady:
      status.state = last_error_.empty() ? RankState::kStarting : RankState::kRestarting;
      break;
    case Phase::kUp:
      status.state = RankState::kUp;
      break;
    case Phase::kLeaving:
      status.state = RankState::kLost;
      break;
    case Phase::kGone:
      status.state = closing_ ? RankState::kClosed : RankState::kLost;
      break;
  }
  return status;
}

void RankLink::on_event(LinkSource source) {
  switch (source) {
    case LinkSource::kSocket:
      on_message();
      return;
    case LinkSource::kProcess:
      // What it has said before its end says why.
      if (phase_ != Phase::kLeaving) on_message();
      on_process();
      return;
    case LinkSource::kCompletions:
      if (!announced_) return;
      // In this order: a signal that comes between the two belongs to completions that poll() will
      // see (wake_flag.h).
      announced_->drain();
      port_->announced().exchange(0, std::memory_order_acq_rel);
      return;
  }
}

void RankLink::on_process() {
  if (!process_) return;
  // Processes of the engine are the engine's to reap, also if they are its children.
  const std::optional<ProcessEnd> end =
      rank_.joins ? look_at_process(process_.get()) : reap_process(process_.get());
  if (!end) return;
  if (!end->is_reaped) {
    unwatch(process_);
    unreaped_.push_back(std::move(process_));
  }
  // Who kills (for want of memory, or by hand) may not do so again; and who has refused has said
  // why, which is judged by what it was.
  if (!came_up_ && !has_refused_ && !end->is_killed) in_vain_ = true;
  if (phase_ != Phase::kLeaving) {
    lose(Error(Code::kUnavailable, "its process " + end->how));
  } else if (!closing_) {
    last_error_ += "; its process " + end->how;
  }
  if (phase_ == Phase::kLeaving) let_go();
}

bool RankLink::is_reaped() {
  std::erase_if(unreaped_, [](const FileDescriptor& process) {
    const std::optional<ProcessEnd> end = reap_process(process.get());
    return end && end->is_reaped;
  });
  return unreaped_.empty();
}

void RankLink::tick() {
  if (!unreaped_.empty()) is_reaped();
  const TimePoint now = context_.clock.now();
  switch (phase_) {
    case Phase::kWaiting:
      if (!rank_.joins && now >= due_) start();
      return;
    case Phase::kSpawning:
    case Phase::kHello:
    case Phase::kReady:
      if (now < due_) return;
      lose(Error(Code::kTimeout,
                 "it was not up within " + format_duration(context_.options.handshake_timeout)));
      return;
    case Phase::kUp: {
      if (!lie_.empty()) {
        lose(Error(Code::kCorrupt, lie_));
        return;
      }
      if (now < due_) return;
      // What it has completed meanwhile is not held against it, however late we look.
      pull_completions();
      const TimePoint oldest = outstanding_.oldest();
      const Duration limit = context_.options.rank_hard_limit;
      if (oldest != kNoDeadline && now - oldest >= limit) {
        lose(Error(Code::kTimeout, "it has had an operation for " + format_duration(now - oldest) +
                                       "; rank_hard_limit is " + format_duration(limit)));
        return;
      }
      due_ = deadline_after(oldest == kNoDeadline ? now : oldest, limit);
      return;
    }
    case Phase::kLeaving:
      on_process();
      if (phase_ != Phase::kLeaving || rank_.joins || !process_ || now < due_) return;
      kill_process(process_.get());
      due_ = kNoDeadline;
      return;
    case Phase::kGone:
      return;
  }
}

TimePoint RankLink::next_due() const {
  switch (phase_) {
    case Phase::kWaiting:
      return rank_.joins ? kNoDeadline : due_;
    case Phase::kSpawning:
    case Phase::kHello:
    case Phase::kReady:
    case Phase::kUp:
    case Phase::kLeaving:
      return rank_.joins && phase_ == Phase::kLeaving ? kNoDeadline : due_;
    case Phase::kGone:
      return kNoDeadline;
  }
  return kNoDeadline;
}

void RankLink::on_message() {
  if (!socket_) return;
  if (phase_ == Phase::kLeaving) {
    pollfd source{.fd = socket_.get(), .events = 0, .revents = 0};
    if (rank_.joins && ::poll(&source, 1, 0) == 1 && (source.revents & POLLHUP) != 0) let_go();
    return;
  }
  Result<std::optional<SocketMessage>> message = receive_message(socket_.get());
  if (!message) {
    lose(message.error());
    // Closed on both sides: there may be no other event.
    on_message();
    return;
  }
  if (!message->has_value()) return;
  if (!(**message).fds.empty()) {
    lose(Error(Code::kCorrupt, "it sent descriptors, which no rank has to give"));
    return;
  }
  const std::span<const std::byte> bytes = (**message).bytes;
  switch (phase_) {
    case Phase::kHello: {
      const Result<HelloMessage> hello = decode_hello(bytes);
      if (!hello) {
        static_cast<void>(send_message(socket_.get(), encode_refusal(hello.error())).has_value());
        lose(hello.error());
        return;
      }
      if (hello->rank != rank_.worker.rank) {
        lose(Error(Code::kInvalid, "it says that it is rank " + std::to_string(hello->rank)));
        return;
      }
      if (Status sent = send_welcome(); !sent) {
        lose(sent.error());
        return;
      }
      phase_ = Phase::kReady;
      begin_step();
      return;
    }
    case Phase::kReady:
      if (Status ready = decode_ready(bytes); !ready) {
        lose(ready.error(), true);
        return;
      }
      phase_ = Phase::kUp;
      came_up_ = true;
      ++times_up_;
      up_since_ = context_.clock.now();
      due_ = deadline_after(up_since_, context_.options.rank_hard_limit);
      context_.logger.log(LogLevel::kInfo, name() + " is up as process " + std::to_string(pid_));
      return;
    default:
      lose(Error(Code::kCorrupt, "it sent a message out of turn"));
      return;
  }
}

void RankLink::lose(const Error& why, bool by_itself) {
  const bool was_up = phase_ == Phase::kUp;
  const bool is_spawning = phase_ == Phase::kSpawning;
  const TimePoint now = context_.clock.now();
  if (!closing_) {
    last_error_ = why.to_string();
    if (was_up) context_.logger.log(LogLevel::kWarning, name() + " is lost: " + last_error_);
    has_refused_ = by_itself;
    failures_ = was_up && now - up_since_ >= context_.options.restart_window ? 1 : failures_ + 1;
    hopeless_ = !was_up && (why.code() == Code::kInvalid || why.code() == Code::kUnsupported);
  }
  if (was_up) {
    if (lie_.empty()) pull_completions();
    // Its memory goes with it, but whoever closes has no more use for it.
    if (!closing_) ++memory_epoch_;
  }
  phase_ = Phase::kLeaving;
  if (rank_.joins) {
    if (!socket_) {
      let_go();
      return;
    }
    // It reads the end, leaves and hangs up, or dies: both show as HUP, which is always reported.
    ::shutdown(socket_.get(), SHUT_WR);
    epoll_event none{};
    none.events = 0;
    none.data.u64 = uint64_t{rank_.worker.rank} << 8 | static_cast<uint8_t>(LinkSource::kSocket);
    ::epoll_ctl(context_.epoll_fd, EPOLL_CTL_MOD, socket_.get(), &none);
    return;
  }
  if (is_spawning) return;  // until the spawner answers
  unwatch(socket_);
  socket_.reset();
  if (!process_) {
    let_go();
    return;
  }
  if (by_itself || closing_) return;
  kill_process(process_.get());
  due_ = kNoDeadline;
}

void RankLink::let_go() {
  end_ops();
  if (port_) {
    stats_before_ = stats();
    store_reason_before_ = store_reason();
  }
  close_descriptors();
  lie_.clear();
  pid_ = 0;
  schedule();
}

void RankLink::schedule() {
  phase_ = Phase::kWaiting;
  if (closing_) {
    phase_ = Phase::kGone;
    return;
  }
  // Only now is it known how its process has ended.
  if (!came_up_) {
    context_.logger.log(LogLevel::kWarning, name() + " did not come up: " + last_error_);
  }
  if (rank_.joins) return;
  vain_starts_ = in_vain_ ? vain_starts_ + 1 : 0;
  if (hopeless_ || failures_ > context_.options.restarts_max ||
      vain_starts_ >= context_.options.vain_starts_max) {
    phase_ = Phase::kGone;
    context_.logger.log(LogLevel::kError, name() + " is given up after " + std::to_string(starts_) +
                                              " starts: " + last_error_);
    return;
  }
  Duration wait = context_.options.backoff;
  const Duration longest = context_.options.backoff_max;
  for (uint32_t i = 1; i < failures_ && wait < longest; ++i) {
    wait = wait > longest / 2 ? longest : wait * 2;
  }
  due_ = deadline_after(context_.clock.now(), std::min(wait, longest));
}

void RankLink::ask_to_close(Duration budget) {
  if (std::exchange(closing_, true)) return;
  switch (phase_) {
    case Phase::kUp:
      port_->ask_to_close(budget);
      return;
    case Phase::kWaiting:
    case Phase::kGone:
      phase_ = Phase::kGone;
      return;
    case Phase::kSpawning:
    case Phase::kHello:
    case Phase::kReady:
      lose(Error(Code::kCancelled, "the plane closes"));
      if (process_ && !rank_.joins) kill_process(process_.get());
      return;
    case Phase::kLeaving:
      return;
  }
}

void RankLink::kill() {
  if (phase_ == Phase::kGone) return;
  if (process_ && !rank_.joins) {
    kill_process(process_.get());
  } else if (rank_.joins && socket_ && phase_ != Phase::kLeaving) {
    lose(Error(Code::kTimeout, "it has not closed by the deadline"));
  }
}

void RankLink::watch(int fd, LinkSource source) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = uint64_t{rank_.worker.rank} << 8 | static_cast<uint8_t>(source);
  // Can only fail for want of memory or of watches; then the handshake ends at its limit.
  static_cast<void>(::epoll_ctl(context_.epoll_fd, EPOLL_CTL_ADD, fd, &event));
}

// Before a descriptor is closed: the rank has another one of the same eventfd, which would keep it
// in the set.
void RankLink::unwatch(const FileDescriptor& fd) {
  if (fd) ::epoll_ctl(context_.epoll_fd, EPOLL_CTL_DEL, fd.get(), nullptr);
}

void RankLink::close_descriptors() {
  if (announced_) ::epoll_ctl(context_.epoll_fd, EPOLL_CTL_DEL, announced_->fd(), nullptr);
  unwatch(socket_);
  unwatch(process_);
  port_.reset();
  wake_.reset();
  announced_.reset();
  channel_.reset();
  socket_.reset();
  process_.reset();
}

}  // namespace tiercel
