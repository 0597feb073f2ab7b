// SPDX-License-Identifier: Apache-2.0
#include "base/log_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.h"

namespace tiercel {

LogRing::LogRing(uint32_t lines) : lines_(lines) {
  TIERCEL_ASSERT(std::has_single_bit(lines), "ring_lines is a power of two");
}

bool LogRing::push(LogLevel level, uint32_t dropped_before, std::string_view text) {
  const uint64_t head = head_.load(std::memory_order_relaxed);
  if (head - tail_seen_ == lines_.size()) {
    tail_seen_ = tail_.load(std::memory_order_acquire);
    if (head - tail_seen_ == lines_.size()) return false;
  }
  LogLine& line = lines_[head & (lines_.size() - 1)];
  const size_t bytes = std::min(text.size(), kLogLineBytesMax);
  line.dropped_before = dropped_before;
  line.level = level;
  line.bytes = static_cast<uint8_t>(bytes);
  std::memcpy(line.text.data(), text.data(), bytes);
  head_.store(head + 1, std::memory_order_release);
  return true;
}

bool LogRing::pop(LogLine& line) {
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail == head_seen_) {
    head_seen_ = head_.load(std::memory_order_acquire);
    if (tail == head_seen_) return false;
  }
  line = lines_[tail & (lines_.size() - 1)];
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

}  // namespace tiercel
