// SPDX-License-Identifier: Apache-2.0
//
// RankThread: one rank worker on a thread of its own, behind a rank channel in ordinary memory.
//
// Ownership: owns worker, channel and thread. The announcement is shared by the ranks of one plane
//            and outlives them.
// Threads:   one control thread calls everything; the worker's thread is inside.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/transfer.h"

#include "base/event_fd.h"
#include "transfer/rank_loop.h"
#include "transfer/rank_port.h"
#include "transfer/rank_worker.h"

namespace tiercel {

class RankThread {
 public:
  // `ring_ops` is a power of two. kUnavailable if the system gives no descriptor or thread.
  static Result<std::unique_ptr<RankThread>> start(std::unique_ptr<RankWorker> worker,
                                                   uint32_t ring_ops, Duration spin,
                                                   const Clock& clock, Announcement& announcement);
  // Asks the thread to end, as ask_to_close(now), and waits for it: as long as the store's close()
  // takes.
  ~RankThread();

  // Operations that submit() would take: ring_ops less what was submitted and not yet polled, so
  // that the completion ring has room for everything that is under way.
  size_t capacity() const { return port_.capacity(); }
  // ops.size() <= capacity().
  void submit(std::span<const BlockOp> ops);
  size_t poll(std::span<Completion> out) { return port_.poll(out); }
  bool has_completions() { return port_.has_completions(); }
  RankStats stats() const { return port_.stats(); }
  ReasonText store_reason() const { return port_.store_reason(); }
  StoreCondition disk_condition() const { return port_.disk_condition(); }

  // Closing has two steps, so that all ranks close at the same time. The first ask decides the
  // deadline of the thread. wait_closed() sleeps until the worker has closed; kTimeout if it had
  // not by `deadline`.
  void ask_to_close(TimePoint deadline);
  Status wait_closed(TimePoint deadline);

 private:
  struct CacheLine {
    alignas(kCacheLineBytes) std::array<std::byte, kCacheLineBytes> bytes;
  };
  static RankChannel format(std::vector<CacheLine>& memory, uint32_t ring_ops, uint32_t rank);

  RankThread(std::unique_ptr<RankWorker> worker, uint32_t ring_ops, Duration spin,
             const Clock& clock, Announcement& announcement, EventFd wake, EventFd ended);

  void run();

  // The thread's while it runs, then the control thread's.
  const std::unique_ptr<RankWorker> worker_;
  const Clock& clock_;
  std::vector<CacheLine> memory_;
  EventFd wake_;
  const RankChannel channel_;
  RankLoop loop_;        // as the worker
  Status close_status_;  // as the worker

  RankPort port_;  // control thread
  bool asked_to_close_ = false;

  EventFd ended_;  // signalled when the thread has nothing left to do
  std::thread thread_;
};

}  // namespace tiercel
