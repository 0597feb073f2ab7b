// SPDX-License-Identifier: Apache-2.0
//
// LogRing: the bounded queue of fixed-size lines between the thread that logs and the one that
// writes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace tiercel {

struct LogLine {
  uint32_t dropped_before = 0;  // lines dropped between the previous line and this one
  LogLevel level = LogLevel::kInfo;
  uint8_t bytes = 0;
  std::array<char, kLogLineBytesMax> text;

  std::string_view view() const { return {text.data(), bytes}; }
};
static_assert(kLogLineBytesMax <= UINT8_MAX);

// Invariant: tail_ <= head_ <= tail_ + size of lines_; both only grow, lines stand at index modulo
// size. Threads: one that pushes, one that pops; both calls are wait-free and do not allocate.
class LogRing {
 public:
  // `lines` is a power of two. All memory is allocated and touched here.
  explicit LogRing(uint32_t lines);

  // Cuts `text` to kLogLineBytesMax. False if the ring is full.
  bool push(LogLevel level, uint32_t dropped_before, std::string_view text);

  // Copies the oldest line; false if there is none.
  bool pop(LogLine& line);

 private:
  // Apart, so that the two threads do not share a cache line; each keeps the last seen position of
  // the other and reads the shared one only when that seems used up.
  alignas(64) std::atomic<uint64_t> head_ = 0;  // next to push
  uint64_t tail_seen_ = 0;
  alignas(64) std::atomic<uint64_t> tail_ = 0;  // next to pop
  uint64_t head_seen_ = 0;
  alignas(64) std::vector<LogLine> lines_;
};

}  // namespace tiercel
