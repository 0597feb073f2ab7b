// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "base/assert.h"
#include "base/log_ring.h"
#include "base/thread.h"

namespace tiercel {

// Empties a ring into a sink.
class LogRingDrain {
 public:
  LogRingDrain(LogRing& ring, LogSink& sink) : ring_(ring), sink_(sink) {}

  void drain() {
    LogLine line;
    while (ring_.pop(line)) {
      if (line.dropped_before > 0) report_dropped(line.dropped_before);
      char* const begin = line.text.data();
      std::replace_if(
          begin, begin + line.bytes, [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, '?');
      write(line.level, line.view());
    }
  }

  void report_dropped(uint64_t count) {
    write(LogLevel::kWarning, "… " + std::to_string(count) + " lines dropped");
  }

 private:
  void write(LogLevel level, std::string_view text) {
    MutexLock lock(sink_.mutex_);
    sink_.write(level, text);
  }

  LogRing& ring_;
  LogSink& sink_;
};

namespace {

class NullLogger final : public Logger {
 public:
  void log(LogLevel, std::string_view) override {}
  uint64_t dropped() const override { return 0; }
};

// Lets through a number of lines in every second that begins with a line.
class RateLimit {
 public:
  RateLimit(const Clock& clock, uint32_t lines_per_second_max)
      : clock_(clock), lines_max_(lines_per_second_max) {}

  bool allows_one() {
    const TimePoint now = clock_.now();
    if (lines_ == 0 || now - second_start_ >= std::chrono::seconds(1)) {
      second_start_ = now;
      lines_ = 0;
    }
    if (lines_ == lines_max_) return false;
    ++lines_;
    return true;
  }

 private:
  const Clock& clock_;
  const uint32_t lines_max_;
  TimePoint second_start_{};
  uint32_t lines_ = 0;
};

class RingLogger final : public Logger {
 public:
  RingLogger(LogSink& sink, const Clock& clock, const LogOptions& options)
      : minimum_level_(options.minimum_level),
        rate_limit_(clock, options.lines_per_second_max),
        ring_(options.ring_lines),
        drain_(ring_, sink) {
    // Without a thread the ring fills, and the destructor writes what it holds.
    Result<std::thread> thread = start_thread("tiercel-log", [this] { work(); });
    if (thread) thread_ = *std::move(thread);
  }

  ~RingLogger() override {
    stopping_.store(true, std::memory_order_release);
    wake();
    if (thread_.joinable()) thread_.join();
    drain_.drain();
    if (unreported_ > 0) drain_.report_dropped(unreported_);
  }

  void log(LogLevel level, std::string_view line) override {
    if (level < minimum_level_) return;
    if (!rate_limit_.allows_one() || !ring_.push(level, unreported_, line)) {
      if (unreported_ < UINT32_MAX) ++unreported_;
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    unreported_ = 0;
    wake();
  }

  uint64_t dropped() const override { return dropped_.load(std::memory_order_relaxed); }

 private:
  // Makes no system call unless the thread sleeps, and never waits.
  void wake() {
    // Ordered before the look at the list of sleepers in notify_one, or a wake could be missed.
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    wakes_.notify_one();
  }

  void work() {
    while (true) {
      const uint32_t seen = wakes_.load(std::memory_order_seq_cst);
      drain_.drain();
      if (stopping_.load(std::memory_order_acquire)) return;
      wakes_.wait(seen, std::memory_order_seq_cst);
    }
  }

  // Of the thread that logs.
  const LogLevel minimum_level_;
  RateLimit rate_limit_;
  uint32_t unreported_ = 0;  // lines dropped since the last one that went into the ring

  // Of any thread.
  std::atomic<uint64_t> dropped_ = 0;
  std::atomic<uint32_t> wakes_ = 0;
  std::atomic<bool> stopping_ = false;
  LogRing ring_;

  // Of thread_, and of the destructor after it.
  LogRingDrain drain_;
  std::thread thread_;
};

}  // namespace

Logger& null_logger() {
  // Has no state, so one for all is nobody's global state.
  static NullLogger logger;
  return logger;
}

std::unique_ptr<Logger> make_logger(LogSink& sink, const Clock& clock, LogOptions options) {
  TIERCEL_ASSERT(options.lines_per_second_max >= 1, "lines_per_second_max is at least 1");
  return std::make_unique<RingLogger>(sink, clock, options);
}

}  // namespace tiercel
