// SPDX-License-Identifier: Apache-2.0
//
// Logging that the control thread may use: writing a line never takes a lock, never waits and never
// allocates. Lines go through a bounded ring per Logger; a background thread hands them to the
// sink. A full ring, or a writer above its rate, drops lines; a line "… N lines dropped" stands
// later in their place.
//
// Logs carry no token ids and no payload; keys appear by their first 8 hexadecimal digits at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tiercel/clock.h"

#include "base/mutex.h"

namespace tiercel {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Where lines end up. Called from one thread at a time, never from the writer's; may wait.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view line) = 0;

 private:
  friend class LogRingDrain;
  // Taken around write() by the threads of the Loggers that share this sink.
  Mutex mutex_;
};

// Standard error through spdlog, with time and level.
std::unique_ptr<LogSink> make_stderr_sink();

// Threads: one thread writes to one Logger (make one per thread; they may share a sink through
// make_logger). log() is wait-free.
class Logger {
 public:
  virtual ~Logger() = default;
  // Lines longer than kLogLineBytesMax are cut.
  virtual void log(LogLevel level, std::string_view line) = 0;
  // Lines dropped so far because the ring was full or the rate limit was reached.
  virtual uint64_t dropped() const = 0;
};

inline constexpr size_t kLogLineBytesMax = 240;

// Discards everything.
Logger& null_logger();

struct LogOptions {
  LogLevel minimum_level = LogLevel::kInfo;
  uint32_t ring_lines = 1024;          // bounded memory, 256 bytes each; power of two
  uint32_t lines_per_second_max = 50;  // per Logger; the rest is counted; at least 1
};

// A Logger with its own ring and a thread that empties it into `sink` (which must outlive it). The
// destructor writes what is left. Control characters in a line are written as '?', so that text
// from outside cannot forge lines.
std::unique_ptr<Logger> make_logger(LogSink& sink, const Clock& clock, LogOptions options = {});

}  // namespace tiercel
