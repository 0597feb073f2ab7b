// SPDX-License-Identifier: Apache-2.0
//
// Sidecar: the process that holds the Mooncake client of one store (sidecar.py), and the way to it.
// In the role kSegment the process gives memory to the pool instead and takes no requests.
//
// It is started when it is first needed, gets the memory that it works on as memfds, and takes
// requests until it ends, is killed, or breaks the protocol. Its end is the one moment at which
// everything that it was given is certainly over, and at which none of its memory changes any more.
// After a failure it is left alone for a time that doubles.
//
// Time: nothing happens but within the calls here, which are told what time it is.
// Threads: one. Ends with this object, and with this process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/child_process.h"
#include "base/file_descriptor.h"
#include "store/mooncake/mooncake_options.h"
#include "store/mooncake/wire.h"

namespace tiercel {

class Sidecar {
 public:
  enum class State : uint8_t {
    kDown,      // there is no process
    kStarting,  // it does not take requests yet
    kReady,
    kEnding,  // killed, gone, or about to go, and not reaped yet
  };

  enum class Role : uint8_t { kClient, kSegment };

  // kUnavailable if the system has no descriptor left.
  static Result<std::unique_ptr<Sidecar>> create(MooncakeOptions options,
                                                 Role role = Role::kClient);

  // Memory that the process maps, now or when it starts: the first `bytes` of a memfd, of which a
  // duplicate is kept. Returns its number. The process is not ready until Mooncake has it.
  Result<size_t> add_memory(int memfd, uint64_t bytes, bool populate);
  // This node's segment, the first `bytes` of a memfd, and where it is in the pool; while it is
  // there a duplicate of the descriptor is kept. The process reads from it what lies there; it need
  // not have it to be ready.
  Status place_segment(int memfd, uint64_t bytes, mooncake::SegmentPlace place);
  // Where that memory stands in the process. While kReady only.
  uint64_t address(size_t memory) const { return memories_[memory].address; }

  // Starts the process if there is none and the back-off is over. False: there is none, and none
  // was started.
  bool start(TimePoint now);
  // Kills it; `why` becomes the problem. Nothing if it is down.
  void kill(std::string why);
  // Asks it to end in order, and hears no more of it but its end. Nothing if it is down.
  void ask_to_end();

  // While kReady. False if the process has too much to read; try again after poll().
  bool send(std::span<const std::byte> message);

  // Takes what has happened: appends replies; true if a process has ended since the last call. Then
  // nothing of what it was given will be answered any more.
  bool poll(TimePoint now, std::vector<mooncake::Message>* replies);
  // When poll() wants to be called though fd() does not ask for it.
  TimePoint next_due() const;
  // Readable when poll() has something to do.
  int fd() const { return epoll_.get(); }

  State state() const { return state_; }
  pid_t pid() const { return process_ ? process_->pid() : 0; }
  // What the process has said when it was up.
  const std::string& greeting() const { return greeting_; }
  // Why the last one ended or did not start; empty while all is well.
  const std::string& problem() const { return problem_; }
  // What a process that is starting does.
  const std::string& stage() const { return stage_; }
  // What is wrong with the present one though it serves; empty if nothing is.
  const std::string& note() const { return note_; }
  // While kDown: before this time start() does nothing.
  TimePoint retry_at() const { return retry_at_; }
  uint64_t starts() const { return starts_; }
  // From start() to kReady, of the last one that got there.
  Duration start_time() const { return start_time_; }

 private:
  struct Memory {
    FileDescriptor fd;
    uint64_t bytes = 0;
    bool populate = true;
    uint64_t address = 0;
    bool is_mapped = false;
  };

  struct Segment {
    FileDescriptor fd;
    uint64_t bytes = 0;
    mooncake::SegmentPlace place;
    uint64_t generation = 0;
    bool is_told = false;
  };

  Sidecar(MooncakeOptions options, Role role, FileDescriptor epoll);
  Status launch();
  Status send_memory(size_t index);
  void tell_segment();
  void read_socket(TimePoint now, std::vector<mooncake::Message>* replies);
  void take(mooncake::Message message, TimePoint now, std::vector<mooncake::Message>* replies);
  void note_mapped(const mooncake::Message& reply);
  void look_whether_ready(TimePoint now);
  void fail(TimePoint now, std::string problem);
  std::string end_problem() const;

  const MooncakeOptions options_;
  const Role role_;
  const FileDescriptor epoll_;
  std::vector<Memory> memories_;
  std::optional<Segment> segment_;
  State state_ = State::kDown;
  std::unique_ptr<ChildProcess> process_;
  FileDescriptor socket_;
  bool has_spoken_ = false;  // at all: so it is a Python, and runs our program
  bool is_up_ = false;       // it has said so; memory may still have to be mapped
  std::string greeting_;
  std::string refusal_;      // what it has said itself
  std::string kill_reason_;  // why we kill it
  std::string problem_;
  std::string stage_;
  std::string note_;
  TimePoint started_;
  TimePoint killed_at_ = kNoDeadline;  // one that has gone silent, unless it ends before
  TimePoint retry_at_{};
  Duration backoff_{0};
  Duration start_time_{0};
  uint64_t starts_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace tiercel
