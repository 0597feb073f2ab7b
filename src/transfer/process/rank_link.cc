// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/rank_link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/memfd.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

// Completions that are taken from a ring at once.
constexpr size_t kBatch = 256;

// Whether an ok of this kind says that the slot holds something.
bool fills_slot(OpKind kind) { return kind == OpKind::kSave || kind == OpKind::kStoreGet; }

RankStats sum(const RankStats& a, const RankStats& b) {
  RankStats total = b;
  for (size_t i = 0; i < total.paths.size(); ++i) {
    total.paths[i].ops += a.paths[i].ops;
    total.paths[i].failed += a.paths[i].failed;
    total.paths[i].corrupt += a.paths[i].corrupt;
    total.paths[i].bytes += a.paths[i].bytes;
    total.paths[i].busy_ns += a.paths[i].busy_ns;
  }
  total.store.opened += a.store.opened;
  total.store.refused += a.store.refused;
  return total;
}

}  // namespace

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

RankStats RankLink::stats() const {
  return port_ ? sum(stats_before_, port_->stats()) : stats_before_;
}

size_t RankLink::capacity() const {
  const size_t used = outstanding_.size() + ended_.size();
  return used < context_.options.ring_ops ? context_.options.ring_ops - used : 0;
}

void RankLink::submit(std::span<const BlockOp> ops) {
  if (phase_ == Phase::kUp && !broken_) {
    if (port_->submit(ops)) {
      const TimePoint now = context_.clock.now();
      for (const BlockOp& op : ops) outstanding_.add(op, now);
      return;
    }
    broken_ = true;
  }
  for (const BlockOp& op : ops) {
    ended_.push({.job = op.job,
                 .item = op.item,
                 .rank = static_cast<uint16_t>(rank_.worker.rank),
                 .code = Code::kUnavailable});
  }
}

std::optional<OpKind> RankLink::check(const Completion& completion) {
  if (completion.rank != rank_.worker.rank || completion.code > Code::kInternal ||
      completion.reserved != 0) {
    return std::nullopt;
  }
  return outstanding_.remove(completion.job, completion.item);
}

size_t RankLink::poll(std::span<Completion> out) {
  size_t count = ended_.take(out);
  if (phase_ != Phase::kUp || broken_) return count;
  const size_t taken = port_->poll(out.subspan(count));
  for (size_t i = 0; i < taken; ++i) {
    if (check(out[count])) {
      ++count;
      continue;
    }
    broken_ = true;
    lose(Error(Code::kCorrupt, "it completed what it has not been given, or twice (job " +
                                   std::to_string(out[count].job.value()) + ", item " +
                                   std::to_string(out[count].item) + ", code " +
                                   std::to_string(static_cast<int>(out[count].code)) + ")"));
    return count;
  }
  if (port_->is_broken()) {
    broken_ = true;
    lose(Error(Code::kCorrupt, "it shows more completions than it has been given operations"));
  }
  return count;
}

bool RankLink::has_completions() {
  return !ended_.empty() || broken_ || (phase_ == Phase::kUp && port_->has_completions());
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
  const std::optional<std::string> how = reap_process(process_.get());
  if (!how) return;
  if (phase_ != Phase::kLeaving) {
    lose(Error(Code::kUnavailable, "its process " + *how));
  } else if (!closing_) {
    last_error_ += "; its process " + *how;
  }
  if (phase_ == Phase::kLeaving) let_go();
}

void RankLink::tick() {
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
      if (broken_) {
        lose(Error(Code::kCorrupt, "it shows less room in its ring than it must have"));
        return;
      }
      if (now < due_) return;
      const TimePoint oldest = outstanding_.oldest();
      const Duration limit = context_.options.rank_hard_limit;
      if (oldest != kNoDeadline && now - oldest >= limit) {
        lose(Error(Code::kTimeout, "it has had an operation for " + format_duration(now - oldest) +
                                       "; rank_hard_limit is " + format_duration(limit)));
        return;
      }
      due_ = (oldest == kNoDeadline ? now : oldest) + limit;
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

void RankLink::start() {
  ++starts_;
  due_ = context_.clock.now() + context_.options.handshake_timeout;
  if (Status opened = open_channel(); !opened) {
    lose(opened.error());
    return;
  }
  auto sockets = make_socket_pair();
  if (!sockets) {
    lose(sockets.error());
    return;
  }
  socket_ = std::move(sockets->first);
  phase_ = Phase::kSpawning;
  context_.spawner->request(rank_.worker.rank, starts_, std::move(sockets->second));
}

void RankLink::on_spawned(SpawnReply reply) {
  TIERCEL_ASSERT(reply.start == starts_, "a start is answered before the next");
  if (reply.pid == 0) {
    if (phase_ != Phase::kLeaving) {
      phase_ = Phase::kHello;
      lose(Error(Code::kUnavailable, context_.options.program +
                                         " could not be started: " + reply.call + ": " +
                                         std::generic_category().message(reply.error)));
    } else {
      let_go();
    }
    return;
  }
  process_ = std::move(reply.process);
  pid_ = reply.pid;
  watch(process_.get(), LinkSource::kProcess);
  if (phase_ == Phase::kLeaving) {
    kill_process(process_.get());
    return;
  }
  watch(socket_.get(), LinkSource::kSocket);
  phase_ = Phase::kHello;
}

Status RankLink::open_channel() {
  const uint32_t ring_ops = context_.options.ring_ops;
  const size_t bytes = RankChannel::bytes(ring_ops);
  const std::string name = "tiercel-channel-" + std::to_string(rank_.worker.rank);
  TIERCEL_TRY_ASSIGN(FileDescriptor memory, context_.options.make_memory(name, bytes));
  ArenaOptions arena;
  arena.huge_pages = false;
  arena.name = name;
  TIERCEL_TRY_ASSIGN(channel_, Arena::map(std::move(memory), bytes, arena));
  TIERCEL_TRY_ASSIGN(EventFd wake, EventFd::create());
  TIERCEL_TRY_ASSIGN(EventFd announced, EventFd::create());
  wake_.emplace(std::move(wake));
  announced_.emplace(std::move(announced));
  port_.emplace(
      RankChannel::format(channel_->memory(), {.ring_ops = ring_ops,
                                               .rank = rank_.worker.rank,
                                               .geometry = geometry_digest(context_.geometry)}),
      *wake_);
  watch(announced_->fd(), LinkSource::kCompletions);
  return {};
}

Status RankLink::send_welcome() {
  WelcomeMessage welcome(context_.geometry);
  welcome.worker = rank_.worker;
  welcome.ring_ops = context_.options.ring_ops;
  welcome.spin = context_.options.spin;
  welcome.huge_pages = context_.options.huge_pages;
  welcome.lock_memory = context_.options.lock_memory;
  welcome.store_url = context_.options.store_url;
  std::vector<int> fds = {channel_->fd(), host_memory_.get(), wake_->fd(), announced_->fd()};
  if (rank_.device_fd >= 0) {
    welcome.device_bytes = rank_.device_bytes;
    welcome.device_groups = rank_.device_groups;
    fds.push_back(rank_.device_fd);
  }
  return send_message(socket_.get(), encode_welcome(welcome), fds);
}

Status RankLink::join(FileDescriptor& socket, const SocketPeer& peer, const HelloMessage& hello) {
  if (!rank_.joins) {
    return Error(Code::kInvalid, name() + " is hosted by a process that the control plane starts");
  }
  if (phase_ != Phase::kWaiting || closing_) {
    return Error(Code::kBusy,
                 name() + (phase_ == Phase::kLeaving
                               ? " is lost, but process " + std::to_string(pid_) +
                                     " has not let go of its memory yet"
                               : " has a host already, process " + std::to_string(pid_)));
  }
  if (hello.name_space && *hello.name_space != rank_.worker.name_space) {
    return Error(Code::kInvalid, "namespace is " + hello.name_space->hex().substr(0, 8) +
                                     "…; allowed: " + rank_.worker.name_space.hex().substr(0, 8) +
                                     "…, that of the control plane");
  }
  ++starts_;
  due_ = context_.clock.now() + context_.options.handshake_timeout;
  if (Status opened = open_channel(); !opened) {
    close_descriptors();
    return opened;
  }
  socket_ = std::move(socket);
  pid_ = peer.pid;
  // Only to see its end even if a child of it keeps the socket open; in another pid namespace there
  // is nothing to be seen.
  if (Result<FileDescriptor> process = open_process(peer.pid)) {
    process_ = *std::move(process);
    watch(process_.get(), LinkSource::kProcess);
  }
  watch(socket_.get(), LinkSource::kSocket);
  phase_ = Phase::kReady;
  if (Status sent = send_welcome(); !sent) lose(sent.error());
  return {};
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
      return;
    }
    case Phase::kReady:
      if (Status ready = decode_ready(bytes); !ready) {
        lose(ready.error(), true);
        return;
      }
      phase_ = Phase::kUp;
      up_since_ = context_.clock.now();
      due_ = up_since_ + context_.options.rank_hard_limit;
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
    context_.logger.log(LogLevel::kError, name() + " is lost: " + last_error_);
    failures_ = was_up && now - up_since_ >= context_.options.restart_window ? 1 : failures_ + 1;
    hopeless_ = !was_up && (why.code() == Code::kInvalid || why.code() == Code::kUnsupported);
  }
  if (was_up) {
    if (!broken_) rescue_completions();
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

// What the rank has completed before it was lost is true, but what it has put into its slots is
// gone.
void RankLink::rescue_completions() {
  std::array<Completion, kBatch> batch;
  while (const size_t count = port_->poll(batch)) {
    for (size_t i = 0; i < count; ++i) {
      const std::optional<OpKind> kind = check(batch[i]);
      if (!kind) return;
      if (!closing_ && batch[i].code == Code::kOk && fills_slot(*kind)) {
        batch[i].code = Code::kUnavailable;
      }
      ended_.push(batch[i]);
    }
  }
}

void RankLink::end_ops() {
  for (const OutstandingOps::Op& op : outstanding_.take_all()) {
    ended_.push({.job = op.job,
                 .item = op.item,
                 .rank = static_cast<uint16_t>(rank_.worker.rank),
                 .code = Code::kUnavailable});
  }
}

void RankLink::let_go() {
  end_ops();
  if (port_) stats_before_ = stats();
  close_descriptors();
  broken_ = false;
  pid_ = 0;
  schedule();
}

void RankLink::schedule() {
  phase_ = Phase::kWaiting;
  if (closing_) {
    phase_ = Phase::kGone;
    return;
  }
  if (rank_.joins) return;
  if (hopeless_ || failures_ > context_.options.restarts_max) {
    phase_ = Phase::kGone;
    context_.logger.log(LogLevel::kError, name() + " is given up after " + std::to_string(starts_) +
                                              " starts: " + last_error_);
    return;
  }
  Duration wait = context_.options.backoff;
  for (uint32_t i = 1; i < failures_ && wait < context_.options.backoff_max; ++i) wait *= 2;
  due_ = context_.clock.now() + std::min(wait, context_.options.backoff_max);
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
  // Can only fail for want of memory; then the next poll() sees what no event told.
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
