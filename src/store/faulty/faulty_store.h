// SPDX-License-Identifier: Apache-2.0
//
// FaultyStore: a Store around a Store that delays, fails, loses and damages by seed, so that what
// stands above it can be tested against everything that a real service does. Given the same seed,
// the same calls and the same clock readings it does the same again.
//
// Promises that it keeps all the same: a submission completes at most once and, after close(),
// exactly once; the spans of a get are written only before its completion, or before close() has
// returned; a submission whose deadline has passed already is handed on unharmed.
//
// Delays run on the injected clock. completion_fd() becomes readable by real time; under a clock
// that is moved by hand, call poll() at each step instead.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"

#include "base/random.h"
#include "store/faulty/fault_plan.h"
#include "store/wake_up.h"

namespace tiercel {

// Threads: one, as every Store.
class FaultyStore final : public Store {
 public:
  // `clock` outlives the store. kUnavailable if the operating system has no descriptor left.
  static Result<std::unique_ptr<FaultyStore>> create(std::unique_ptr<Store> inner,
                                                     const FaultOptions& options,
                                                     const Clock& clock);
  // Use create(), which makes `wake_up` for `inner`.
  FaultyStore(std::unique_ptr<Store> inner, const FaultOptions& options, const Clock& clock,
              WakeUp wake_up);

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override;
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                    TimePoint deadline) override;
  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                    TimePoint deadline) override;
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override;
  Result<StoreRequestId> submit_clear(std::string_view prefix, TimePoint deadline) override;
  size_t poll(std::vector<StoreCompletion>* completions) override;
  int completion_fd() const override { return wake_up_.fd(); }
  Status register_memory(std::span<std::byte> memory) override;
  Status register_shared_memory(std::span<std::byte> memory, int memfd) override;
  bool wants_shared_memory() const override { return inner_->wants_shared_memory(); }
  // Those of the inner store, the faults that were answered added to its failures.
  StoreStats stats() const override;
  StoreHealth health() const override { return inner_->health(); }
  std::string state() const override { return inner_->state(); }
  Status close(TimePoint deadline) override;

  // Submissions, ever, whose completion was withheld (close() ends them as unavailable).
  uint64_t dropped() const { return dropped_ever_; }

 private:
  struct ExistsBatch {
    std::vector<ObjectKey> keys;
  };
  struct RemoveBatch {
    std::vector<ObjectKey> keys;
  };
  struct GetBatch {
    std::vector<StoreGetItem> items;
  };
  struct PutBatch {
    std::vector<StorePutItem> items;
  };
  struct ClearBatch {
    std::string prefix;
  };
  using Batch = std::variant<ExistsBatch, RemoveBatch, GetBatch, PutBatch, ClearBatch>;

  struct Request {
    Batch batch;                        // what the inner store is asked
    std::vector<size_t> item_of_inner;  // place in the answer of each item of `batch`
    std::vector<Code> codes;            // the answer
    FaultPlan plan;
    TimePoint due = kNoDeadline;  // end of the delay, if there is one
    bool is_due = true;           // no delay, or it is over
    bool is_answered = false;     // by the inner store, or without it
  };

  Status accepts() const;
  FaultPlan draw(FaultTarget target, size_t items, TimePoint deadline);
  Result<StoreRequestId> start(Request request, TimePoint deadline);
  Result<StoreRequestId> ask_inner(const Request& request, TimePoint deadline);
  void start_delayed(StoreRequestId id);
  void take_inner_answers();
  void take_due(TimePoint now);
  void damage_result(const Request& request, size_t inner_item) const;
  void finish_if_done(StoreRequestId id);
  void complete(StoreRequestId id, std::vector<Code> codes);
  void arm_timer();

  WakeUp wake_up_;  // watches a descriptor of inner_; the kernel forgets it when that is closed
  const std::unique_ptr<Store> inner_;
  const FaultOptions options_;
  const Clock& clock_;
  Random random_;
  bool closed_ = false;
  uint64_t last_id_ = 0;
  uint64_t dropped_ever_ = 0;
  uint64_t injected_failures_ = 0;
  std::map<StoreRequestId, Request> requests_;
  std::multimap<TimePoint, StoreRequestId> due_;
  std::unordered_map<StoreRequestId, StoreRequestId> by_inner_id_;
  std::map<StoreRequestId, size_t> dropped_;  // number of items of each
  std::vector<StoreCompletion> ready_;
  std::vector<StoreCompletion> inner_completions_;  // kept for its memory
};

}  // namespace tiercel
