// SPDX-License-Identifier: Apache-2.0
//
// Breaker: stops asking a service that has failed, and finds out with a few probes when it is back.
//
// closed → open: after `failures` failures in a row, or when at least `failure_share` of the last
// `window` operations failed, or when the owner says so (trip).
// open → half-open: after a back-off, which doubles each time the probes fail, up to a maximum.
// half-open → closed: when `probes` operations have succeeded; → open as soon as one fails.
// There is no jitter: the same outcomes at the same times give the same states.
//
// Every admitted operation has a ticket, and its outcome is told once with it. What an operation
// says that was admitted before the last change of state is too old to move anything.
//
// Threads: thread-compatible (one at a time). Time: the injected clock; nothing happens by itself,
// whoever asks learns what the time has made of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

namespace tiercel {

struct BreakerOptions {
  uint32_t failures = 5;                       // in a row; at least 1
  uint32_t window = 0;                         // operations that the share looks at; 0: no share
  double failure_share = 1;                    // of a full window; more than 0
  Duration backoff = std::chrono::seconds(1);  // more than 0
  Duration backoff_max = std::chrono::seconds(30);  // at least `backoff`
  uint32_t probes = 1;  // at least 1; no more than these are out while half-open
};

enum class BreakerState : uint8_t { kClosed, kOpen, kHalfOpen };
// "closed", "open", "half-open"
std::string_view to_string(BreakerState state);

// Only rise. Outcomes count whether or not they still moved the state.
struct BreakerCounters {
  uint64_t admitted = 0, refused = 0;
  uint64_t succeeded = 0, failed = 0;
  uint64_t opened = 0;  // changes to open, from closed or from half-open
  uint64_t probes = 0;  // admitted while half-open
};

class Breaker {
 public:
  class Ticket {
   private:
    friend class Breaker;
    explicit Ticket(uint64_t period) : period_(period) {}
    uint64_t period_;
  };

  // Asserts on options out of range. `clock` outlives the breaker.
  Breaker(const BreakerOptions& options, const Clock& clock);

  // Nothing: refused, do not ask the service.
  std::optional<Ticket> admit();

  void succeeded(const Ticket& ticket);
  // `code` is for the reason.
  void failed(const Ticket& ticket, Code code);
  // The operation has ended without saying anything about the service. A probe may be sent instead.
  void abandoned(const Ticket& ticket);

  // Opens (again) at once for a reason of the owner's, such as "no answer for 50 ms"; not if the
  // ticket is too old.
  void trip(const Ticket& ticket, Code code, std::string reason);

  BreakerState state() const;
  // When an open breaker becomes half-open; kNoDeadline in every other state.
  TimePoint probe_at() const;
  // Why it opened last; empty if it never did, or has closed since.
  const std::string& reason() const { return reason_; }
  // The code behind the reason; kOk without one.
  Code cause() const { return cause_; }
  // "closed", "open for 2.1 s: 5 timeouts in a row",
  // "half-open: 0 of 1 probes came back; 5 timeouts in a row"
  std::string describe() const;
  const BreakerCounters& counters() const { return counters_; }

 private:
  void advance();
  bool is_current(const Ticket& ticket) const { return ticket.period_ == period_; }
  void change(BreakerState state);
  void open(Code cause, std::string reason);
  void note_outcome(bool is_failure);
  void count_in_a_row(Code code);
  std::string in_a_row_text() const;

  const BreakerOptions options_;
  const Clock& clock_;
  BreakerState state_ = BreakerState::kClosed;
  uint64_t period_ = 0;  // of constant state
  TimePoint since_;      // of the present state
  Duration backoff_{};   // of the present or last time open; 0: none since it was closed
  std::string reason_;
  Code cause_ = Code::kOk;
  // While closed.
  uint32_t failures_in_a_row_ = 0;
  bool all_the_same_ = true;  // of the failures in a row
  Code last_failure_ = Code::kOk;
  std::vector<bool> outcomes_;  // the last `window`, true for a failure; a ring once it is full
  size_t oldest_ = 0;
  uint32_t window_failures_ = 0;
  // While half-open.
  uint32_t probes_out_ = 0;
  uint32_t probes_succeeded_ = 0;

  BreakerCounters counters_;
};

}  // namespace tiercel
