// SPDX-License-Identifier: Apache-2.0
//
// ProcessDataPlane: ranks in processes of their own, behind shared-memory channels.
//
// Each rank has one of two hosts: the program tiercel-rank, which the plane starts, watches and
// starts again (it dies with this process, whatever kills it); or a process of the engine that
// joins through a named socket (tiercel/rank.h). What a rank is given is in the handshake: its
// channel, its host memory, its device memory where that is a memfd, and its store's URL.
//
// A rank that is not up takes nothing: its operations complete as `unavailable` at once, and the
// other ranks go on. When a rank is lost, what it had under way completes as `unavailable` as soon
// as nothing of it can touch memory any more: when its process has ended, or, for a process of the
// engine, has hung up. Until then it is quarantined, for ever if need be; a rank of ours that has
// had an operation for longer than `rank_hard_limit` is killed, which ends that. Its successor
// begins with empty host memory: memory_epoch() rises.
//
// Completions are not believed: a rank that completes what it has not been given, or anything
// twice, or that breaks the protocol otherwise, is cut off.
//
// Time: nothing happens but within poll(), wait_until_up() and close(), which notice what is due by
// `clock`: back-off and limits of the plane. Deadlines in operations are read by other
// processes, by CLOCK_MONOTONIC (SystemClock): they are moved by what `clock` differs from it at
// submission, so it must go as fast as that; under one that stands still, carry none.
// Threads: the control thread, as DataPlane says; inside is one thread that starts processes, so
// that the control thread does not wait for exec, and so that ranks die when the process does and
// not when some thread of it does.
// Fork: in a child of this process every call is refused (usable(), close() and wait_until_up():
// kUnavailable), and the destructor touches neither the ranks nor the named socket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/transfer.h"

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "tier/slot_geometry.h"
#include "transfer/process/messages.h"
#include "transfer/rank_worker.h"

namespace tiercel {

enum class RankState : uint8_t {
  kStarting,    // has not been up yet
  kUp,          // takes operations
  kLost,        // its end has not let go yet, or it will not be started again
  kRestarting,  // has been up, or has failed to start; the next attempt is under way or waits
  kClosed,
};
// "starting", "up", "lost", "restarting", "closed"
std::string_view to_string(RankState state);

struct RankStatus {
  RankState state = RankState::kStarting;
  int64_t pid = 0;           // of its process; 0 if there is none
  uint32_t starts = 0;       // attempts to start it, or joins, so far
  uint32_t times_up = 0;     // of these, how many have led to kUp
  uint32_t ops = 0;          // operations that it has not completed
  bool is_stopped = false;   // by SIGSTOP or a debugger; only seen of tiercel-rank
  bool is_given_up = false;  // it will not be started again
  std::string last_error;    // why it was lost last, or did not start; empty: never
};

// What is particular to one rank.
struct ProcessRank {
  RankWorkerOptions worker;  // rank as its place in the list
  // True: the engine brings the process (socket_folder must be set); false: tiercel-rank.
  bool joins = false;
  // Device memory for tiercel-rank: a memfd that is sealed against shrinking, with block i of group
  // g at groups[g].offset_bytes + i × payload bytes. Borrowed, for as long as the plane lives. -1:
  // no device, loads and saves are `unsupported`.
  int device_fd = -1;
  uint64_t device_bytes = 0;
  std::vector<DeviceGroupPlace> device_groups;
  // Files of the disk tier, borrowed likewise; both −1 without one.
  int disk_data_fd = -1;
  int disk_metadata_fd = -1;
  DiskConfig disk;
};

struct ProcessPlaneOptions {
  uint32_t ring_ops = 4096;   // operations in flight at most; power of two, 2 to 2^20
  Duration spin{0};           // how long an idle rank looks for work before it sleeps
  std::string store_url;      // opened by each rank; empty: none
  bool huge_pages = true;     // for the host memory
  bool share_memory = false;  // the ranks, whose slots must be equal, have one host memory
  bool lock_memory = false;   // mlock the host memory in each rank
  bool prefault = false;      // each rank touches its host memory before it is up

  // Hosts of our own.
  std::string program;                 // path of tiercel-rank; see rank_program_beside_this()
  std::vector<std::string> arguments;  // more arguments for it
  std::string log_path;                // where its standard error goes, appended; empty: ours

  // Hosts of the engine: the socket SOCKET_FOLDER/INSTANCE.sock. The folder is made if missing, and
  // must be ours alone (mode 0700).
  std::string socket_folder;
  std::string instance = "main";

  // For each step of it; to lock_memory or prefault a rank has touch_allowance() on top.
  Duration handshake_timeout = std::chrono::seconds(20);
  Duration rank_hard_limit = std::chrono::seconds(60);  // for one operation; more than any deadline
  uint32_t restarts_max = 8;  // in a row, without having been up for restart_window
  // Starts in a row after which a rank is given up because the next one would not end better: its
  // program cannot be run, or ends (but by kill -9) before it is up. Until a rank has been up for
  // the first time, what the system refuses us (descriptors, processes) counts as well.
  uint32_t vain_starts_max = 3;
  Duration restart_window = std::chrono::seconds(60);
  Duration backoff = std::chrono::milliseconds(100);  // doubles with each attempt
  Duration backoff_max = std::chrono::seconds(10);

  Logger* logger = nullptr;  // the control thread's; outlives the plane
  // For tests.
  std::function<Result<FileDescriptor>(const std::string& name, size_t bytes)> make_memory;
  MemoryLimit memory;           // empty source: as the system says
  uint64_t lock_bytes_max = 0;  // 0: as the system says (RLIMIT_MEMLOCK)
};

class ProcessDataPlane : public DataPlane {
 public:
  // One entry per rank of `geometry`, in order. Starts the ranks, without waiting for them (see
  // wait_until_up). kInvalid for what cannot be; kNoSpace, with the numbers, if the host memory of
  // all ranks is more than there is, or more than may be locked; kUnavailable if the system refuses
  // a memfd or descriptor; kBusy if another process holds the instance's name, with its pid.
  static Result<std::unique_ptr<ProcessDataPlane>> create(const SlotGeometry& geometry,
                                                          std::vector<ProcessRank> ranks,
                                                          const Clock& clock,
                                                          const ProcessPlaneOptions& options);

  // Sleeps until every rank is up, or one will never be (its reason), or the deadline has passed
  // (kTimeout with the ranks that are missing). For the start only: the control thread waits here.
  virtual Status wait_until_up(TimePoint deadline) = 0;

  virtual RankStatus rank_status(uint32_t rank) const = 0;
  // Where hosts of the engine join; empty if there are none.
  virtual const std::string& socket_path() const = 0;
};

// What a rank may take to touch so much memory for the first time: far more than it should.
Duration touch_allowance(uint64_t bytes);

// tiercel-rank in the folder of the running program; kNotFound with the path if it is not there, or
// cannot be run.
Result<std::string> rank_program_beside_this();

}  // namespace tiercel
