// SPDX-License-Identifier: Apache-2.0
//
// RankLink: how a start of the rank begins, up to the welcome.
#include <utility>

#include "base/assert.h"
#include "base/error_text.h"
#include "base/process.h"
#include "transfer/process/rank_link.h"
#include "transfer/rank_loop.h"

namespace tiercel {

void RankLink::begin_start() {
  ++starts_;
  came_up_ = has_refused_ = in_vain_ = false;
  begin_step();
}

void RankLink::start() {
  begin_start();
  // If the system refuses us something: a rank that was up has shown that there can be enough.
  const bool was_never_up = times_up_ == 0;
  if (Status opened = open_channel(); !opened) {
    in_vain_ = was_never_up;
    lose(opened.error());
    return;
  }
  auto sockets = make_socket_pair();
  if (!sockets) {
    in_vain_ = was_never_up;
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
      in_vain_ = times_up_ == 0 || !may_run_later(reply.error);
      lose(Error(Code::kUnavailable, context_.options.program + " could not be started: " +
                                         reply.call + ": " + limit_error_text(reply.error)));
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
  begin_step();
}

// Each step has a bound of its own, from when we see it begin: whoever polls late must not find the
// rank guilty.
void RankLink::begin_step() {
  const ProcessPlaneOptions& options = context_.options;
  due_ = deadline_after(context_.clock.now(), options.handshake_timeout);
  if (phase_ == Phase::kReady && (options.prefault || options.lock_memory)) {
    due_ = deadline_after(due_, touch_allowance(context_.geometry.tier_bytes(rank_.worker.rank)));
  }
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
  welcome.prefault = context_.options.prefault;
  welcome.store_url = context_.options.store_url;
  std::vector<int> fds = {channel_->fd(), host_memory_.get(), wake_->fd(), announced_->fd()};
  if (rank_.device_fd >= 0) {
    welcome.device_bytes = rank_.device_bytes;
    welcome.device_groups = rank_.device_groups;
    fds.push_back(rank_.device_fd);
  }
  if (rank_.disk_data_fd >= 0) {
    welcome.disk = rank_.disk;
    fds.push_back(rank_.disk_data_fd);
    fds.push_back(rank_.disk_metadata_fd);
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
  begin_start();
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
  begin_step();
  if (Status sent = send_welcome(); !sent) lose(sent.error());
  return {};
}

}  // namespace tiercel
