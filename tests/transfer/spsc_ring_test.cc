// SPDX-License-Identifier: Apache-2.0
#include "transfer/spsc_ring.h"

#include <array>
#include <deque>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

// 24 bytes, all of which depend on one number, so that a torn or stale message is seen.
struct Message {
  uint64_t number = 0;
  uint64_t square = 0;
  uint64_t complement = 0;
  static Message of(uint64_t n) { return {n, n * n, ~n}; }
  friend bool operator==(const Message&, const Message&) = default;
};

struct alignas(kCacheLineBytes) Line {
  std::array<std::byte, kCacheLineBytes> bytes{};
};

class RingMemory {
 public:
  explicit RingMemory(uint32_t capacity)
      : lines_(spsc_ring_bytes<Message>(capacity) / kCacheLineBytes + 2), capacity_(capacity) {
    for (std::byte& byte : all()) byte = std::byte{0x5a};
    format_spsc_ring(ring());
  }
  // Ends one byte after the ring, which is a guard.
  std::span<std::byte> all() { return std::as_writable_bytes(std::span(lines_)); }
  std::span<std::byte> ring() { return all().first(spsc_ring_bytes<Message>(capacity_)); }
  bool guard_is_whole() {
    for (std::byte byte : all().subspan(spsc_ring_bytes<Message>(capacity_))) {
      if (byte != std::byte{0x5a}) return false;
    }
    return true;
  }

 private:
  std::vector<Line> lines_;
  uint32_t capacity_;
};

TEST(SpscRing, TakesExactlyItsCapacityAndGivesItBackInOrder) {
  RingMemory memory(8);
  SpscProducer<Message> producer(memory.ring(), 8);
  SpscConsumer<Message> consumer(memory.ring(), 8);
  std::vector<Message> in;
  for (uint64_t n = 0; n < 11; ++n) in.push_back(Message::of(n));
  EXPECT_EQ(producer.push(in), 8u);
  EXPECT_EQ(producer.free_count(), 0u);
  EXPECT_EQ(producer.push(in), 0u);

  std::vector<Message> out(20);
  EXPECT_EQ(consumer.size(), 8u);
  ASSERT_EQ(consumer.pop(out), 8u);
  for (uint64_t n = 0; n < 8; ++n) EXPECT_EQ(out[n], Message::of(n));
  EXPECT_EQ(consumer.pop(out), 0u);
  EXPECT_EQ(producer.free_count(), 8u);
}

TEST(SpscRing, AgreesWithADequeForAnyMixOfBatches) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const uint32_t capacity = 1u << random.between(0, 6);
    RingMemory memory(capacity);
    SpscProducer<Message> producer(memory.ring(), capacity);
    SpscConsumer<Message> consumer(memory.ring(), capacity);
    std::deque<Message> model;
    uint64_t next = 0;
    for (int step = 0; step < 500; ++step) {
      std::vector<Message> in(random.below(capacity + 3));
      for (size_t i = 0; i < in.size(); ++i) in[i] = Message::of(next + i);
      const size_t pushed = producer.push(in);
      ASSERT_EQ(pushed, std::min(in.size(), capacity - model.size()));
      for (size_t i = 0; i < pushed; ++i) model.push_back(in[i]);
      next += pushed;

      std::vector<Message> out(random.below(capacity + 3));
      const size_t popped = consumer.pop(out);
      ASSERT_EQ(popped, std::min(out.size(), model.size()));
      for (size_t i = 0; i < popped; ++i) {
        ASSERT_EQ(out[i], model.front());
        model.pop_front();
      }
      ASSERT_EQ(consumer.size(), model.size());
    }
    EXPECT_TRUE(memory.guard_is_whole());
  }
}

TEST(SpscRing, CountersMayWrapAround) {
  RingMemory memory(4);
  auto* counters = reinterpret_cast<SpscRingCounters*>(memory.ring().data());
  counters->produced.store(UINT64_MAX - 2);
  counters->consumed.store(UINT64_MAX - 2);
  SpscProducer<Message> producer(memory.ring(), 4);
  SpscConsumer<Message> consumer(memory.ring(), 4);
  for (uint64_t n = 0; n < 20; ++n) {
    const Message in = Message::of(n);
    ASSERT_EQ(producer.push({&in, 1}), 1u);
    Message out;
    ASSERT_EQ(consumer.pop({&out, 1}), 1u);
    ASSERT_EQ(out, in);
  }
}

TEST(SpscRing, NonsenseFromTheOtherSideReadsAsFullOrEmpty) {
  RingMemory memory(4);
  SpscProducer<Message> producer(memory.ring(), 4);
  SpscConsumer<Message> consumer(memory.ring(), 4);
  auto* counters = reinterpret_cast<SpscRingCounters*>(memory.ring().data());
  std::array<Message, 9> messages{};
  for (uint64_t wrong : {uint64_t{5}, uint64_t{1} << 40, UINT64_MAX - 10}) {
    counters->consumed.store(wrong);
    EXPECT_EQ(producer.free_count(), 0u);
    EXPECT_EQ(producer.push(messages), 0u);
    counters->produced.store(wrong);
    EXPECT_EQ(consumer.size(), 0u);
    EXPECT_EQ(consumer.pop(messages), 0u);
  }
  EXPECT_TRUE(memory.guard_is_whole());
}

// How many of `count` messages that one thread sends arrived wrong at another.
uint64_t wrong_messages(uint64_t count, uint64_t seed) {
  RingMemory memory(64);
  std::thread sender([&] {
    SpscProducer<Message> producer(memory.ring(), 64);
    Random random(seed);
    std::vector<Message> batch;
    uint64_t next = 0;
    while (next < count) {
      batch.clear();
      const uint64_t batch_count = std::min(random.between(1, 40), count - next);
      for (uint64_t i = 0; i < batch_count; ++i) batch.push_back(Message::of(next + i));
      const size_t pushed = producer.push(batch);
      next += pushed;
      if (pushed == 0) std::this_thread::yield();
    }
  });
  SpscConsumer<Message> consumer(memory.ring(), 64);
  Random random(seed + 1);
  std::vector<Message> batch(40);
  uint64_t next = 0;
  uint64_t wrong = 0;
  while (next < count) {
    const size_t popped = consumer.pop(std::span(batch).first(random.between(1, 40)));
    for (size_t i = 0; i < popped; ++i) wrong += batch[i] == Message::of(next++) ? 0 : 1;
    if (popped == 0) std::this_thread::yield();
  }
  sender.join();
  return wrong + consumer.size();
}

TEST(SpscRing, TwoThreadsSeeEveryMessageWholeAndInOrder) {
  EXPECT_EQ(wrong_messages(200'000, 1), 0u);
  // A thread sanitizer forgets the earlier of two accesses soon; short runs leave it the chance to
  // tell.
  for (uint64_t seed = 0; seed < 200; ++seed) EXPECT_EQ(wrong_messages(500, seed), 0u);
}

}  // namespace
}  // namespace tiercel
