// SPDX-License-Identifier: Apache-2.0
#include "transfer/timed_data_plane.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/breaker.h"
#include "transfer/fifo.h"
#include "transfer/stored_blocks.h"

namespace tiercel {
namespace {

constexpr uint64_t kQuestionBytes = 64;
// A clear makes records invalid and is over in no time.
constexpr LinkSpeed kInstantly{Duration(0), 1e18, 1};

constexpr bool uses_store(OpKind kind) {
  return kind == OpKind::kStoreGet || kind == OpKind::kStorePut || kind == OpKind::kStoreExists ||
         kind == OpKind::kStoreRemove;
}

struct Flight {
  BlockOp op;
  Code code = Code::kOk;
  TimePoint end;  // of the operation
  // Of the last operation of a submission to the store: what becomes of all of it.
  std::optional<Breaker::Ticket> ticket = std::nullopt;
  uint64_t answers_before = 0;  // of the store, when it was submitted
  bool is_late = false;         // its event is that of its deadline, and it ends later
};

struct Event {
  TimePoint due;
  uint64_t sequence = 0;  // makes the order of equal times definite
  uint32_t flight = 0;
  // For a heap with the earliest at the top.
  friend bool operator<(const Event& a, const Event& b) {
    return a.due != b.due ? a.due > b.due : a.sequence > b.sequence;
  }
};

class VirtualDataPlane final : public TimedDataPlane {
 public:
  VirtualDataPlane(const TimedDataPlaneOptions& options, const Clock& clock)
      : options_(options),
        clock_(clock),
        breaker_(BreakerOptions{}, clock),
        links_{TimedLink(options.load),
               TimedLink(options.save),
               TimedLink(options.store_get, options.store_stall),
               TimedLink(options.store_put, options.store_stall),
               TimedLink(options.store_question, options.store_stall),
               TimedLink(options.store_question, options.store_stall),
               TimedLink(options.disk_get),
               TimedLink(options.disk_put),
               TimedLink(kInstantly)} {}

  uint32_t rank_count() const override { return 1; }
  size_t submit_capacity() const override {
    return closed_ ? 0 : options_.ops_in_flight_max - in_flight_;
  }

  bool submit(std::span<const BlockOp> ops) override {
    if (closed_ || ops.size() > submit_capacity()) return false;
    if (ops.empty()) return true;
    // A job is one call of the store.
    const bool asks_store = uses_store(ops.front().kind);
    std::optional<Breaker::Ticket> ticket;
    if (asks_store && options_.with_store) ticket = breaker_.admit();
    for (const BlockOp& op : ops) {
      ++in_flight_;
      if (asks_store && !ticket) {
        push(clock_.now(), {.op = op, .code = Code::kUnavailable, .end = clock_.now()});
      } else {
        launch(op, &op == &ops.back() ? ticket : std::nullopt);
      }
    }
    return true;
  }

  size_t poll(std::span<Completion> out) override {
    const TimePoint now = clock_.now();
    size_t count = 0;
    while (count < out.size() && !events_.empty() && events_.front().due <= now) {
      std::pop_heap(events_.begin(), events_.end());
      const Event event = events_.back();
      events_.pop_back();
      Flight& flight = flights_[event.flight];
      if (flight.is_late) {
        pass_deadline(event.flight);
        continue;
      }
      out[count++] = finish(flight);
      free_flights_.push_back(event.flight);
      --in_flight_;
    }
    return count;
  }

  int completion_fd() const override { return -1; }

  RankStats stats(uint32_t) const override {
    RankStats stats = stats_;
    if (options_.with_store) {
      stats.store.opened = breaker_.counters().opened;
      stats.store.refused = breaker_.counters().refused;
      switch (breaker_.state()) {
        case BreakerState::kClosed:
          stats.store.condition = StoreCondition::kUp;
          break;
        case BreakerState::kOpen:
          stats.store.condition = StoreCondition::kOpen;
          break;
        case BreakerState::kHalfOpen:
          stats.store.condition = StoreCondition::kProbing;
          break;
      }
      stats.store.cause = breaker_.cause();
    }
    return stats;
  }

  // Nothing touches any memory anyway.
  Status close(TimePoint) override {
    closed_ = true;
    return {};
  }

  TimePoint next_due() const override {
    return events_.empty() ? kNoDeadline : std::max(events_.front().due, clock_.now());
  }
  const TimedLink& link(OpKind kind) const override { return links_[static_cast<size_t>(kind)]; }
  bool store_has(const BlockKey& key, GroupId group) const override {
    return stored_.contains(key, group);
  }

 private:
  uint64_t bytes_of(const BlockOp& op) const {
    if (op.kind == OpKind::kStoreExists || op.kind == OpKind::kStoreRemove) return kQuestionBytes;
    return op.kind == OpKind::kDiskClear ? 0 : options_.block_bytes[op.group.value()];
  }

  void launch(const BlockOp& op, const std::optional<Breaker::Ticket>& ticket) {
    const TimePoint now = clock_.now();
    const TimePoint deadline{Duration(op.deadline_ns)};
    Flight flight{.op = op, .end = now, .ticket = ticket, .answers_before = store_answers_};
    TimedLink& way = links_[static_cast<size_t>(op.kind)];
    if (way.next_begin(now) >= deadline) {
      flight.code = Code::kTimeout;
      flight.end = std::max(now, deadline);
      flight.is_late = ticket.has_value();
      push(flight.end, flight);
      return;
    }
    flight.end = way.add(now, bytes_of(op));
    if (flight.end > deadline) flight.code = Code::kTimeout;
    flight.is_late = ticket && flight.end > deadline;
    push(flight.is_late ? deadline : flight.end, flight);
  }

  void push(TimePoint due, const Flight& flight) {
    uint32_t index = 0;
    if (free_flights_.empty()) {
      index = static_cast<uint32_t>(flights_.size());
      flights_.push_back(flight);
    } else {
      index = free_flights_.back();
      free_flights_.pop_back();
      flights_[index] = flight;
    }
    push_event(due, index);
  }

  void push_event(TimePoint due, uint32_t flight) {
    if (due == kNoDeadline) return;  // it never ends, and stays in flight
    events_.push_back({due, next_sequence_++, flight});
    std::push_heap(events_.begin(), events_.end());
  }

  void pass_deadline(uint32_t index) {
    Flight& flight = flights_[index];
    if (store_answers_ == flight.answers_before) {
      breaker_.trip(*flight.ticket, Code::kTimeout, "no answer to anything until a deadline");
    } else {
      breaker_.failed(*flight.ticket, Code::kTimeout);
    }
    flight.is_late = false;
    flight.ticket.reset();
    push_event(flight.end, index);
  }

  Completion finish(Flight& flight) {
    const BlockOp& op = flight.op;
    if (flight.code == Code::kOk) flight.code = execute(op);
    if (uses_store(op.kind) && flight.code != Code::kUnavailable) ++store_answers_;
    if (flight.ticket) breaker_.succeeded(*flight.ticket);
    PathStats& path = stats_.paths[static_cast<size_t>(op.kind)];
    ++path.ops;
    if (flight.code == Code::kOk) {
      path.bytes += bytes_of(op);
    } else if (flight.code != Code::kNotFound) {
      ++path.failed;
    }
    return {.job = op.job, .item = op.item, .rank = 0, .code = flight.code};
  }

  Code execute(const BlockOp& op) {
    switch (op.kind) {
      case OpKind::kStoreGet:
      case OpKind::kStoreExists:
        return stored_.contains(op.key, op.group) ? Code::kOk : Code::kNotFound;
      case OpKind::kStorePut:
        stored_.insert(op.key, op.group);
        return Code::kOk;
      case OpKind::kStoreRemove:
        stored_.erase(op.key, op.group);
        return Code::kOk;
      case OpKind::kLoad:
      case OpKind::kSave:
      case OpKind::kDiskGet:
      case OpKind::kDiskPut:
      case OpKind::kDiskClear:
        return Code::kOk;
    }
    return Code::kInvalid;
  }

  const TimedDataPlaneOptions options_;
  const Clock& clock_;
  Breaker breaker_;
  std::array<TimedLink, kOpKindCount> links_;
  StoredBlocks stored_;
  std::vector<Flight> flights_;  // bounded by ops_in_flight_max, as the next two
  std::vector<uint32_t> free_flights_;
  std::vector<Event> events_;  // heap
  size_t in_flight_ = 0;
  uint64_t store_answers_ = 0;  // ever
  uint64_t next_sequence_ = 0;
  RankStats stats_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<TimedDataPlane> TimedDataPlane::create(const TimedDataPlaneOptions& options,
                                                       const Clock& clock) {
  TIERCEL_ASSERT(!options.block_bytes.empty(), "there is at least one group");
  return std::make_unique<VirtualDataPlane>(options, clock);
}

}  // namespace tiercel
