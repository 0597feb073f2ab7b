// SPDX-License-Identifier: Apache-2.0
//
// A bounded ring for one producer and one consumer over memory that the caller provides.
//
// The memory holds two counters and the messages, and no pointers, so it may as well be mapped by
// two processes. Messages are trivially copyable and travel by value. Each side has its own end
// (SpscProducer, SpscConsumer) with its own copy of its counter: what the other side writes into
// shared memory, however wrong, can make an end see "full" or "empty", never leave the ring.
//
// Memory:  [ consumed | produced | capacity × T ], each counter alone on its cache line.
// Threads: one thread uses the producer end, one the consumer end; neither ever waits.
// Errors:  none; a full ring takes less, an empty one gives less.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>

#include "base/assert.h"

namespace tiercel {

inline constexpr size_t kCacheLineBytes = 64;

// The counters at the head of the memory. They run freely and wrap at 2^64; the difference is what
// is in.
struct SpscRingCounters {
  alignas(kCacheLineBytes) std::atomic<uint64_t> consumed{0};
  alignas(kCacheLineBytes) std::atomic<uint64_t> produced{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "counters are shared between processes");

// Memory for a ring of `capacity` messages.
template <typename T>
constexpr size_t spsc_ring_bytes(uint32_t capacity) {
  return sizeof(SpscRingCounters) + sizeof(T) * capacity;
}

// Makes an empty ring. Once, before either end is made.
inline void format_spsc_ring(std::span<std::byte> memory) {
  TIERCEL_ASSERT(memory.size() >= sizeof(SpscRingCounters), "ring memory is too small");
  TIERCEL_ASSERT(std::bit_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0,
                 "ring memory is not aligned to a cache line");
  new (memory.data()) SpscRingCounters();
}

// What both ends share: where the counters and the messages are.
template <typename T>
class SpscRingView {
  static_assert(std::is_trivially_copyable_v<T>, "messages are copied as bytes");

 protected:
  // `capacity` is a power of two and is never read from the memory, which the other side may have
  // written.
  SpscRingView(std::span<std::byte> memory, uint32_t capacity)
      : counters_(std::launder(reinterpret_cast<SpscRingCounters*>(memory.data()))),
        messages_(memory.data() + sizeof(SpscRingCounters)),
        capacity_(capacity) {
    TIERCEL_ASSERT(std::has_single_bit(capacity), "ring capacity is not a power of two");
    TIERCEL_ASSERT(memory.size() >= spsc_ring_bytes<T>(capacity), "ring memory is too small");
  }

  std::byte* place(uint64_t counter) const {
    return messages_ + sizeof(T) * (counter & (capacity_ - 1));
  }
  // Messages from `counter` to the end of the memory, where the ring wraps.
  size_t until_wrap(uint64_t counter) const { return capacity_ - (counter & (capacity_ - 1)); }

  SpscRingCounters* counters_;
  std::byte* messages_;
  uint32_t capacity_;
};

template <typename T>
class SpscProducer : private SpscRingView<T> {
 public:
  SpscProducer(std::span<std::byte> memory, uint32_t capacity)
      : SpscRingView<T>(memory, capacity),
        produced_(this->counters_->produced.load(std::memory_order_relaxed)),
        consumed_seen_(this->counters_->consumed.load(std::memory_order_acquire)) {}

  // Messages that push() would take now.
  size_t free_count() {
    // Acquire: the consumer has copied out what stood in the places that are written next.
    consumed_seen_ = this->counters_->consumed.load(std::memory_order_acquire);
    return free_seen();
  }

  // Appends as many leading messages as there is room for, and makes them visible at once; how
  // many.
  size_t push(std::span<const T> messages) {
    if (free_seen() < messages.size()) free_count();
    const size_t count = std::min(free_seen(), messages.size());
    if (count == 0) return 0;
    const size_t head = std::min(count, this->until_wrap(produced_));
    std::memcpy(this->place(produced_), messages.data(), head * sizeof(T));
    if (head < count) {
      std::memcpy(this->place(0), messages.data() + head, (count - head) * sizeof(T));
    }
    produced_ += count;
    this->counters_->produced.store(produced_, std::memory_order_release);
    return count;
  }

 private:
  size_t free_seen() const {
    const uint64_t used = produced_ - consumed_seen_;
    return used > this->capacity_ ? 0 : this->capacity_ - static_cast<size_t>(used);
  }

  uint64_t produced_;
  uint64_t consumed_seen_;  // saves a look at the other side's cache line while there is room
};

template <typename T>
class SpscConsumer : private SpscRingView<T> {
 public:
  SpscConsumer(std::span<std::byte> memory, uint32_t capacity)
      : SpscRingView<T>(memory, capacity),
        consumed_(this->counters_->consumed.load(std::memory_order_relaxed)),
        produced_seen_(this->counters_->produced.load(std::memory_order_acquire)) {}

  // Messages that pop() could return now.
  size_t size() {
    // Acquire: the producer has written what stands in the places that are read next.
    produced_seen_ = this->counters_->produced.load(std::memory_order_acquire);
    return size_seen();
  }

  // Messages that the producer says there are; more than the capacity only from one that lies, and
  // size() is 0 then.
  uint64_t shown() {
    produced_seen_ = this->counters_->produced.load(std::memory_order_acquire);
    return produced_seen_ - consumed_;
  }

  // Copies out up to out.size() messages, oldest first, and gives their places back; how many.
  size_t pop(std::span<T> out) {
    if (size_seen() < out.size()) size();
    const size_t count = std::min(size_seen(), out.size());
    if (count == 0) return 0;
    const size_t head = std::min(count, this->until_wrap(consumed_));
    std::memcpy(out.data(), this->place(consumed_), head * sizeof(T));
    if (head < count) std::memcpy(out.data() + head, this->place(0), (count - head) * sizeof(T));
    consumed_ += count;
    this->counters_->consumed.store(consumed_, std::memory_order_release);
    return count;
  }

 private:
  size_t size_seen() const {
    const uint64_t available = produced_seen_ - consumed_;
    return available > this->capacity_ ? 0 : static_cast<size_t>(available);
  }

  uint64_t consumed_;
  uint64_t produced_seen_;
};

}  // namespace tiercel
