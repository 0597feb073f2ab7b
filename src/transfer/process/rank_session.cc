// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/rank_session.h"

#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/error_text.h"
#include "base/memfd.h"
#include "base/quantity.h"
#include "base/unix_socket.h"
#include "store/registry.h"
#include "tier/disk/disk_rank_files.h"
#include "transfer/device_copier.h"
#include "transfer/process/messages.h"
#include "transfer/rank_disk_files.h"
#include "transfer/rank_loop.h"

namespace tiercel {
namespace {

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

// Deadline of a step that begins now.
TimePoint step_deadline(const RankParts& parts, const Clock& clock) {
  return deadline_after(clock.now(), parts.step_timeout);
}

class Session final : public RankSession {
 public:
  Session(FileDescriptor socket, RankParts parts, EventFd stop)
      : parts_(std::move(parts)),
        clock_(parts_.clock != nullptr ? *parts_.clock : system_clock()),
        stop_(std::move(stop)),
        socket_(std::move(socket)) {}

  // The worker first, whose store lets go of the memory, and the socket last of what is shared: to
  // hang up says that nothing is touched any more.
  ~Session() override {
    loop_.reset();
    worker_.reset();
    copier_.reset();
    device_.reset();
    host_.reset();
    channel_.reset();
  }

  Status open() {
    TIERCEL_TRY(send_message(socket_.get(), encode_hello({parts_.rank, parts_.name_space})));
    TIERCEL_TRY(wait_readable(socket_.get(), step_deadline(parts_, clock_), clock_, "the welcome"));
    TIERCEL_TRY_ASSIGN(std::optional<SocketMessage> message, receive_message(socket_.get()));
    if (!message) return Error(Code::kUnavailable, "the welcome could not be read");
    if (Status prepared = prepare(*std::move(message)); !prepared) {
      static_cast<void>(send_message(socket_.get(), encode_refusal(prepared.error())).has_value());
      return prepared;
    }
    return send_message(socket_.get(), encode_ready());
  }

  Status run() override {
    const RankLoopEnd end = loop_->run();
    switch (end) {
      case RankLoopEnd::kAskedToClose:
        return loop_->close(loop_->close_deadline());
      case RankLoopEnd::kStopped:
        TIERCEL_TRY(loop_->close(step_deadline(parts_, clock_)));
        return Error(Code::kCancelled, "stop() was called");
      case RankLoopEnd::kPeerGone:
        TIERCEL_TRY(loop_->close(step_deadline(parts_, clock_)));
        return Error(Code::kUnavailable, "the control plane has hung up");
      case RankLoopEnd::kPeerBroke:
        TIERCEL_TRY(loop_->close(step_deadline(parts_, clock_)));
        return Error(Code::kCorrupt, "the control plane has broken the protocol of the rings");
    }
    return Error(Code::kInternal, "the loop ended for no reason");
  }

  void stop() override { stop_.signal(); }
  uint32_t rank() const override { return parts_.rank; }
  RankStats stats() const override { return worker_->stats(); }

 private:
  Status prepare(SocketMessage message) {
    TIERCEL_TRY_ASSIGN(WelcomeMessage welcome, decode_welcome(message.bytes));
    if (welcome.disk) welcome.worker.disk_puts_max = welcome.disk->queue_depth;
    if (welcome.worker.rank != parts_.rank) {
      return Error(Code::kInvalid, "welcome is for rank " + std::to_string(welcome.worker.rank) +
                                       "; allowed: " + std::to_string(parts_.rank));
    }
    if (parts_.name_space && *parts_.name_space != welcome.worker.name_space) {
      return Error(Code::kInvalid, "the control plane's namespace is not that of this process");
    }
    if (message.fds.size() != welcome.fd_count()) {
      return Error(Code::kInvalid,
                   "welcome comes with " + std::to_string(message.fds.size()) +
                       " descriptors; allowed: " + std::to_string(welcome.fd_count()));
    }
    TIERCEL_TRY_ASSIGN(const RankChannel channel, map_channel(welcome, std::move(message.fds[0])));
    TIERCEL_TRY(map_host(welcome, std::move(message.fds[1])));
    TIERCEL_TRY_ASSIGN(EventFd wake, EventFd::adopt(std::move(message.fds[2])));
    TIERCEL_TRY_ASSIGN(EventFd announced, EventFd::adopt(std::move(message.fds[3])));
    wake_.emplace(std::move(wake));
    announced_.emplace(std::move(announced));
    if (welcome.device_bytes > 0) TIERCEL_TRY(map_device(welcome, std::move(message.fds[4])));
    TIERCEL_TRY(make_copier(welcome));
    TIERCEL_TRY(open_store(welcome));
    const std::span<std::byte> host =
        host_->memory().first(welcome.geometry.tier_bytes(parts_.rank));
    std::unique_ptr<RankDisk> disk;
    if (welcome.disk) {
      TIERCEL_TRY_ASSIGN(disk, open_disk(*welcome.disk, std::span(message.fds).last<2>(), host));
    }
    TIERCEL_TRY_ASSIGN(
        worker_, RankWorker::create(welcome.worker, welcome.geometry, host, parts_.copier,
                                    std::move(parts_.store), clock_, std::move(disk), host_->fd()));
    loop_.emplace(
        *worker_, channel, *wake_, Announcer(channel.words().announced, *announced_), clock_,
        RankLoopOptions{.spin = welcome.spin, .peer_fd = socket_.get(), .stop_fd = stop_.fd()});
    return {};
  }

  Result<RankChannel> map_channel(const WelcomeMessage& welcome, FileDescriptor fd) {
    ArenaOptions arena;
    arena.huge_pages = false;
    arena.name = "rank channel";
    TIERCEL_TRY_ASSIGN(channel_,
                       Arena::map(std::move(fd), RankChannel::bytes(welcome.ring_ops), arena));
    return RankChannel::open(channel_->memory(), {.ring_ops = welcome.ring_ops,
                                                  .rank = welcome.worker.rank,
                                                  .geometry = geometry_digest(welcome.geometry)});
  }

  Status map_host(const WelcomeMessage& welcome, FileDescriptor fd) {
    ArenaOptions arena;
    arena.huge_pages = welcome.huge_pages && parts_.huge_pages;
    arena.prefault = welcome.prefault;
    arena.name = "host memory";
    const uint64_t bytes = welcome.geometry.tier_bytes(parts_.rank);
    TIERCEL_TRY_ASSIGN(host_, Arena::map(std::move(fd), bytes, arena));
    if (!welcome.lock_memory) return {};
    if (::mlock(host_->memory().data(), bytes) == 0) return {};
    return Error(Code::kNoSpace, format_bytes(bytes) +
                                     " of host memory could not be locked: " + error_text(errno) +
                                     "; raise the limit (ulimit -l) or do without lock_memory");
  }

  Status map_device(const WelcomeMessage& welcome, FileDescriptor fd) {
    ArenaOptions arena;
    arena.huge_pages = parts_.huge_pages;
    arena.name = "device memory";
    TIERCEL_TRY_ASSIGN(device_, Arena::map(std::move(fd), welcome.device_bytes, arena));
    if (parts_.copier != nullptr || !parts_.device_memory.empty()) {
      return Error(Code::kInvalid,
                   "this rank has device memory of its own; the control plane must "
                   "not send any");
    }
    for (size_t i = 0; i < welcome.device_groups.size(); ++i) {
      const DeviceGroupPlace& place = welcome.device_groups[i];
      const uint64_t payload =
          welcome.geometry.payload_bytes(GroupId(static_cast<GroupId::rep>(i)), parts_.rank);
      parts_.device_memory.push_back(
          device_->memory().subspan(place.offset_bytes, payload * place.block_count));
    }
    return {};
  }

  Status make_copier(const WelcomeMessage& welcome) {
    if (parts_.copier != nullptr || parts_.device_memory.empty()) return {};
    const size_t group_count = welcome.geometry.group_count();
    if (parts_.device_memory.size() != group_count) {
      return Error(Code::kInvalid, "device_memory has " +
                                       std::to_string(parts_.device_memory.size()) +
                                       " groups; allowed: " + std::to_string(group_count));
    }
    std::vector<ContiguousGroupMemory> groups;
    for (size_t i = 0; i < group_count; ++i) {
      const GroupId group(static_cast<GroupId::rep>(i));
      groups.push_back(
          {parts_.device_memory[i], welcome.geometry.payload_bytes(group, parts_.rank)});
    }
    TIERCEL_TRY_ASSIGN(ContiguousCopier copier, ContiguousCopier::create(groups));
    copier_ = std::make_unique<ContiguousCopier>(std::move(copier));
    parts_.copier = copier_.get();
    return {};
  }

  Status open_store(const WelcomeMessage& welcome) {
    if (parts_.store || welcome.store_url.empty()) return {};
    register_all_stores(registry_);
    TIERCEL_TRY_ASSIGN(parts_.store, registry_.open(welcome.store_url, StoreContext{clock_}));
    return {};
  }

  Result<std::unique_ptr<RankDisk>> open_disk(const DiskConfig& config,
                                              std::span<FileDescriptor, 2> fds,
                                              std::span<std::byte> host) {
    TIERCEL_TRY_ASSIGN(disk_files_,
                       read_disk_rank_files(std::move(fds[0]), std::move(fds[1]), parts_.rank));
    TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, disk_geometry_of(disk_files_.header));
    auto disk = open_rank_disk(config, parts_.rank, geometry, disk_files_, host, clock_);
    disk_files_.payload_checksums = {};  // the disk has its own
    return disk;
  }

  RankParts parts_;
  const Clock& clock_;
  EventFd stop_;
  FileDescriptor socket_;
  StoreRegistry registry_;
  std::unique_ptr<Arena> channel_;
  std::unique_ptr<Arena> host_;
  std::unique_ptr<Arena> device_;
  std::optional<EventFd> wake_;
  std::optional<EventFd> announced_;
  std::unique_ptr<ContiguousCopier> copier_;
  DiskRankFiles disk_files_;  // outlives the worker's disk
  std::unique_ptr<RankWorker> worker_;
  std::optional<RankLoop> loop_;
};

}  // namespace

Result<std::unique_ptr<RankSession>> open_rank_session(FileDescriptor socket, RankParts parts) {
  TIERCEL_TRY_ASSIGN(EventFd stop, EventFd::create());
  auto session = std::make_unique<Session>(std::move(socket), std::move(parts), std::move(stop));
  TIERCEL_TRY(session->open());
  return std::unique_ptr<RankSession>(std::move(session));
}

Result<std::unique_ptr<RankSession>> RankSession::join(const std::string& socket_path,
                                                       RankParts parts) {
  const Clock& clock = parts.clock != nullptr ? *parts.clock : system_clock();
  TIERCEL_TRY_ASSIGN(FileDescriptor socket,
                     connect_to(socket_path, step_deadline(parts, clock), clock));
  TIERCEL_TRY_ASSIGN(const SocketPeer peer, socket_peer(socket.get()));
  TIERCEL_TRY(check_same_user(peer));
  return open_rank_session(std::move(socket), std::move(parts));
}

}  // namespace tiercel
