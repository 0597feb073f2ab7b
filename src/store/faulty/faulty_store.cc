// SPDX-License-Identifier: Apache-2.0
#include "store/faulty/faulty_store.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "base/assert.h"
#include "store/registry.h"
#include "store/store_items.h"

namespace tiercel {
namespace {

// Requests in flight or not yet polled; more is kBusy. Dropped ones do not count: they never end.
constexpr size_t kRequestsMax = 4096;

// The item cut to its first `bytes` bytes.
StorePutItem head_of(StorePutItem item, size_t bytes) {
  for (auto& span : item.spans) {
    span = span.first(std::min(span.size(), bytes));
    bytes -= span.size();
  }
  return item;
}

// The byte at `position` of the whole item.
std::byte& byte_at(const StoreGetItem& item, size_t position) {
  size_t i = 0;
  while (position >= item.spans[i].size()) position -= item.spans[i++].size();
  return item.spans[i][position];
}

void zero_from(const StoreGetItem& item, size_t position) {
  for (const auto& span : item.spans) {
    const size_t kept = std::min(span.size(), position);
    if (kept < span.size()) std::memset(span.data() + kept, 0, span.size() - kept);
    position -= kept;
  }
}

// The items that reach the inner store, and where they stand in the answer; the others are
// answered.
template <typename Item>
std::vector<Item> divide(std::span<const Item> items, const FaultPlan& plan,
                         std::vector<size_t>* item_of_inner, std::vector<Code>* codes) {
  std::vector<Item> remaining;
  codes->resize(items.size(), Code::kOk);
  for (size_t i = 0; i < items.size(); ++i) {
    const ItemFault& fault = plan.items[i];
    (*codes)[i] = fault.injected;
    if (fault.injected != Code::kOk) continue;
    item_of_inner->push_back(i);
    remaining.push_back(items[i]);
  }
  return remaining;
}

}  // namespace

Result<std::unique_ptr<FaultyStore>> FaultyStore::create(std::unique_ptr<Store> inner,
                                                         const FaultOptions& options,
                                                         const Clock& clock) {
  TIERCEL_TRY_ASSIGN(WakeUp wake_up, WakeUp::create(inner->completion_fd()));
  return std::make_unique<FaultyStore>(std::move(inner), options, clock, std::move(wake_up));
}

FaultyStore::FaultyStore(std::unique_ptr<Store> inner, const FaultOptions& options,
                         const Clock& clock, WakeUp wake_up)
    : wake_up_(std::move(wake_up)),
      inner_(std::move(inner)),
      options_(options),
      clock_(clock),
      random_(options.seed) {}

Status FaultyStore::accepts() const {
  if (closed_) return Error(Code::kUnavailable, "the faulty store is closed");
  const size_t count = requests_.size() + ready_.size();
  if (count >= kRequestsMax) {
    return Error(Code::kBusy, std::to_string(count) +
                                  " requests of the faulty store are in flight or not yet polled; "
                                  "poll them first");
  }
  return {};
}

FaultPlan FaultyStore::draw(FaultTarget target, size_t items, TimePoint deadline) {
  FaultPlan plan = draw_fault_plan(options_, target, items, random_);
  if (!has_passed(deadline, clock_.now())) return plan;
  FaultPlan harmless;
  harmless.items.resize(items);
  return harmless;
}

Result<StoreRequestId> FaultyStore::submit_exists(std::span<const ObjectKey> keys,
                                                  TimePoint deadline) {
  TIERCEL_TRY(accepts());
  Request request;
  request.plan = draw(FaultTarget::kOther, keys.size(), deadline);
  request.batch = ExistsBatch{divide(keys, request.plan, &request.item_of_inner, &request.codes)};
  return start(std::move(request), deadline);
}

Result<StoreRequestId> FaultyStore::submit_remove(std::span<const ObjectKey> keys,
                                                  TimePoint deadline) {
  TIERCEL_TRY(accepts());
  Request request;
  request.plan = draw(FaultTarget::kOther, keys.size(), deadline);
  request.batch = RemoveBatch{divide(keys, request.plan, &request.item_of_inner, &request.codes)};
  return start(std::move(request), deadline);
}

Result<StoreRequestId> FaultyStore::submit_get(std::span<const StoreGetItem> items,
                                               TimePoint deadline) {
  TIERCEL_TRY(accepts());
  Request request;
  request.plan = draw(FaultTarget::kGet, items.size(), deadline);
  request.batch = GetBatch{divide(items, request.plan, &request.item_of_inner, &request.codes)};
  return start(std::move(request), deadline);
}

Result<StoreRequestId> FaultyStore::submit_put(std::span<const StorePutItem> items,
                                               TimePoint deadline) {
  TIERCEL_TRY(accepts());
  Request request;
  request.plan = draw(FaultTarget::kPut, items.size(), deadline);
  PutBatch batch{divide(items, request.plan, &request.item_of_inner, &request.codes)};
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const ItemFault& fault = request.plan.items[request.item_of_inner[i]];
    const size_t bytes = batch.items[i].total_bytes();
    if (fault.truncate && bytes > 1) {
      batch.items[i] = head_of(batch.items[i], 1 + fault.position % (bytes - 1));
    }
  }
  request.batch = std::move(batch);
  return start(std::move(request), deadline);
}

Result<StoreRequestId> FaultyStore::submit_clear(std::string_view prefix, TimePoint deadline) {
  TIERCEL_TRY(accepts());
  if (prefix.empty()) {
    return Error(Code::kInvalid,
                 "clear of a faulty store with an empty prefix; name at least one namespace");
  }
  Request request;
  request.plan = draw(FaultTarget::kOther, 1, deadline);
  request.codes = {request.plan.items[0].injected};
  if (request.codes[0] == Code::kOk) request.item_of_inner = {0};
  request.batch = ClearBatch{std::string(prefix)};
  return start(std::move(request), deadline);
}

Result<StoreRequestId> FaultyStore::start(Request request, TimePoint deadline) {
  const StoreRequestId id(last_id_ + 1);
  request.is_answered = request.item_of_inner.empty() || !request.plan.carried_out;
  if (request.plan.delay_kind != DelayKind::kNone) {
    request.due = clock_.now() + request.plan.delay;
    request.is_due = false;
  }
  if (!request.is_answered && request.plan.delay_kind != DelayKind::kExecution) {
    TIERCEL_TRY_ASSIGN(const StoreRequestId inner_id, ask_inner(request, deadline));
    by_inner_id_.emplace(inner_id, id);
  }
  last_id_ = id.value();
  if (!request.is_due) due_.emplace(request.due, id);
  requests_.emplace(id, std::move(request));
  finish_if_done(id);
  take_inner_answers();
  arm_timer();
  return id;
}

Result<StoreRequestId> FaultyStore::ask_inner(const Request& request, TimePoint deadline) {
  struct Ask {
    Store& store;
    TimePoint deadline;
    Result<StoreRequestId> operator()(const ExistsBatch& batch) {
      return store.submit_exists(batch.keys, deadline);
    }
    Result<StoreRequestId> operator()(const RemoveBatch& batch) {
      return store.submit_remove(batch.keys, deadline);
    }
    Result<StoreRequestId> operator()(const GetBatch& batch) {
      return store.submit_get(batch.items, deadline);
    }
    Result<StoreRequestId> operator()(const PutBatch& batch) {
      return store.submit_put(batch.items, deadline);
    }
    Result<StoreRequestId> operator()(const ClearBatch& batch) {
      return store.submit_clear(batch.prefix, deadline);
    }
  };
  return std::visit(Ask{*inner_, deadline}, request.batch);
}

void FaultyStore::start_delayed(StoreRequestId id) {
  Request& request = requests_.at(id);
  // Without a deadline: a slow service does not know the caller's, so its bytes arrive late.
  const Result<StoreRequestId> inner_id = ask_inner(request, kNoDeadline);
  if (inner_id) {
    by_inner_id_.emplace(*inner_id, id);
    return;
  }
  for (size_t item : request.item_of_inner) request.codes[item] = inner_id.code();
  request.is_answered = true;
}

void FaultyStore::take_inner_answers() {
  inner_completions_.clear();
  inner_->poll(&inner_completions_);
  for (const StoreCompletion& completion : inner_completions_) {
    const auto entry = by_inner_id_.find(completion.id);
    TIERCEL_ASSERT(entry != by_inner_id_.end(), "the inner store completed what it was not asked");
    const StoreRequestId id = entry->second;
    by_inner_id_.erase(entry);
    Request& request = requests_.at(id);
    TIERCEL_ASSERT(completion.codes.size() == request.item_of_inner.size(),
                   "the inner store did not answer every item");
    for (size_t i = 0; i < completion.codes.size(); ++i) {
      request.codes[request.item_of_inner[i]] = completion.codes[i];
      if (completion.codes[i] == Code::kOk) damage_result(request, i);
    }
    request.is_answered = true;
    finish_if_done(id);
  }
}

void FaultyStore::damage_result(const Request& request, size_t inner_item) const {
  const auto* gets = std::get_if<GetBatch>(&request.batch);
  if (gets == nullptr) return;
  const StoreGetItem& item = gets->items[inner_item];
  const ItemFault& fault = request.plan.items[request.item_of_inner[inner_item]];
  const size_t bytes = item.total_bytes();
  if (fault.truncate) zero_from(item, fault.position % bytes);
  if (fault.corrupt) {
    const uint64_t bit = fault.position % (bytes * 8);
    byte_at(item, bit / 8) ^= std::byte{1} << (bit % 8);
  }
}

void FaultyStore::finish_if_done(StoreRequestId id) {
  const auto entry = requests_.find(id);
  Request& request = entry->second;
  if (!request.is_due || !request.is_answered) return;
  const bool is_dropped = request.plan.drop;
  if (is_dropped) ++dropped_ever_;
  if (is_dropped && !closed_) {
    dropped_.emplace(id, request.codes.size());
  } else {
    if (is_dropped) {
      std::fill(request.codes.begin(), request.codes.end(), Code::kUnavailable);
    } else if (request.plan.lost_answer) {
      injected_failures_ += static_cast<uint64_t>(
          std::count_if(request.codes.begin(), request.codes.end(),
                        [](Code code) { return code == Code::kOk || code == Code::kNotFound; }));
      std::fill(request.codes.begin(), request.codes.end(), Code::kTimeout);
    }
    complete(id, std::move(request.codes));
  }
  for (const ItemFault& item : request.plan.items) {
    if (item.injected != Code::kOk) ++injected_failures_;
  }
  requests_.erase(entry);
}

void FaultyStore::complete(StoreRequestId id, std::vector<Code> codes) {
  if (ready_.empty()) wake_up_.raise();
  ready_.push_back({id, std::move(codes)});
}

void FaultyStore::take_due(TimePoint now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const StoreRequestId id = due_.begin()->second;
    due_.erase(due_.begin());
    Request& request = requests_.at(id);
    request.is_due = true;
    if (request.plan.delay_kind == DelayKind::kExecution && !request.is_answered) {
      start_delayed(id);
    }
    finish_if_done(id);
  }
}

size_t FaultyStore::poll(std::vector<StoreCompletion>* completions) {
  take_due(clock_.now());
  take_inner_answers();
  arm_timer();
  const size_t count = ready_.size();
  if (count == 0) return 0;
  wake_up_.lower();
  std::move(ready_.begin(), ready_.end(), std::back_inserter(*completions));
  ready_.clear();
  return count;
}

void FaultyStore::arm_timer() {
  if (due_.empty()) {
    wake_up_.clear_timer();
  } else {
    wake_up_.set_timer(due_.begin()->first - clock_.now());
  }
}

Status FaultyStore::register_memory(std::span<std::byte> memory) {
  return inner_->register_memory(memory);
}

Status FaultyStore::register_shared_memory(std::span<std::byte> memory, int memfd) {
  return inner_->register_shared_memory(memory, memfd);
}

StoreStats FaultyStore::stats() const {
  StoreStats stats = inner_->stats();
  stats.failures += injected_failures_;
  return stats;
}

Status FaultyStore::close(TimePoint deadline) {
  closed_ = true;
  due_.clear();
  wake_up_.clear_timer();
  std::vector<StoreRequestId> open;
  for (auto& [id, request] : requests_) {
    open.push_back(id);
    if (request.plan.delay_kind == DelayKind::kExecution && !request.is_due &&
        !request.is_answered) {
      for (size_t item : request.item_of_inner) request.codes[item] = Code::kUnavailable;
      request.is_answered = true;
    }
    request.is_due = true;
  }
  for (StoreRequestId id : open) finish_if_done(id);
  const Status closed = inner_->close(deadline);
  // What the inner store still holds on to completes by a later poll().
  take_inner_answers();
  for (const auto& [id, items] : dropped_) {
    complete(id, std::vector<Code>(items, Code::kUnavailable));
  }
  dropped_.clear();
  return closed;
}

void register_faulty_store(StoreRegistry& registry) {
  StoreWrapperInfo info;
  info.name = "faulty";
  info.summary = "Delays, fails, loses and damages by seed, for tests";
  info.options = fault_option_table();
  info.wrap = [](std::unique_ptr<Store> inner, const StoreUrl& url,
                 const StoreContext& context) -> Result<std::unique_ptr<Store>> {
    const Result<FaultOptions> options = read_fault_options(url.options);
    if (!options) {
      return Error(options.code(), "store URL '" + url.text + "': " + options.error().message());
    }
    TIERCEL_TRY_ASSIGN(std::unique_ptr<FaultyStore> store,
                       FaultyStore::create(std::move(inner), *options, context.clock));
    return std::unique_ptr<Store>(std::move(store));
  };
  registry.add_wrapper(std::move(info));
}

}  // namespace tiercel
