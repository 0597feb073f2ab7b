// SPDX-License-Identifier: Apache-2.0
#include "transfer/simulated_data_plane.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/random.h"
#include "transfer/fifo.h"

namespace tiercel {
namespace {

// A worker whose store has something in flight is looked after this often: a store may have its own
// times.
constexpr Duration kStorePatience = std::chrono::milliseconds(1);
// Blocks of memory work per call; virtual time does not pass meanwhile.
constexpr uint32_t kMemoryOps = 64;
// Slots per rank of which one is chosen to be damaged.
constexpr size_t kRecentSlots = 64;

struct RecentSlot {
  SlotId slot;
  GroupId group;
};

// One operation on one rank, from submission to the arrival of its completion.
struct Flight {
  BlockOp op;
  uint64_t order = 0;  // of submission on its rank
  uint32_t rank = 0;
  Duration stall{0};                              // the rank stops before it runs
  Duration completion_delay{0};                   // after it ran
  std::optional<uint64_t> damage = std::nullopt;  // seed of the bit that flips before it runs
  bool fail = false;
  bool fail_after_run = false;
  bool used = true;
  bool arriving = false;  // it has ended with `code`, and only its completion is under way
  Code code = Code::kOk;
};

struct Event {
  TimePoint due;
  uint64_t sequence = 0;  // makes the order of equal times definite
  uint32_t flight = 0;

  // For a heap with the earliest event at the top.
  friend bool operator<(const Event& a, const Event& b) {
    return a.due != b.due ? a.due > b.due : a.sequence > b.sequence;
  }
};

struct Rank {
  std::unique_ptr<RankWorker> worker;
  TimePoint stalled_until{};
  TimePoint down_until{};  // its process has died, the next is not up yet
  uint64_t memory_epoch = 0;
  uint64_t memory_epoch_seen = 0;  // as of the last poll(), which is what notices
  size_t in_flight = 0;            // submitted and not yet polled
  uint64_t submitted = 0;
  uint64_t executed_order_max = 0;
  TimePoint disk_writes_due{};  // the latest of all puts to disk and clears
  TimePoint disk_clear_due{};   // of the latest clear
  std::array<RecentSlot, kRecentSlots> recent{};
  uint64_t recent_count = 0;  // ever; the last kRecentSlots are kept
};

// A completion that waits for poll(), with the memory epoch of its rank when it came.
struct Arrival {
  Completion completion;
  uint64_t memory_epoch = 0;
};

class SeededDataPlane final : public SimulatedDataPlane {
 public:
  SeededDataPlane(std::vector<std::unique_ptr<RankWorker>> workers, ManualClock& clock,
                  uint64_t seed, const SimulatedFaults& faults, uint32_t ops_in_flight_max)
      : clock_(clock), random_(seed), faults_(faults), ops_in_flight_max_(ops_in_flight_max) {
    ranks_.resize(workers.size());
    for (size_t i = 0; i < workers.size(); ++i) ranks_[i].worker = std::move(workers[i]);
  }

  uint32_t rank_count() const override { return static_cast<uint32_t>(ranks_.size()); }

  size_t submit_capacity() const override {
    if (closing_) return 0;
    size_t in_flight = 0;
    for (const Rank& rank : ranks_) in_flight = std::max(in_flight, rank.in_flight);
    return ops_in_flight_max_ - in_flight;
  }

  bool submit(std::span<const BlockOp> ops) override {
    if (closing_ || ops.size() > submit_capacity()) return false;
    for (const BlockOp& op : ops) {
      for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        if (concerns(op, rank)) launch(op, rank);
      }
    }
    return true;
  }

  void run_due() override {
    const TimePoint now = clock_.now();
    for (uint32_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].stalled_until <= now) run_worker(i);
    }
    while (!events_.empty() && events_.front().due <= now) {
      std::pop_heap(events_.begin(), events_.end());
      Event event = events_.back();
      events_.pop_back();
      Flight& flight = flights_[event.flight];
      Rank& rank = ranks_[flight.rank];
      if (flight.stall > Duration::zero()) {
        ++counts_.stalls;
        rank.stalled_until =
            std::max(rank.stalled_until, now + std::exchange(flight.stall, Duration::zero()));
      }
      if (rank.stalled_until > now) {
        event.due = rank.stalled_until;
        push_event(event);
      } else if (flight.arriving) {
        arrive(event.flight);
      } else {
        execute(event.flight);
      }
    }
  }

  TimePoint next_due() const override {
    const TimePoint now = clock_.now();
    TimePoint due = events_.empty() ? kNoDeadline : events_.front().due;
    for (const Rank& rank : ranks_) {
      if (rank.worker->ops_in_flight() == 0) continue;
      due = std::min(due, std::max(now + kStorePatience, rank.stalled_until));
    }
    return due == kNoDeadline ? due : std::max(due, now);
  }

  size_t poll(std::span<Completion> out) override {
    for (Rank& rank : ranks_) rank.memory_epoch_seen = rank.memory_epoch;
    const size_t count = std::min(out.size(), arrived_.size());
    for (size_t i = 0; i < count; ++i) {
      const Arrival& arrival = arrived_[i];
      Rank& rank = ranks_[arrival.completion.rank];
      --rank.in_flight;
      out[i] = arrival.completion;
      // What it says was true of the memory that is gone.
      if (arrival.memory_epoch != rank.memory_epoch) out[i].code = Code::kUnavailable;
    }
    arrived_.pop(count);
    return count;
  }

  int completion_fd() const override { return -1; }

  RankStats stats(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < ranks_.size(), "rank is out of range");
    return ranks_[rank].worker->stats();
  }

  ReasonText store_reason(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < ranks_.size(), "rank is out of range");
    return ranks_[rank].worker->store_reason().text();
  }

  uint64_t memory_epoch(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < ranks_.size(), "rank is out of range");
    return ranks_[rank].memory_epoch_seen;
  }

  void replace_rank(uint32_t index, std::unique_ptr<RankWorker> successor,
                    TimePoint up_at) override {
    TIERCEL_ASSERT(index < ranks_.size(), "rank is out of range");
    Rank& rank = ranks_[index];
    const std::span<std::byte> memory = rank.worker->host_memory();
    rank.worker = nullptr;  // its store lets go of the memory
    std::fill(memory.begin(), memory.end(), std::byte{0xa5});
    rank.worker = std::move(successor);
    rank.stalled_until = {};
    rank.down_until = up_at;
    ++rank.memory_epoch;
    ++counts_.replaced_ranks;
    for (uint32_t i = 0; i < flights_.size(); ++i) {
      if (!flights_[i].used || flights_[i].rank != index) continue;
      // A completion that is under way was sent before.
      if (flights_[i].arriving && flights_[i].code != Code::kOk) continue;
      flights_[i].code = Code::kUnavailable;
      arrive(i);
    }
    std::erase_if(events_, [this](const Event& event) { return !flights_[event.flight].used; });
    std::make_heap(events_.begin(), events_.end());
  }

  void set_faults(const SimulatedFaults& faults) override { faults_ = faults; }
  SimulatedCounts counts() const override { return counts_; }

  // Nothing waits for its time any more: what has not run is cancelled, what has run arrives.
  Status close(TimePoint deadline) override {
    closing_ = true;
    std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) { return b < a; });
    for (const Event& event : events_) {
      Flight& flight = flights_[event.flight];
      if (!flight.arriving) flight.code = Code::kCancelled;
      arrive(event.flight);
    }
    events_.clear();
    Status first_failure;
    for (uint32_t i = 0; i < ranks_.size(); ++i) {
      Status status = ranks_[i].worker->close(deadline);
      take_completions(i);
      if (!status && first_failure) first_failure = std::move(status);
    }
    return first_failure;
  }

 private:
  // Uniform in [low, high]; low if the range is empty.
  Duration between(Duration low, Duration high) {
    const uint64_t span = high > low ? static_cast<uint64_t>((high - low).count()) : 0;
    return low + Duration(static_cast<int64_t>(random_.below(span + 1)));
  }

  // Decides the whole fate of one operation. Always draws the same number of choices, so that
  // changing the probability of one fault leaves the times of the others alone.
  void launch(const BlockOp& op, uint32_t rank_index) {
    Rank& rank = ranks_[rank_index];
    Flight flight{.op = op, .order = rank.submitted++, .rank = rank_index};

    const Duration usual = between(faults_.delay_min, faults_.delay_max);
    const Duration slow = between(faults_.delay_max, std::max(faults_.delay_max, faults_.slow_max));
    const Duration late = between(Duration(1), faults_.slow_max);
    const Duration stall = between(Duration(1), faults_.stall_max);
    const uint64_t damage = random_.next();
    const bool is_slow = random_.chance(faults_.slow);
    if (random_.chance(faults_.late_completion)) flight.completion_delay = late;
    flight.fail = random_.chance(faults_.fail);
    flight.fail_after_run = random_.chance(faults_.fail_after_run);
    if (random_.chance(faults_.corrupt_slot)) flight.damage = damage;
    if (random_.chance(faults_.stall)) flight.stall = stall;
    if (is_slow) ++counts_.slow;
    // It goes to the process that has died.
    if (rank.memory_epoch_seen != rank.memory_epoch) flight.fail = true;

    ++rank.in_flight;
    note_slot(rank, op);
    const uint32_t index = new_flight(flight);
    push_event({keep_order_of_clears(rank, op.kind, clock_.now() + (is_slow ? slow : usual)),
                next_sequence_++, index});
  }

  // A rank takes operations in order. Most may trade places, but a clear keeps its own among the
  // puts to disk: what it makes invalid is what was put before it.
  static TimePoint keep_order_of_clears(Rank& rank, OpKind kind, TimePoint due) {
    if (kind != OpKind::kDiskClear && kind != OpKind::kDiskPut) return due;
    due = std::max(due, kind == OpKind::kDiskClear ? rank.disk_writes_due : rank.disk_clear_due);
    rank.disk_writes_due = std::max(rank.disk_writes_due, due);
    if (kind == OpKind::kDiskClear) rank.disk_clear_due = due;
    return due;
  }

  uint32_t new_flight(const Flight& flight) {
    if (free_flights_.empty()) {
      flights_.push_back(flight);
      return static_cast<uint32_t>(flights_.size() - 1);
    }
    const uint32_t index = free_flights_.back();
    free_flights_.pop_back();
    flights_[index] = flight;
    return index;
  }

  void push_event(const Event& event) {
    events_.push_back(event);
    std::push_heap(events_.begin(), events_.end());
  }

  static void note_slot(Rank& rank, const BlockOp& op) {
    const SlotGeometry& geometry = rank.worker->geometry();
    if (!uses_slot(op.kind) || op.group.value() >= geometry.group_count()) return;
    if (!geometry.offset(op.slot, op.group, rank.worker->rank())) return;
    rank.recent[rank.recent_count++ % kRecentSlots] = {op.slot, op.group};
  }

  void execute(uint32_t index) {
    Flight& flight = flights_[index];
    Rank& rank = ranks_[flight.rank];
    if (flight.damage) damage_slot(rank, *flight.damage);
    if (rank.down_until > clock_.now()) {
      finish(index, Code::kUnavailable);
      return;
    }
    if (flight.fail) {
      ++counts_.failed;
      finish(index, Code::kUnavailable);
      return;
    }
    ++counts_.executed;
    if (flight.order < rank.executed_order_max) ++counts_.reordered;
    rank.executed_order_max = std::max(rank.executed_order_max, flight.order);
    // The worker sees the flight's number in place of the job: two operations may never be taken
    // for each other, whatever ids the control plane gave them.
    BlockOp op = flight.op;
    op.job = JobId(index);
    rank.worker->submit({&op, 1});
    run_worker(flight.rank);
  }

  // Flips one bit of the payload or the frame of a slot that was named lately.
  void damage_slot(Rank& rank, uint64_t seed) {
    const uint64_t known = std::min<uint64_t>(rank.recent_count, kRecentSlots);
    if (known == 0) return;
    Random choice(seed);
    const RecentSlot target = rank.recent[choice.below(known)];
    const SlotGeometry& geometry = rank.worker->geometry();
    const uint32_t number = rank.worker->rank();
    const uint64_t payload_bytes = geometry.payload_bytes(target.group, number);
    const uint64_t byte = choice.below(payload_bytes + kFrameBytes);
    const uint64_t offset = *geometry.offset(target.slot, target.group, number) + byte;
    rank.worker->host_memory()[offset] ^= std::byte{1} << choice.below(8);
    ++counts_.corrupted_slots;
  }

  void run_worker(uint32_t rank) {
    while (ranks_[rank].worker->progress(kMemoryOps)) take_completions(rank);
    take_completions(rank);
  }

  void take_completions(uint32_t rank) {
    std::array<Completion, 64> batch;
    size_t count = 0;
    do {
      count = ranks_[rank].worker->take(batch);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t index = static_cast<uint32_t>(batch[i].job.value());
        const bool fail = flights_[index].fail_after_run;
        if (fail) ++counts_.failed_after_run;
        finish(index, fail ? Code::kUnavailable : batch[i].code);
      }
    } while (count == batch.size());
  }

  // The operation has let go; its completion arrives now or later.
  void finish(uint32_t index, Code code) {
    Flight& flight = flights_[index];
    flight.code = code;
    if (flight.completion_delay == Duration::zero() || closing_) {
      arrive(index);
      return;
    }
    ++counts_.late_completions;
    flight.arriving = true;
    push_event({clock_.now() + flight.completion_delay, next_sequence_++, index});
  }

  void arrive(uint32_t index) {
    Flight& flight = flights_[index];
    flight.used = false;
    arrived_.push({{.job = flight.op.job,
                    .item = flight.op.item,
                    .rank = static_cast<uint16_t>(flight.rank),
                    .code = flight.code},
                   ranks_[flight.rank].memory_epoch});
    free_flights_.push_back(index);
  }

  ManualClock& clock_;
  Random random_;
  SimulatedFaults faults_;
  const size_t ops_in_flight_max_;
  std::vector<Rank> ranks_;
  // Bounded by ops_in_flight_max × ranks, as all of these.
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_flights_;
  std::vector<Event> events_;  // heap
  Fifo<Arrival> arrived_;
  uint64_t next_sequence_ = 0;
  SimulatedCounts counts_;
  bool closing_ = false;
};

Status check_probability(const char* name, double value) {
  if (value >= 0 && value <= 1) return {};
  return Error(Code::kInvalid, std::string("probability ") + name + " is " + std::to_string(value) +
                                   "; allowed: 0 to 1");
}

}  // namespace

Result<std::unique_ptr<SimulatedDataPlane>> SimulatedDataPlane::create(
    std::vector<std::unique_ptr<RankWorker>> workers, ManualClock& clock, uint64_t seed,
    const SimulatedFaults& faults, uint32_t ops_in_flight_max) {
  if (workers.empty() || workers.size() > kRankCountMax) {
    return Error(Code::kInvalid, std::to_string(workers.size()) + " rank workers; allowed: 1 to " +
                                     std::to_string(kRankCountMax));
  }
  if (ops_in_flight_max == 0) {
    return Error(Code::kInvalid, "ops_in_flight_max is 0; allowed: at least 1");
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i] || workers[i]->rank() != i) {
      return Error(Code::kInvalid, "rank worker " + std::to_string(i) +
                                       " is null or of another rank; pass one worker per rank, in "
                                       "order of rank");
    }
  }
  TIERCEL_TRY(check_probability("slow", faults.slow));
  TIERCEL_TRY(check_probability("late_completion", faults.late_completion));
  TIERCEL_TRY(check_probability("fail", faults.fail));
  TIERCEL_TRY(check_probability("fail_after_run", faults.fail_after_run));
  TIERCEL_TRY(check_probability("corrupt_slot", faults.corrupt_slot));
  TIERCEL_TRY(check_probability("stall", faults.stall));
  return std::unique_ptr<SimulatedDataPlane>(std::make_unique<SeededDataPlane>(
      std::move(workers), clock, seed, faults, ops_in_flight_max));
}

}  // namespace tiercel
