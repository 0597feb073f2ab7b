// SPDX-License-Identifier: Apache-2.0
//
// RankLink: one rank as ProcessDataPlane sees it, from its first start to its last.
//
//   waiting → (spawning →) hello → ready → up → leaving → waiting → …          → gone
//                └──────────┴───────┴─────────────┘ lost: whatever goes wrong
//
// A start of the rank has a channel, eventfds, socket and process of its own; nothing of one start
// can reach the next but the host memory, and that only when the former owner has let go of it.
//
// Threads: the control thread. Nothing waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/arena.h"
#include "base/unix_socket.h"
#include "transfer/fifo.h"
#include "transfer/process/outstanding_ops.h"
#include "transfer/process/process_data_plane.h"
#include "transfer/process/spawner.h"
#include "transfer/rank_port.h"

namespace tiercel {

// What every link of a plane uses; outlives them.
struct LinkContext {
  const SlotGeometry& geometry;
  const ProcessPlaneOptions& options;
  const Clock& clock;
  Spawner* spawner;  // null if no rank is started by us
  Logger& logger;
  int epoll_fd;
};

// Which descriptor of a link an event is of, as epoll's number for it.
enum class LinkSource : uint8_t { kSocket = 1, kProcess = 2, kCompletions = 3 };

class RankLink {
 public:
  // Destroyed while its rank runs it only hangs up.
  RankLink(const LinkContext& context, ProcessRank rank, FileDescriptor host_memory);
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  RankStatus status() const;
  uint64_t memory_epoch() const { return memory_epoch_; }
  RankStats stats() const;
  ReasonText store_reason() const;
  StoreCondition disk_condition() const;

  // A rank that is up, or one that ends operations itself.
  size_t capacity() const;
  // ops.size() <= capacity().
  void submit(std::span<const BlockOp> ops);
  size_t poll(std::span<Completion> out);
  bool has_completions();
  // Without the rank, so that nobody else announces them.
  bool has_ended() const { return !ended_.empty(); }

  // What has happened, and what is due: to be called with every event and in every poll.
  void on_event(LinkSource source);
  void on_spawned(SpawnReply reply);
  void tick();

  // A process of the engine that has said hello. Takes its socket, or gives the reason to refuse
  // it.
  Status join(FileDescriptor& socket, const SocketPeer& peer, const HelloMessage& hello);

  bool joins() const { return rank_.joins; }
  bool is_up() const { return phase_ == Phase::kUp; }
  // It will never be up.
  bool is_gone() const { return phase_ == Phase::kGone; }

  // Closing: no more starts; what is up is asked to close, what is not ends at once.
  void ask_to_close(Duration budget);
  // Ends what has not closed yet, if it can be ended.
  void kill();
  // Nothing touches memory any more.
  bool has_let_go() const { return phase_ == Phase::kGone; }
  // None of its processes is left as a zombie.
  bool is_reaped();

  // When tick() has something to do of itself; kNoDeadline if never.
  TimePoint next_due() const;

 private:
  enum class Phase : uint8_t {
    kWaiting,   // for the time of the next start, or for a process that joins
    kSpawning,  // for the spawner
    kHello,     // for the rank's first message
    kReady,     // for its second
    kUp,
    kLeaving,  // lost; until nothing of it touches memory
    kGone,     // for good
  };

  struct Ended {
    Completion completion;
    uint64_t epoch = 0;  // of the memory, in which it ended
    bool fills_slot = false;
  };

  void start();
  // What is forgotten of earlier starts.
  void begin_start();
  Status open_channel();
  Status send_welcome();
  void on_message();
  void on_process();
  // `by_itself`: its process has said so and is about to end, which it may until due_.
  void lose(const Error& why, bool by_itself = false);
  void let_go();
  // The kind of the operation that the completion ends, and takes it out: if it is of this rank, of
  // an operation that it has, with a code that there is.
  std::optional<OpKind> find(const Completion& completion);
  // As find(); nothing is a lie.
  std::optional<OpKind> check(const Completion& completion);
  void pull_completions();
  size_t take_ended(std::span<Completion> out);
  void begin_step();
  void schedule();
  void end_op(JobId job, uint32_t item);
  void end_ops();
  void close_descriptors();
  void watch(int fd, LinkSource source);
  void unwatch(const FileDescriptor& fd);
  std::string name() const;

  const LinkContext& context_;
  const ProcessRank rank_;
  const FileDescriptor host_memory_;

  Phase phase_ = Phase::kWaiting;
  bool closing_ = false;
  bool hopeless_ = false;     // the next start would fail for the same reason
  bool has_refused_ = false;  // in this start
  bool came_up_ = false;      // in this start
  bool in_vain_ = false;      // this start; the next one would hardly end better
  uint64_t memory_epoch_ = 0;
  uint32_t starts_ = 0;
  uint32_t times_up_ = 0;
  uint32_t failures_ = 0;     // in a row
  uint32_t vain_starts_ = 0;  // in a row
  TimePoint due_;             // start, end of the handshake, or look at the oldest operation
  TimePoint up_since_;
  std::string last_error_;

  // Of this start.
  std::unique_ptr<Arena> channel_;
  std::optional<RankPort> port_;
  std::optional<EventFd> wake_;
  std::optional<EventFd> announced_;
  FileDescriptor socket_;
  FileDescriptor process_;
  int64_t pid_ = 0;
  std::string lie_;  // by which the rank has broken the protocol; empty: none

  std::vector<FileDescriptor> unreaped_;  // of earlier starts: ended, but a debugger looks at them
  OutstandingOps outstanding_;
  Fifo<Ended> ended_;       // without the rank, or taken from it before poll() wanted it
  RankStats stats_before_;  // of earlier starts
  ReasonText store_reason_before_;
};

}  // namespace tiercel
