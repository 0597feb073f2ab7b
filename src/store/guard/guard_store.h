// SPDX-License-Identifier: Apache-2.0
//
// GuardStore: a Store around a Store that keeps a service in trouble from costing more than its
// deadline once: it gives every call a deadline, watches whether it is kept, and refuses at once
// what would only wait (base/breaker.h).
//
// What counts: a submission of which every item that says anything ended in timeout, unavailable or
// busy, or that was open at its deadline, is a failure; any item with another answer (ok,
// not_found, corrupt, no_space) shows that the service is there. If the service has answered
// nothing at all between the start of a submission and its deadline, it is stalled, and the breaker
// opens without counting to `failures`. A submission that is refused as busy, or whose deadline has
// passed before it begins, says nothing about the service.
//
// At its deadline an exists, remove or clear ends as timeout, and the late answer of the inner
// store is dropped. A get or put stays open until the inner store lets go of its memory, as the
// contract wants it, and then ends with what really happened.
//
// While the breaker is open, submissions end as unavailable, every item, without touching the inner
// store. Deadlines run on the injected clock, as seen by poll(); completion_fd() becomes readable
// by real time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"

#include "base/breaker.h"
#include "store/wake_up.h"

namespace tiercel {

struct GuardOptions {
  Duration deadline{0};  // of every call, from its start; 0: only the caller's
  BreakerOptions breaker;
};

// Threads: one, as every Store.
class GuardStore final : public Store {
 public:
  // `clock` outlives the store. kUnavailable if the operating system has no descriptor left.
  static Result<std::unique_ptr<GuardStore>> create(std::unique_ptr<Store> inner,
                                                    const GuardOptions& options,
                                                    const Clock& clock);
  // Use create(). Without `wake_up` the inner store must have no completion_fd either.
  GuardStore(std::unique_ptr<Store> inner, const GuardOptions& options, const Clock& clock,
             std::optional<WakeUp> wake_up);

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
  int completion_fd() const override { return wake_up_ ? wake_up_->fd() : -1; }
  Status register_memory(std::span<std::byte> memory) override;
  Status register_shared_memory(std::span<std::byte> memory, int memfd) override;
  bool wants_shared_memory() const override { return inner_->wants_shared_memory(); }
  // Those of the inner store; what ended here without it is added to the failures.
  StoreStats stats() const override;
  // The inner store's while closed, else the breaker's.
  StoreHealth health() const override;
  std::string state() const override;
  Status close(TimePoint deadline) override;

  const Breaker& breaker() const { return breaker_; }

 private:
  struct Request {
    StoreRequestId id;
    size_t items = 0;
    bool touches_memory = false;
    std::optional<Breaker::Ticket> ticket;  // none once its outcome is known
    TimePoint deadline;
    TimePoint started;
    uint64_t answers_before = 0;  // of the inner store, when it was started
  };
  using Requests = std::unordered_map<StoreRequestId, Request>;  // by the inner store's id

  template <typename Ask>
  Result<StoreRequestId> submit(size_t items, bool touches_memory, TimePoint deadline, Ask ask);
  StoreRequestId refuse(size_t items, Code code);
  void complete(StoreRequestId id, size_t items, Code code);
  void take_inner_answers(std::vector<StoreCompletion>* completions);
  void take_overdue(TimePoint now);
  void note_outcome(Request& request, const std::vector<Code>& codes);
  void arm_timer(TimePoint now);

  // Watches a descriptor of inner_; the kernel forgets it when that is closed.
  std::optional<WakeUp> wake_up_;
  const std::unique_ptr<Store> inner_;
  const GuardOptions options_;
  const Clock& clock_;
  Breaker breaker_;
  bool closed_ = false;
  uint64_t last_id_ = 0;
  uint64_t answers_ = 0;  // of the inner store, ever
  uint64_t own_failures_ = 0;
  Requests requests_;
  // Deadlines that are still to be kept, with the inner store's id.
  std::set<std::pair<TimePoint, StoreRequestId>> due_;
  TimePoint armed_ = kNoDeadline;  // the time that the timer is set to
  std::vector<StoreCompletion> ready_;
  std::vector<StoreCompletion> inner_completions_;  // kept for its memory
};

}  // namespace tiercel
