// SPDX-License-Identifier: Apache-2.0
//
// RankLoop: drives a rank worker from its channel; the same in every host (a thread beside Cache,
// tiercel-rank, an engine's own process).
//
// The other side has room in the ring of completions for everything that it submits (RankPort), so
// the loop never waits for the reader; where there is none the other side has broken the protocol.
// With nothing to do it sleeps in poll(2) on its eventfd, the store's and the peer's.
//
// Ownership: everything is borrowed and outlives the loop.
// Threads:   one; the channel's words are for the other side.
#pragma once

#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "transfer/rank_channel.h"
#include "transfer/rank_worker.h"

namespace tiercel {

struct RankLoopOptions {
  Duration spin{0};  // looks for operations that long before it sleeps
  int peer_fd = -1;  // a socket on which nothing comes but the end of the peer
  int stop_fd = -1;  // readable once the loop shall end
};

enum class RankLoopEnd : uint8_t {
  kAskedToClose,  // by the channel's word
  kStopped,       // by stop_fd
  kPeerGone,
  kPeerBroke,  // it said something on peer_fd, or submitted more than there is room for
};

class RankLoop {
 public:
  RankLoop(RankWorker& worker, RankChannel channel, EventFd& wake, Announcer announcer,
           const Clock& clock, const RankLoopOptions& options = {});

  // Until one of the ends; nothing is closed yet.
  RankLoopEnd run();

  // One round: takes operations in, does a bounded piece of work, passes completions out. True if
  // anything moved.
  bool step();
  bool peer_broke() const { return peer_broke_; }

  // Takes in what waits in the ring and closes the worker, which ends it all; passes completions
  // out as far as there is room. As RankWorker::close; may be called again.
  Status close(TimePoint deadline);
  // As the channel's word asks; no earlier than now.
  TimePoint close_deadline() const;

 private:
  bool pass_ops();
  bool pass_completions();
  void publish_reason();
  bool spin();
  // What woke us, if that ends the loop.
  bool sleep(RankLoopEnd& end);

  RankWorker& worker_;
  const RankChannel channel_;
  const Clock& clock_;
  const RankLoopOptions options_;
  SleepFlag sleep_flag_;
  Announcer announcer_;
  SpscConsumer<BlockOp> ops_;
  SpscProducer<Completion> completions_;
  std::vector<BlockOp> ops_batch_;
  std::vector<Completion> completions_batch_;
  uint64_t published_reason_ = 0;  // StoreReason::changes() that the other side knows
  bool peer_broke_ = false;
};

// `now` + `wait`, or kNoDeadline where that is later than any time.
constexpr TimePoint deadline_after(TimePoint now, Duration wait) {
  return wait > kNoDeadline - now ? kNoDeadline : now + wait;
}

}  // namespace tiercel
