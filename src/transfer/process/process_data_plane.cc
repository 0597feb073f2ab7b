// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/process_data_plane.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error_text.h"
#include "base/fork_guard.h"
#include "base/memfd.h"
#include "base/poll_timeout.h"
#include "base/quantity.h"
#include "tier/tier_memory.h"
#include "transfer/process/instance_socket.h"
#include "transfer/process/rank_link.h"
#include "transfer/rank_loop.h"
#include "transfer/rank_share.h"

namespace tiercel {
namespace {

// What epoll calls the plane's own descriptors; links have their rank in place of the first part.
constexpr uint64_t kPlane = uint64_t{UINT32_MAX} << 8;
constexpr uint64_t kMore = kPlane | 1;
constexpr uint64_t kSpawned = kPlane | 2;
constexpr uint64_t kListener = kPlane | 3;
constexpr uint64_t kNewcomer = kPlane | 4;

constexpr size_t kEventsAtOnce = 64;
// Beyond these nobody is let in before one of them has said who it is.
constexpr size_t kNewcomersMax = size_t{2} * kRankCountMax;
// A process that was killed is gone in no time, unless the kernel itself holds it.
constexpr Duration kReapTime = std::chrono::seconds(5);

Error refuse(const std::string& what, const std::string& value, const std::string& allowed) {
  return Error(Code::kInvalid, what + " is " + value + "; allowed: " + allowed);
}

// A process that has asked to be let in and has not said who it is.
struct Newcomer {
  FileDescriptor socket;
  SocketPeer peer;
  TimePoint deadline;
};

class Plane final : public ProcessDataPlane {
 public:
  Plane(const SlotGeometry& geometry, const Clock& clock, const ProcessPlaneOptions& options,
        FileDescriptor epoll, EventFd more, EventFd spawned)
      : geometry_(geometry),
        options_(options),
        clock_(clock),
        epoll_(std::move(epoll)),
        more_(std::move(more)),
        spawned_(std::move(spawned)),
        context_{geometry_,
                 options_,
                 clock_,
                 nullptr,
                 options_.logger != nullptr ? *options_.logger : null_logger(),
                 epoll_.get()} {}

  ~Plane() override {
    if (fork_guard_.is_inherited()) {
      if (spawner_) spawner_->abandon();
      return;
    }
    if (!closed_) static_cast<void>(close(TimePoint{}).has_value());
  }

  Status open(std::vector<ProcessRank> ranks, std::vector<FileDescriptor> memories) {
    TIERCEL_TRY(watch(more_.fd(), kMore));
    TIERCEL_TRY(watch(spawned_.fd(), kSpawned));
    if (std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.joins; })) {
      TIERCEL_TRY_ASSIGN(instance_,
                         InstanceSocket::open(options_.socket_folder, options_.instance));
      socket_path_ = instance_->path();
      TIERCEL_TRY(watch(instance_->fd(), kListener));
    }
    if (std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return !rank.joins; })) {
      SpawnerOptions spawner{options_.program, options_.arguments, options_.log_path};
      const auto requests_max = static_cast<uint32_t>(std::bit_ceil(ranks.size() + 1));
      TIERCEL_TRY_ASSIGN(spawner_, Spawner::start(std::move(spawner), requests_max, spawned_));
      context_.spawner = spawner_.get();
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      links_.push_back(
          std::make_unique<RankLink>(context_, std::move(ranks[i]), std::move(memories[i])));
    }
    for (const auto& link : links_) link->tick();
    return {};
  }

  uint32_t rank_count() const override { return geometry_.rank_count(); }
  Status usable() const override { return fork_guard_.check("the data plane"); }

  size_t submit_capacity() const override {
    if (closing_ || fork_guard_.is_inherited()) return 0;
    size_t capacity = options_.ring_ops;
    for (const auto& link : links_) capacity = std::min(capacity, link->capacity());
    return capacity;
  }

  bool submit(std::span<const BlockOp> ops) override {
    if (ops.size() > submit_capacity() || closing_) return false;
    if (ops.empty()) return true;
    ops = in_time_of_ranks(ops);
    bool is_ended = false;
    for (uint32_t rank = 0; rank < links_.size(); ++rank) {
      const auto& link = links_[rank];
      const std::span<const BlockOp> share = share_.of(ops, rank);
      if (!share.empty()) link->submit(share);
      is_ended |= link->has_ended();
    }
    if (is_ended) more_.signal();
    return true;
  }

  size_t poll(std::span<Completion> out) override {
    if (fork_guard_.is_inherited()) return 0;
    progress();
    size_t count = 0;
    // Another rank comes first each time, so that small polls starve none.
    for (size_t i = 0; i < links_.size() && count < out.size(); ++i) {
      count += links_[(first_rank_ + i) % links_.size()]->poll(out.subspan(count));
    }
    first_rank_ = (first_rank_ + 1) % links_.size();
    if (std::any_of(links_.begin(), links_.end(),
                    [](const auto& link) { return link->has_completions(); })) {
      more_.signal();
    }
    return count;
  }

  int completion_fd() const override { return epoll_.get(); }

  RankStats stats(uint32_t rank) const override { return link(rank).stats(); }
  ReasonText store_reason(uint32_t rank) const override { return link(rank).store_reason(); }
  StoreCondition disk_condition(uint32_t rank) const override {
    return link(rank).disk_condition();
  }
  uint64_t memory_epoch(uint32_t rank) const override { return link(rank).memory_epoch(); }
  RankStatus rank_status(uint32_t rank) const override { return link(rank).status(); }
  const std::string& socket_path() const override { return socket_path_; }

  Status wait_until_up(TimePoint deadline) override {
    TIERCEL_TRY(usable());
    while (true) {
      progress();
      TimePoint due = deadline;
      std::string missing;
      for (uint32_t rank = 0; rank < links_.size(); ++rank) {
        if (links_[rank]->is_up()) continue;
        const RankStatus status = links_[rank]->status();
        if (links_[rank]->is_gone()) {
          return Error(Code::kUnavailable,
                       "rank " + std::to_string(rank) + " cannot be started: " + status.last_error);
        }
        missing += (missing.empty() ? "" : "; ") + std::string("rank ") + std::to_string(rank) +
                   " (" + std::string(to_string(status.state)) +
                   (status.last_error.empty() ? "" : ", " + status.last_error) + ")";
        due = std::min(due, links_[rank]->next_due());
      }
      if (missing.empty()) return {};
      if (clock_.now() >= deadline) {
        return Error(Code::kTimeout, "not up by the deadline: " + missing);
      }
      wait(poll_timeout_ms(due, clock_));
    }
  }

  Status close(TimePoint deadline) override {
    TIERCEL_TRY(usable());
    closing_ = true;
    const Duration budget = deadline == kNoDeadline ? Duration::max() : deadline - clock_.now();
    // How long it really takes is no matter of virtual time.
    const SystemClock system;
    const TimePoint end = deadline_after(system.now(), budget);
    stop_listening();
    for (const auto& link : links_) link->ask_to_close(std::max(budget, Duration::zero()));
    wait_for_the_end(end, system);
    for (const auto& link : links_) link->kill();
    wait_for_the_end(system.now() + kReapTime, system, true);
    std::string holding;
    for (uint32_t rank = 0; rank < links_.size(); ++rank) {
      if (links_[rank]->has_let_go()) continue;
      holding += (holding.empty() ? "rank " : ", rank ") + std::to_string(rank) + " (process " +
                 std::to_string(links_[rank]->status().pid) + ")";
    }
    if (has_completions()) more_.signal();
    if (!holding.empty()) {
      return Error(Code::kTimeout,
                   "still held on to memory at the deadline: " + holding + "; call close() again");
    }
    closed_ = true;
    spawner_.reset();
    return {};
  }

 private:
  const RankLink& link(uint32_t rank) const {
    TIERCEL_ASSERT(rank < links_.size(), "rank is out of range");
    return *links_[rank];
  }

  bool has_completions() const {
    return std::any_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link->has_completions(); });
  }

  Status watch(int fd, uint64_t name) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u64 = name;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return Error(Code::kUnavailable, "epoll takes no more descriptors: " + error_text(errno) +
                                         "; raise fs.epoll.max_user_watches or use fewer ranks");
  }
  void unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  void wait(int timeout_ms) const {
    pollfd source{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
    ::poll(&source, 1, timeout_ms);
  }

  // Takes in what has happened; never waits.
  void progress() {
    std::array<epoll_event, kEventsAtOnce> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t name = events[static_cast<size_t>(i)].data.u64;
      if (name < kPlane) {
        const uint64_t rank = name >> 8;
        if (rank < links_.size()) links_[rank]->on_event(static_cast<LinkSource>(name & 0xff));
      } else if (name == kMore) {
        more_.drain();
      } else if (name == kSpawned) {
        spawned_.drain();
      } else if (name == kListener) {
        let_in();
      }
    }
    while (spawner_) {
      std::optional<SpawnReply> reply = spawner_->next_reply();
      if (!reply) break;
      const uint32_t rank = reply->rank;
      links_[rank]->on_spawned(*std::move(reply));
    }
    if (!newcomers_.empty()) hear_newcomers();
    for (const auto& link : links_) link->tick();
  }

  void let_in() {
    while (instance_ && newcomers_.size() < kNewcomersMax) {
      Result<std::optional<FileDescriptor>> socket = instance_->accept();
      if (!socket || !socket->has_value()) return;
      const Result<SocketPeer> peer = socket_peer((**socket).get());
      if (!peer || !watch((**socket).get(), kNewcomer)) continue;
      newcomers_.push_back(
          {*std::move(*socket), *peer, deadline_after(clock_.now(), options_.handshake_timeout)});
    }
  }

  void hear_newcomers() {
    std::erase_if(newcomers_, [this](Newcomer& newcomer) { return is_heard(newcomer); });
    // Who stands at the door meanwhile is not announced again and again.
    const bool has_room = newcomers_.size() < kNewcomersMax;
    if (has_room) let_in();
    if (instance_ && has_room != is_door_open_) {
      is_door_open_ = has_room;
      epoll_event event{};
      event.events = has_room ? EPOLLIN : 0u;
      event.data.u64 = kListener;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, instance_->fd(), &event);
    }
  }

  // True once it is a rank's, or turned away.
  bool is_heard(Newcomer& newcomer) {
    Result<std::optional<SocketMessage>> message = receive_message(newcomer.socket.get());
    if (message && !message->has_value()) return clock_.now() >= newcomer.deadline;
    unwatch(newcomer.socket.get());
    if (!message) return true;
    const Status joined = introduce(newcomer, **message);
    if (!joined) {
      context_.logger.log(LogLevel::kWarning, "process " + std::to_string(newcomer.peer.pid) +
                                                  " was not let in: " + joined.error().to_string());
      if (newcomer.socket) {
        static_cast<void>(
            send_message(newcomer.socket.get(), encode_refusal(joined.error())).has_value());
      }
    }
    return true;
  }

  Status introduce(Newcomer& newcomer, const SocketMessage& message) {
    TIERCEL_TRY_ASSIGN(const HelloMessage hello, decode_hello(message.bytes));
    if (!message.fds.empty()) {
      return Error(Code::kInvalid, "it sent descriptors, which no rank has to give");
    }
    if (hello.rank >= links_.size()) {
      return refuse("rank", std::to_string(hello.rank),
                    "less than " + std::to_string(links_.size()));
    }
    return links_[hello.rank]->join(newcomer.socket, newcomer.peer, hello);
  }

  void stop_listening() {
    if (instance_) unwatch(instance_->fd());
    for (const Newcomer& newcomer : newcomers_) unwatch(newcomer.socket.get());
    newcomers_.clear();
    instance_.reset();
  }

  // The ranks read CLOCK_MONOTONIC. Where our clock shows another time, deadlines are moved by what
  // it differs now: a clock that goes as fast, but began elsewhere, is kept all the same.
  std::span<const BlockOp> in_time_of_ranks(std::span<const BlockOp> ops) {
    constexpr Duration kSame = std::chrono::milliseconds(1);
    const Duration ahead = SystemClock().now() - clock_.now();
    if (ahead < kSame && ahead > -kSame) return ops;
    translated_.assign(ops.begin(), ops.end());
    for (BlockOp& op : translated_) {
      if (op.deadline_ns == INT64_MAX) continue;
      if (__builtin_add_overflow(op.deadline_ns, ahead.count(), &op.deadline_ns)) {
        op.deadline_ns = ahead.count() > 0 ? INT64_MAX : INT64_MIN;
      }
    }
    return translated_;
  }

  void wait_for_the_end(TimePoint end, const Clock& system, bool only_ours = false) {
    while (true) {
      progress();
      bool is_over = true;
      bool is_reaped = true;
      for (const auto& link : links_) {
        is_over &= link->has_let_go() || (only_ours && link->joins());
        is_reaped &= link->is_reaped();
      }
      if ((is_over && is_reaped) || system.now() >= end) return;
      // No descriptor tells when a debugger has seen enough.
      wait(is_reaped ? poll_timeout_ms(end, system) : 1);
    }
  }

  const SlotGeometry geometry_;
  const ProcessPlaneOptions options_;
  const Clock& clock_;
  const ForkGuard fork_guard_;
  const FileDescriptor epoll_;
  EventFd more_;     // something is left to be polled
  EventFd spawned_;  // by the spawner
  LinkContext context_;
  std::string socket_path_;
  // In this order: links go before the spawner, whose end ends what it has started.
  std::unique_ptr<Spawner> spawner_;
  std::unique_ptr<InstanceSocket> instance_;
  std::vector<std::unique_ptr<RankLink>> links_;
  std::vector<BlockOp> translated_;  // scratch of in_time_of_ranks()
  RankShare share_;
  std::vector<Newcomer> newcomers_;
  bool is_door_open_ = true;
  size_t first_rank_ = 0;
  bool closing_ = false;
  bool closed_ = false;
};

// 0 in the options: what the system says, which does not bind root.
Status check_lock(const SlotGeometry& geometry, const ProcessPlaneOptions& options) {
  if (!options.lock_memory) return {};
  uint64_t limit = options.lock_bytes_max;
  if (limit == 0) {
    rlimit system{};
    if (::geteuid() == 0 || ::getrlimit(RLIMIT_MEMLOCK, &system) != 0) return {};
    limit = system.rlim_cur;
  }
  for (uint32_t rank = 0; rank < geometry.rank_count(); ++rank) {
    if (geometry.tier_bytes(rank) <= limit) continue;
    return Error(Code::kNoSpace, "host memory of rank " + std::to_string(rank) + " takes " +
                                     format_bytes(geometry.tier_bytes(rank)) +
                                     ", of which lock_memory may lock " + format_bytes(limit) +
                                     "; raise the limit (ulimit -l) or do without");
  }
  return {};
}

Status check_options(const SlotGeometry& geometry, const std::vector<ProcessRank>& ranks,
                     const ProcessPlaneOptions& options) {
  TIERCEL_TRY(check_ring_ops(options.ring_ops));
  if (ranks.size() != geometry.rank_count()) {
    return refuse("number of ranks", std::to_string(ranks.size()),
                  std::to_string(geometry.rank_count()) + ", as the slot geometry has it");
  }
  for (const auto& [name, limit] :
       {std::pair("handshake_timeout", options.handshake_timeout),
        std::pair("rank_hard_limit", options.rank_hard_limit),
        std::pair("backoff", options.backoff), std::pair("backoff_max", options.backoff_max)}) {
    if (limit <= Duration::zero()) return refuse(name, format_duration(limit), "more than 0");
  }
  if (options.vain_starts_max == 0) return refuse("vain_starts_max", "0", "1 or more");
  for (size_t i = 0; i < ranks.size(); ++i) {
    const ProcessRank& rank = ranks[i];
    const std::string name = "rank " + std::to_string(i);
    if (rank.worker.rank != i) {
      return refuse(name, "rank " + std::to_string(rank.worker.rank) + " by its options",
                    "one entry per rank, in order of rank");
    }
    if (rank.joins && options.socket_folder.empty()) {
      return refuse("socket_folder", "empty", "a folder, as " + name + " joins through it");
    }
    if (!rank.joins && ::access(options.program.c_str(), X_OK) != 0) {
      return Error(Code::kInvalid, "program '" + options.program + "' cannot be run: " +
                                       error_text(errno) + "; give the path of tiercel-rank");
    }
    if (rank.joins && rank.device_fd >= 0) {
      return refuse("device memory of " + name, "a memfd", "none, as its process brings its own");
    }
    WelcomeMessage welcome(geometry);
    welcome.worker = rank.worker;
    welcome.ring_ops = options.ring_ops;
    welcome.spin = options.spin;
    welcome.store_url = options.store_url;
    if (rank.device_fd >= 0) {
      welcome.device_bytes = rank.device_bytes;
      welcome.device_groups = rank.device_groups;
      TIERCEL_TRY(check_memfd(rank.device_fd, rank.device_bytes, "device memory of " + name));
    }
    if (rank.disk_data_fd >= 0) welcome.disk = rank.disk;
    TIERCEL_TRY(check_welcome(welcome));
  }
  return {};
}

}  // namespace

std::string_view to_string(RankState state) {
  switch (state) {
    case RankState::kStarting:
      return "starting";
    case RankState::kUp:
      return "up";
    case RankState::kLost:
      return "lost";
    case RankState::kRestarting:
      return "restarting";
    case RankState::kClosed:
      return "closed";
  }
  return "unknown";
}

Result<std::unique_ptr<ProcessDataPlane>> ProcessDataPlane::create(
    const SlotGeometry& geometry, std::vector<ProcessRank> ranks, const Clock& clock,
    const ProcessPlaneOptions& options) {
  TIERCEL_TRY(check_options(geometry, ranks, options));
  TIERCEL_TRY(check_memory_of_ranks(
      geometry, options.memory.source.empty() ? available_memory() : options.memory,
      options.share_memory));
  TIERCEL_TRY(check_lock(geometry, options));
  ProcessPlaneOptions used = options;
  if (!used.make_memory) used.make_memory = make_memfd;
  std::vector<FileDescriptor> memories;
  for (uint32_t rank = 0; rank < geometry.rank_count(); ++rank) {
    if (options.share_memory && rank > 0) {
      if (geometry.tier_bytes(rank) != geometry.tier_bytes(0)) {
        return refuse("host memory of rank " + std::to_string(rank),
                      format_bytes(geometry.tier_bytes(rank)),
                      "what rank 0 has, where the memory is shared");
      }
      memories.emplace_back(::fcntl(memories.front().get(), F_DUPFD_CLOEXEC, 0));
      if (memories.back()) continue;
      return Error(Code::kUnavailable,
                   "a descriptor could not be copied: " + limit_error_text(errno));
    }
    TIERCEL_TRY_ASSIGN(
        memories.emplace_back(),
        used.make_memory("tiercel-host-" + std::to_string(rank), geometry.tier_bytes(rank)));
  }
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Error(Code::kUnavailable, "epoll could not be made: " + limit_error_text(errno));
  }
  TIERCEL_TRY_ASSIGN(EventFd more, EventFd::create());
  TIERCEL_TRY_ASSIGN(EventFd spawned, EventFd::create());
  auto plane = std::make_unique<Plane>(geometry, clock, used, std::move(epoll), std::move(more),
                                       std::move(spawned));
  TIERCEL_TRY(plane->open(std::move(ranks), std::move(memories)));
  return std::unique_ptr<ProcessDataPlane>(std::move(plane));
}

Duration touch_allowance(uint64_t bytes) {
  constexpr uint64_t kBytesPerMillisecond = (uint64_t{256} << 20) / 1000;
  return std::chrono::milliseconds(bytes / kBytesPerMillisecond + 1);
}

Result<std::string> rank_program_beside_this() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = self.parent_path() / "tiercel-rank";
  if (!error && ::access(program.c_str(), X_OK) == 0) return program.string();
  if (!error && errno != ENOENT) {
    return Error(Code::kNotFound, "program '" + program.string() +
                                      "' cannot be run: " + error_text(errno) +
                                      "; make it executable (chmod +x), or give the path of "
                                      "another tiercel-rank");
  }
  return Error(Code::kNotFound, "there is no program '" + program.string() +
                                    "'; install tiercel-rank beside this one, or give its path");
}

}  // namespace tiercel
