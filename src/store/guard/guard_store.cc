// SPDX-License-Identifier: Apache-2.0
#include "store/guard/guard_store.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"
#include "base/option_table.h"
#include "store/registry.h"
#include "store/store_items.h"

namespace tiercel {
namespace {

// Requests in flight or not yet polled; more is kBusy.
constexpr size_t kRequestsMax = 4096;
// Beside failures in a row: half of this many submissions.
constexpr uint32_t kWindow = 64;
constexpr double kFailureShare = 0.5;

bool is_failure(Code code) {
  return code == Code::kTimeout || code == Code::kUnavailable || code == Code::kBusy;
}

// What an item says only about itself.
bool is_silent(Code code) { return code == Code::kInvalid || code == Code::kCancelled; }

}  // namespace

Result<std::unique_ptr<GuardStore>> GuardStore::create(std::unique_ptr<Store> inner,
                                                       const GuardOptions& options,
                                                       const Clock& clock) {
  std::optional<WakeUp> wake_up;
  // A store that has always answered when its submission returns is never waited for.
  if (inner->completion_fd() >= 0) {
    TIERCEL_TRY_ASSIGN(wake_up, WakeUp::create(inner->completion_fd()));
  }
  return std::make_unique<GuardStore>(std::move(inner), options, clock, std::move(wake_up));
}

GuardStore::GuardStore(std::unique_ptr<Store> inner, const GuardOptions& options,
                       const Clock& clock, std::optional<WakeUp> wake_up)
    : wake_up_(std::move(wake_up)),
      inner_(std::move(inner)),
      options_(options),
      clock_(clock),
      breaker_(options.breaker, clock) {}

Result<StoreRequestId> GuardStore::submit_exists(std::span<const ObjectKey> keys,
                                                 TimePoint deadline) {
  return submit(keys.size(), false, deadline,
                [&](TimePoint until) { return inner_->submit_exists(keys, until); });
}

Result<StoreRequestId> GuardStore::submit_get(std::span<const StoreGetItem> items,
                                              TimePoint deadline) {
  return submit(items.size(), true, deadline,
                [&](TimePoint until) { return inner_->submit_get(items, until); });
}

Result<StoreRequestId> GuardStore::submit_put(std::span<const StorePutItem> items,
                                              TimePoint deadline) {
  return submit(items.size(), true, deadline,
                [&](TimePoint until) { return inner_->submit_put(items, until); });
}

Result<StoreRequestId> GuardStore::submit_remove(std::span<const ObjectKey> keys,
                                                 TimePoint deadline) {
  return submit(keys.size(), false, deadline,
                [&](TimePoint until) { return inner_->submit_remove(keys, until); });
}

Result<StoreRequestId> GuardStore::submit_clear(std::string_view prefix, TimePoint deadline) {
  if (prefix.empty()) {
    return Error(Code::kInvalid,
                 "clear of a guarded store with an empty prefix; name at least one namespace");
  }
  return submit(1, false, deadline,
                [&](TimePoint until) { return inner_->submit_clear(prefix, until); });
}

template <typename Ask>
Result<StoreRequestId> GuardStore::submit(size_t items, bool touches_memory, TimePoint deadline,
                                          Ask ask) {
  if (closed_) return Error(Code::kUnavailable, "the guarded store is closed");
  const size_t count = requests_.size() + ready_.size();
  if (count >= kRequestsMax) {
    return Error(Code::kBusy, std::to_string(count) +
                                  " requests of the guarded store are in flight or not yet "
                                  "polled; poll them first");
  }
  const TimePoint now = clock_.now();
  if (has_passed(deadline, now)) return refuse(items, Code::kTimeout);
  if (options_.deadline > Duration(0)) deadline = std::min(deadline, now + options_.deadline);
  const std::optional<Breaker::Ticket> ticket = breaker_.admit();
  if (!ticket) return refuse(items, Code::kUnavailable);

  const Result<StoreRequestId> inner_id = ask(deadline);
  if (!inner_id) {
    if (inner_id.code() == Code::kUnavailable) {
      breaker_.failed(*ticket, Code::kUnavailable);
    } else {
      breaker_.abandoned(*ticket);
    }
    return inner_id.error();
  }
  const StoreRequestId id(++last_id_);
  requests_.emplace(*inner_id, Request{id, items, touches_memory, ticket, deadline, now, answers_});
  if (deadline != kNoDeadline) due_.emplace(deadline, *inner_id);
  arm_timer(now);
  return id;
}

StoreRequestId GuardStore::refuse(size_t items, Code code) {
  const StoreRequestId id(++last_id_);
  complete(id, items, code);
  return id;
}

void GuardStore::complete(StoreRequestId id, size_t items, Code code) {
  if (ready_.empty() && wake_up_) wake_up_->raise();
  own_failures_ += items;
  ready_.push_back({id, std::vector<Code>(items, code)});
}

void GuardStore::take_inner_answers(std::vector<StoreCompletion>* completions) {
  inner_completions_.clear();
  answers_ += inner_->poll(&inner_completions_);
  for (StoreCompletion& completion : inner_completions_) {
    const auto entry = requests_.find(completion.id);
    // The late answer of a request that has ended at its deadline.
    if (entry == requests_.end()) continue;
    Request& request = entry->second;
    note_outcome(request, completion.codes);
    due_.erase({request.deadline, completion.id});
    completions->push_back({request.id, std::move(completion.codes)});
    requests_.erase(entry);
  }
}

void GuardStore::note_outcome(Request& request, const std::vector<Code>& codes) {
  if (!request.ticket) return;
  const Breaker::Ticket ticket = *std::exchange(request.ticket, std::nullopt);
  const auto failure = std::find_if(codes.begin(), codes.end(), is_failure);
  const bool is_answered = std::any_of(
      codes.begin(), codes.end(), [](Code code) { return !is_failure(code) && !is_silent(code); });
  if (is_answered) {
    breaker_.succeeded(ticket);
  } else if (failure != codes.end() && !closed_) {
    breaker_.failed(ticket, *failure);
  } else {
    breaker_.abandoned(ticket);
  }
}

void GuardStore::take_overdue(TimePoint now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const StoreRequestId inner_id = due_.begin()->second;
    due_.erase(due_.begin());
    const auto entry = requests_.find(inner_id);
    Request& request = entry->second;
    const Breaker::Ticket ticket = *std::exchange(request.ticket, std::nullopt);
    if (answers_ == request.answers_before) {
      breaker_.trip(ticket, Code::kTimeout,
                    "no answer within " + format_duration(request.deadline - request.started));
    } else {
      breaker_.failed(ticket, Code::kTimeout);
    }
    if (request.touches_memory) continue;
    complete(request.id, request.items, Code::kTimeout);
    requests_.erase(entry);
  }
}

size_t GuardStore::poll(std::vector<StoreCompletion>* completions) {
  const size_t before = completions->size();
  // Answers first: what has arrived by now was not late.
  take_inner_answers(completions);
  const TimePoint now = clock_.now();
  take_overdue(now);
  arm_timer(now);
  if (!ready_.empty()) {
    if (wake_up_) wake_up_->lower();
    std::move(ready_.begin(), ready_.end(), std::back_inserter(*completions));
    ready_.clear();
  }
  return completions->size() - before;
}

void GuardStore::arm_timer(TimePoint now) {
  if (!wake_up_) return;
  const TimePoint next = due_.empty() ? kNoDeadline : due_.begin()->first;
  // A timer that comes too early costs one poll; one that is set at each submission costs more.
  if (next >= armed_ && armed_ > now) return;
  if (next == armed_) return;
  if (next == kNoDeadline) {
    wake_up_->clear_timer();
  } else {
    wake_up_->set_timer(next - now);
  }
  armed_ = next;
}

Status GuardStore::register_memory(std::span<std::byte> memory) {
  return inner_->register_memory(memory);
}

Status GuardStore::register_shared_memory(std::span<std::byte> memory, int memfd) {
  return inner_->register_shared_memory(memory, memfd);
}

StoreStats GuardStore::stats() const {
  StoreStats stats = inner_->stats();
  stats.failures += own_failures_;
  return stats;
}

StoreHealth GuardStore::health() const {
  StoreHealth health = inner_->health();
  const BreakerState state = breaker_.state();
  if (state != BreakerState::kClosed) {
    health.condition =
        state == BreakerState::kOpen ? StoreCondition::kOpen : StoreCondition::kProbing;
    health.cause = breaker_.cause();
  }
  health.opened += breaker_.counters().opened;
  health.refused += breaker_.counters().refused;
  return health;
}

std::string GuardStore::state() const {
  std::string inner = inner_->state();
  if (breaker_.state() == BreakerState::kClosed) return inner;
  return inner == "ok" ? breaker_.describe() : inner + "; " + breaker_.describe();
}

Status GuardStore::close(TimePoint deadline) {
  closed_ = true;
  Status closed = inner_->close(deadline);
  std::vector<StoreCompletion> answers;
  take_inner_answers(&answers);
  if (!answers.empty() && ready_.empty() && wake_up_) wake_up_->raise();
  std::move(answers.begin(), answers.end(), std::back_inserter(ready_));
  if (!closed) return closed;
  // The inner store has let go of everything; what it forgot to complete is over as well.
  for (const auto& [inner_id, request] : requests_) {
    complete(request.id, request.items, Code::kUnavailable);
  }
  requests_.clear();
  due_.clear();
  arm_timer(clock_.now());
  return {};
}

namespace {

OptionTable guard_option_table() {
  constexpr double kDay = 86400;
  OptionTable table;
  table.add(
      make_option("guard_deadline", OptionType::kDuration,
                  "Longest time for one call, where the caller does not ask for less; 0 is none",
                  "0", 0, kDay));
  table.add(
      make_option("guard_failures", OptionType::kInteger,
                  "Failures in a row after which the store is left alone; one call that sees no "
                  "answer to anything until its deadline is enough",
                  "5", 1, 1e6));
  table.add(
      make_option("guard_backoff", OptionType::kDuration,
                  "How long it is left alone before it is tried again; doubles each time that "
                  "fails",
                  "1s", 0.001, kDay));
  table.add(make_option("guard_backoff_max", OptionType::kDuration, "Longest such time", "30s",
                        0.001, kDay));
  table.add(make_option("guard_probes", OptionType::kInteger,
                        "Calls that must succeed then, and no more than these are let through", "1",
                        1, 1000));
  return table;
}

Result<GuardOptions> read_guard_options(const StoreUrl& url) {
  GuardOptions options;
  options.deadline = url.options.get_duration("guard_deadline");
  options.breaker.failures = static_cast<uint32_t>(url.options.get_integer("guard_failures"));
  options.breaker.window = kWindow;
  options.breaker.failure_share = kFailureShare;
  options.breaker.backoff = url.options.get_duration("guard_backoff");
  options.breaker.backoff_max = url.options.get_duration("guard_backoff_max");
  options.breaker.probes = static_cast<uint32_t>(url.options.get_integer("guard_probes"));
  if (options.breaker.backoff > options.breaker.backoff_max) {
    return Error(Code::kInvalid, "store URL '" + url.text + "': guard_backoff is " +
                                     format_duration(options.breaker.backoff) +
                                     ", more than guard_backoff_max, which is " +
                                     format_duration(options.breaker.backoff_max) +
                                     "; give both, the smaller one as guard_backoff");
  }
  return options;
}

}  // namespace

void register_guard_store(StoreRegistry& registry) {
  StoreWrapperInfo info;
  info.name = "guard";
  info.summary = "Gives every call a deadline and leaves a store alone that does not keep it";
  info.options = guard_option_table();
  info.wrap = [](std::unique_ptr<Store> inner, const StoreUrl& url,
                 const StoreContext& context) -> Result<std::unique_ptr<Store>> {
    TIERCEL_TRY_ASSIGN(const GuardOptions options, read_guard_options(url));
    TIERCEL_TRY_ASSIGN(std::unique_ptr<GuardStore> store,
                       GuardStore::create(std::move(inner), options, context.clock));
    return std::unique_ptr<Store>(std::move(store));
  };
  registry.add_wrapper(std::move(info));
}

}  // namespace tiercel
