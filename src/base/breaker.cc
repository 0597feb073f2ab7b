// SPDX-License-Identifier: Apache-2.0
#include "base/breaker.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

// "5 timeouts", "1 busy answer"
std::string counted(uint32_t count, Code code) {
  if (code == Code::kTimeout) return fmt::format("{} timeout{}", count, count == 1 ? "" : "s");
  return fmt::format("{} '{}' answer{}", count, to_string(code), count == 1 ? "" : "s");
}

}  // namespace

std::string_view to_string(BreakerState state) {
  switch (state) {
    case BreakerState::kClosed:
      return "closed";
    case BreakerState::kOpen:
      return "open";
    case BreakerState::kHalfOpen:
      return "half-open";
  }
  return "unknown";
}

Breaker::Breaker(const BreakerOptions& options, const Clock& clock)
    : options_(options), clock_(clock), since_(clock.now()) {
  TIERCEL_ASSERT(options.failures > 0 && options.probes > 0, "a breaker counts to at least one");
  TIERCEL_ASSERT(options.failure_share > 0, "a share of nothing would always be reached");
  TIERCEL_ASSERT(options.backoff > Duration(0) && options.backoff_max >= options.backoff,
                 "a back-off grows from more than nothing to its maximum");
  outcomes_.reserve(options.window);
}

void Breaker::change(BreakerState state) {
  state_ = state;
  since_ = clock_.now();
  ++period_;
  failures_in_a_row_ = 0;
  outcomes_.clear();
  oldest_ = 0;
  window_failures_ = 0;
  probes_out_ = 0;
  probes_succeeded_ = 0;
}

void Breaker::open(Code cause, std::string reason) {
  backoff_ = backoff_ == Duration(0)               ? options_.backoff
             : backoff_ > options_.backoff_max / 2 ? options_.backoff_max
                                                   : backoff_ * 2;
  reason_ = std::move(reason);
  cause_ = cause;
  ++counters_.opened;
  change(BreakerState::kOpen);
}

void Breaker::advance() {
  if (state_ == BreakerState::kOpen && clock_.now() - since_ >= backoff_) {
    change(BreakerState::kHalfOpen);
  }
  // A probe of which nobody tells would keep the breaker half-open for ever.
  if (state_ == BreakerState::kHalfOpen && probes_out_ > 0 &&
      clock_.now() - since_ >= options_.backoff_max) {
    open(Code::kTimeout,
         fmt::format("a probe did not come back within {}", format_duration(options_.backoff_max)));
  }
}

std::optional<Breaker::Ticket> Breaker::admit() {
  advance();
  const bool admits =
      state_ == BreakerState::kClosed ||
      (state_ == BreakerState::kHalfOpen && probes_out_ + probes_succeeded_ < options_.probes);
  if (!admits) {
    ++counters_.refused;
    return std::nullopt;
  }
  ++counters_.admitted;
  if (state_ == BreakerState::kHalfOpen) {
    // The wait for probes begins with the first of them, not with the time that nobody asked.
    if (probes_out_ == 0) since_ = clock_.now();
    ++counters_.probes;
    ++probes_out_;
  }
  return Ticket(period_);
}

void Breaker::note_outcome(bool is_failure) {
  if (options_.window == 0) return;
  if (outcomes_.size() < options_.window) {
    outcomes_.push_back(is_failure);
  } else {
    if (outcomes_[oldest_]) --window_failures_;
    outcomes_[oldest_] = is_failure;
    oldest_ = (oldest_ + 1) % options_.window;
  }
  if (is_failure) ++window_failures_;
}

void Breaker::count_in_a_row(Code code) {
  all_the_same_ = failures_in_a_row_ == 0 || (all_the_same_ && code == last_failure_);
  last_failure_ = code;
  ++failures_in_a_row_;
}

std::string Breaker::in_a_row_text() const {
  if (all_the_same_) return counted(failures_in_a_row_, last_failure_) + " in a row";
  return fmt::format("{} failures in a row, the last '{}'", failures_in_a_row_,
                     to_string(last_failure_));
}

void Breaker::succeeded(const Ticket& ticket) {
  ++counters_.succeeded;
  if (!is_current(ticket)) return;
  if (state_ == BreakerState::kHalfOpen) {
    --probes_out_;
    if (++probes_succeeded_ < options_.probes) return;
    change(BreakerState::kClosed);
    backoff_ = Duration(0);
    reason_.clear();
    cause_ = Code::kOk;
    return;
  }
  failures_in_a_row_ = 0;
  note_outcome(false);
}

void Breaker::failed(const Ticket& ticket, Code code) {
  ++counters_.failed;
  if (!is_current(ticket)) return;
  if (state_ == BreakerState::kHalfOpen) {
    open(code, fmt::format("the probe after {} ended in '{}'", format_duration(backoff_),
                           to_string(code)));
    return;
  }
  count_in_a_row(code);
  note_outcome(true);
  if (failures_in_a_row_ >= options_.failures) {
    open(code, in_a_row_text());
  } else if (options_.window > 0 && outcomes_.size() == options_.window &&
             window_failures_ >= options_.failure_share * options_.window) {
    open(code, fmt::format("{} of the last {} operations failed, the last '{}'", window_failures_,
                           options_.window, to_string(code)));
  }
}

void Breaker::abandoned(const Ticket& ticket) {
  if (is_current(ticket) && state_ == BreakerState::kHalfOpen) --probes_out_;
}

void Breaker::trip(const Ticket& ticket, Code code, std::string reason) {
  ++counters_.failed;
  if (is_current(ticket)) open(code, std::move(reason));
}

BreakerState Breaker::state() const {
  if (state_ == BreakerState::kOpen && clock_.now() - since_ >= backoff_) {
    return BreakerState::kHalfOpen;
  }
  return state_;
}

TimePoint Breaker::probe_at() const {
  return state() == BreakerState::kOpen ? since_ + backoff_ : kNoDeadline;
}

std::string Breaker::describe() const {
  switch (state()) {
    case BreakerState::kClosed:
      break;
    case BreakerState::kOpen:
      return fmt::format("open for {}: {}", format_duration(clock_.now() - since_), reason_);
    case BreakerState::kHalfOpen:
      return fmt::format("half-open: {} of {} probes came back; {}", probes_succeeded_,
                         options_.probes, reason_);
  }
  return "closed";
}

}  // namespace tiercel
