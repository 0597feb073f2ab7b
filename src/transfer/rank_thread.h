// SPDX-License-Identifier: Apache-2.0
//
// RankThread: one rank worker on a thread of its own, behind two rings.
//
// Ownership: owns worker, rings and thread. The announcement is shared by the ranks of one plane
// and outlives
//            them.
// Threads:   one control thread calls everything; the worker's thread is inside.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/transfer.h"

#include "base/event_fd.h"
#include "transfer/rank_worker.h"
#include "transfer/spsc_ring.h"
#include "transfer/wake_flag.h"

namespace tiercel {

class RankThread {
 public:
  // `ring_ops` is a power of two. kUnavailable if the system gives no descriptor or thread.
  static Result<std::unique_ptr<RankThread>> start(std::unique_ptr<RankWorker> worker,
                                                   uint32_t ring_ops, const Clock& clock,
                                                   Announcement& announcement);
  // Asks the thread to end, as ask_to_close(now), and waits for it: as long as the store's close()
  // takes.
  ~RankThread();

  // Operations that submit() would take: ring_ops less what was submitted and not yet polled, so
  // that the completion ring has room for everything that is under way.
  size_t capacity() const { return ring_ops_ - in_flight_; }
  // ops.size() <= capacity().
  void submit(std::span<const BlockOp> ops);
  size_t poll(std::span<Completion> out);
  bool has_completions() { return completions_out_.size() > 0; }
  RankStats stats() const { return worker_->stats(); }

  // Closing has two steps, so that all ranks close at the same time. The first ask decides the
  // deadline of the thread. wait_closed() sleeps until the worker has closed; kTimeout if it had
  // not by `deadline`.
  void ask_to_close(TimePoint deadline);
  Status wait_closed(TimePoint deadline);

 private:
  struct CacheLine {
    alignas(kCacheLineBytes) std::array<std::byte, kCacheLineBytes> bytes;
  };
  template <typename T>
  static std::vector<CacheLine> ring_memory(uint32_t capacity);
  static std::span<std::byte> as_bytes(std::vector<CacheLine>& lines);

  RankThread(std::unique_ptr<RankWorker> worker, uint32_t ring_ops, const Clock& clock,
             Announcement& announcement, EventFd wake, EventFd ended);

  void run();
  bool pass_ops();
  bool pass_completions();
  void sleep();
  void close_worker();

  const std::unique_ptr<RankWorker>
      worker_;  // the thread's while it runs, then the control thread's
  const uint32_t ring_ops_;
  const Clock& clock_;
  Announcement& announcement_;

  std::vector<CacheLine> ops_memory_;
  std::vector<CacheLine> completions_memory_;

  // Control thread.
  SpscProducer<BlockOp> ops_in_;
  SpscConsumer<Completion> completions_out_;
  size_t in_flight_ = 0;
  bool asked_to_close_ = false;

  // Worker's thread.
  SpscConsumer<BlockOp> ops_out_;
  SpscProducer<Completion> completions_in_;
  std::vector<BlockOp> ops_batch_;
  std::vector<Completion> completions_batch_;

  // Both.
  SleepFlag sleep_flag_;
  EventFd ended_;                      // signalled when the thread has nothing left to do
  std::atomic<bool> stopping_{false};  // close_deadline_ is set
  TimePoint close_deadline_;
  Status close_status_;  // the thread's, then the control thread's
  std::thread thread_;
};

}  // namespace tiercel
