// SPDX-License-Identifier: Apache-2.0
#include "store/faulty/faulty_store.h"

#include <bit>
#include <chrono>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <poll.h>

#include "base/manual_clock.h"
#include "store/memory/memory_pool.h"
#include "store/memory/memory_store.h"
#include "store/store_harness.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;

bool is_readable(int fd, int timeout_ms = 0) {
  pollfd waiter{fd, POLLIN, 0};
  return ::poll(&waiter, 1, timeout_ms) == 1;
}

class FaultyStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<FaultyStore> wrap(std::unique_ptr<Store> inner, const FaultOptions& options,
                                    const Clock& clock) {
    auto store = FaultyStore::create(std::move(inner), options, clock);
    EXPECT_TRUE(store) << store.error().to_string();
    return *std::move(store);
  }

  // A faulty store over the pool, on the clock that stands still.
  std::unique_ptr<FaultyStore> make(const FaultOptions& options) {
    return wrap(make_memory_store(pool_, clock_), options, clock_);
  }

  // What is really in the pool.
  Handle truth() { return Handle(make_memory_store(pool_, clock_)); }

  static FaultOptions delays(uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    options.delay = 1;
    options.delay_min = milliseconds(10);
    options.delay_max = milliseconds(20);
    return options;
  }

  ManualClock clock_;
  std::shared_ptr<MemoryPool> pool_ = std::make_shared<MemoryPool>(0);
};

TEST_F(FaultyStoreTest, AnErrorReachesNothing) {
  FaultOptions options;
  options.error = 1;
  Handle handle(make(options));
  EXPECT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kUnavailable);
  EXPECT_EQ(truth().exists_one(test_key(1)), Code::kNotFound);
  ASSERT_EQ(truth().put_value(test_key(2), test_value(8, 1)), Code::kOk);
  EXPECT_EQ(handle.exists({test_key(2)}), Codes{Code::kUnavailable});
  EXPECT_EQ(handle.remove({test_key(2)}), Codes{Code::kUnavailable});
  EXPECT_EQ(handle.clear("v1-"), Codes{Code::kUnavailable});
  EXPECT_EQ(handle.get_value(test_key(2), 8).first, Code::kUnavailable);
  EXPECT_EQ(truth().exists_one(test_key(2)), Code::kOk);
  EXPECT_EQ(handle.store().stats().failures, 5U);
}

TEST_F(FaultyStoreTest, ErrorsOfSingleItemsLeaveTheOthersInTheirPlaces) {
  FaultOptions options;
  options.error = 0.5;
  Handle handle(make(options));
  std::vector<StorePutItem> puts;
  std::vector<GuardedBuffer> sources;
  for (uint32_t number = 0; number < 100; ++number) {
    sources.emplace_back(test_value(16, number), 1);
    puts.push_back(sources.back().put_item(test_key(number)));
  }
  const Codes codes = handle.put(puts);
  ASSERT_EQ(codes.size(), 100U);
  uint64_t stored = 0;
  for (uint32_t number = 0; number < 100; ++number) {
    const auto [code, value] = truth().get_value(test_key(number), 16);
    if (codes[number] == Code::kOk) {
      EXPECT_EQ(value, test_value(16, number));
      ++stored;
    } else {
      EXPECT_EQ(codes[number], Code::kUnavailable);
      EXPECT_EQ(code, Code::kNotFound);
    }
  }
  EXPECT_GT(stored, 20U);
  EXPECT_LT(stored, 80U);
}

TEST_F(FaultyStoreTest, NoSpaceConcernsPutsOnly) {
  FaultOptions options;
  options.no_space = 1;
  Handle handle(make(options));
  EXPECT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kNoSpace);
  EXPECT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(handle.get_value(test_key(1), 8).first, Code::kNotFound);
  EXPECT_EQ(handle.remove({test_key(1)}), Codes{Code::kOk});
}

TEST_F(FaultyStoreTest, CorruptionFlipsOneBitOfAGet) {
  const std::vector<std::byte> value = test_value(1000, 1);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FaultOptions options;
    options.seed = seed;
    options.corrupt = 1;
    Handle handle(make(options));
    ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
    const GuardedBuffer target(1000, 4);
    ASSERT_EQ(handle.get({target.get_item(test_key(1))}), Codes{Code::kOk});
    EXPECT_TRUE(target.guards_are_intact());
    int flipped = 0;
    for (size_t i = 0; i < value.size(); ++i) {
      flipped += std::popcount(std::to_integer<unsigned>(target.value()[i] ^ value[i]));
    }
    EXPECT_EQ(flipped, 1);
    EXPECT_EQ(truth().get_value(test_key(1), 1000).second, value) << "the object itself is whole";
    EXPECT_EQ(handle.get_value(test_key(2), 1000).first, Code::kNotFound);
  }
}

TEST_F(FaultyStoreTest, ATruncatedPutStoresAHead) {
  const std::vector<std::byte> value = test_value(1000, 1);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FaultOptions options;
    options.seed = seed;
    options.truncate = 1;
    Handle handle(make(options));
    const GuardedBuffer source(value, 4);
    ASSERT_EQ(handle.put({source.put_item(test_key(1), true)}), Codes{Code::kOk});
    const size_t stored = truth().store().stats().bytes;
    ASSERT_GE(stored, 1U);
    ASSERT_LT(stored, 1000U);
    EXPECT_EQ(handle.get_value(test_key(1), 1000).first, Code::kInvalid);
    EXPECT_EQ(
        truth().get_value(test_key(1), stored).second,
        std::vector<std::byte>(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(stored)));
  }
}

TEST_F(FaultyStoreTest, ATruncatedGetEndsInZeroes) {
  const std::vector<std::byte> value(1000, std::byte{0x11});
  ASSERT_EQ(truth().put_value(test_key(1), value), Code::kOk);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FaultOptions options;
    options.seed = seed;
    options.truncate = 1;
    Handle handle(make(options));
    const GuardedBuffer target(1000, 4);
    ASSERT_EQ(handle.get({target.get_item(test_key(1))}), Codes{Code::kOk});
    EXPECT_TRUE(target.guards_are_intact());
    const std::vector<std::byte> got = target.value();
    const auto cut = std::find(got.begin(), got.end(), std::byte{0});
    EXPECT_NE(cut, got.end());
    EXPECT_EQ(std::count(got.begin(), cut, std::byte{0x11}), cut - got.begin());
    EXPECT_EQ(std::count(cut, got.end(), std::byte{0}), got.end() - cut);
  }
}

TEST_F(FaultyStoreTest, ALostAnswerIsATimeoutOfWhatHappened) {
  FaultOptions options;
  options.lost_answer = 1;
  Handle handle(make(options));
  EXPECT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kTimeout);
  EXPECT_EQ(truth().exists_one(test_key(1)), Code::kOk);
  EXPECT_EQ(handle.remove({test_key(1), test_key(2)}), (Codes{Code::kTimeout, Code::kTimeout}));
  EXPECT_EQ(truth().exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(handle.store().stats().failures, 3U);
}

TEST_F(FaultyStoreTest, ADroppedCompletionComesOnlyFromClose) {
  int happened = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FaultOptions options;
    options.seed = seed;
    options.drop = 1;
    std::unique_ptr<FaultyStore> store = make(options);
    const FaultyStore& faulty = *store;
    Handle handle(std::move(store));
    const ObjectKey key = test_key(static_cast<uint32_t>(seed));
    const GuardedBuffer source(test_value(8, 1), 1);
    const std::vector<StorePutItem> puts{source.put_item(key), source.put_item(ObjectKey())};
    const StoreRequestId id = handle.note(handle.store().submit_put(puts, kNoDeadline));
    clock_.advance(std::chrono::hours(1));
    EXPECT_EQ(handle.take(), 0U);
    EXPECT_FALSE(is_readable(handle.store().completion_fd()));
    EXPECT_EQ(faulty.dropped(), 1U);
    if (truth().exists_one(key) == Code::kOk) ++happened;
    ASSERT_TRUE(handle.store().close(kNoDeadline));
    EXPECT_TRUE(is_readable(handle.store().completion_fd()));
    EXPECT_EQ(handle.take(), 1U);
    EXPECT_EQ(handle.wait(id), (Codes{Code::kUnavailable, Code::kUnavailable}));
    EXPECT_TRUE(handle.store().close(kNoDeadline)) << "closing again ends nothing twice";
    EXPECT_EQ(handle.take(), 0U);
  }
  EXPECT_GT(happened, 5);
  EXPECT_LT(happened, 35);
}

TEST_F(FaultyStoreTest, ADelayedGetWritesEarlyOrLateButItsAnswerIsAlwaysLate) {
  const std::vector<std::byte> value = test_value(100, 1);
  ASSERT_EQ(truth().put_value(test_key(1), value), Code::kOk);
  int late_writes = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Handle handle(make(delays(seed)));
    const GuardedBuffer target(100, 2);
    const std::vector<std::byte> untouched = target.value();
    const std::vector<StoreGetItem> gets{target.get_item(test_key(1))};
    // The deadline passes long before the delay is over; the bytes come all the same.
    const StoreRequestId id =
        handle.note(handle.store().submit_get(gets, clock_.now() + milliseconds(1)));
    clock_.advance(milliseconds(10) - Duration(1));
    EXPECT_EQ(handle.take(), 0U);
    const bool is_late = target.value() == untouched;
    if (is_late) {
      ++late_writes;
    } else {
      EXPECT_EQ(target.value(), value);
    }
    clock_.advance(milliseconds(10) + Duration(1));
    EXPECT_EQ(handle.take(), 1U);
    EXPECT_EQ(handle.wait(id), Codes{Code::kOk});
    EXPECT_EQ(target.value(), value);
    EXPECT_TRUE(target.guards_are_intact());
  }
  EXPECT_GT(late_writes, 5);
  EXPECT_LT(late_writes, 35);
}

TEST_F(FaultyStoreTest, NothingIsWrittenAfterClose) {
  ASSERT_EQ(truth().put_value(test_key(1), test_value(100, 1)), Code::kOk);
  int ended_as_unavailable = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Handle handle(make(delays(seed)));
    const GuardedBuffer target(100);
    const std::vector<StoreGetItem> gets{target.get_item(test_key(1)),
                                         StoreGetItem{test_key(2), {}}};
    const StoreRequestId id = handle.note(handle.store().submit_get(gets, kNoDeadline));
    ASSERT_TRUE(handle.store().close(kNoDeadline));
    const std::vector<std::byte> at_close = target.value();
    EXPECT_EQ(handle.take(), 1U);
    const Codes codes = handle.wait(id);
    if (codes == Codes{Code::kUnavailable, Code::kUnavailable}) {
      ++ended_as_unavailable;
    } else {
      EXPECT_EQ(codes, (Codes{Code::kOk, Code::kInvalid}));
    }
    clock_.advance(std::chrono::hours(1));
    EXPECT_EQ(handle.take(), 0U);
    EXPECT_EQ(target.value(), at_close);
  }
  EXPECT_GT(ended_as_unavailable, 5);
  EXPECT_LT(ended_as_unavailable, 35);
}

TEST_F(FaultyStoreTest, DelayedSubmissionsOvertakeEachOther) {
  Handle handle(make(delays(3)));
  std::vector<StoreRequestId> ids;
  for (uint32_t number = 0; number < 20; ++number) {
    const std::vector<ObjectKey> keys{test_key(number)};
    ids.push_back(handle.note(handle.store().submit_exists(keys, kNoDeadline)));
  }
  bool overtaken = false;
  for (int step = 0; step < 200; ++step) {
    clock_.advance(std::chrono::microseconds(100));
    handle.take();
    bool earlier_open = false;
    for (StoreRequestId id : ids) {
      if (!handle.has_ended(id)) earlier_open = true;
      if (handle.has_ended(id) && earlier_open) overtaken = true;
    }
  }
  EXPECT_TRUE(overtaken);
  EXPECT_EQ(handle.ended(), 20U);
}

TEST_F(FaultyStoreTest, RefusesAfterCloseWhatWouldNotHaveReachedTheInnerStore) {
  FaultOptions options = delays(1);
  options.error = 1;
  Handle handle(make(options));
  ASSERT_TRUE(handle.store().close(kNoDeadline));
  for (int i = 0; i < 20; ++i) {
    const std::vector<ObjectKey> keys{test_key(1)};
    EXPECT_EQ(handle.store().submit_exists(keys, kNoDeadline).code(), Code::kUnavailable);
  }
  EXPECT_EQ(handle.take(), 0U);
}

TEST_F(FaultyStoreTest, ADeadlineThatHasPassedAlreadyIsNotHarmed) {
  FaultOptions options = delays(1);
  options.drop = options.error = options.lost_answer = 1;
  Handle handle(make(options));
  clock_.advance(milliseconds(1));
  EXPECT_EQ(handle.exists({test_key(1), test_key(2)}, clock_.now()),
            (Codes{Code::kTimeout, Code::kTimeout}));
}

TEST_F(FaultyStoreTest, RefusesAnEmptyPrefixAtOnce) {
  Handle handle(make(delays(1)));
  EXPECT_EQ(handle.store().submit_clear("", kNoDeadline).code(), Code::kInvalid);
}

TEST_F(FaultyStoreTest, IsBusyWhileTooMuchIsInFlight) {
  Handle handle(make(delays(1)));
  std::optional<Code> refusal;
  while (!refusal) {
    const std::vector<ObjectKey> keys{test_key(1)};
    Result<StoreRequestId> id = handle.store().submit_exists(keys, kNoDeadline);
    if (id) {
      handle.note(id);
      ASSERT_LE(handle.given(), 1U << 20) << "no bound";
    } else {
      refusal = id.code();
    }
  }
  EXPECT_EQ(refusal, Code::kBusy);
  clock_.advance(milliseconds(20));
  EXPECT_EQ(handle.take(), handle.given());
}

// One run with every fault, written down: what completed when, and how.
std::string transcript(std::unique_ptr<Store> store, ManualClock& clock, uint64_t seed) {
  std::string text;
  Handle handle(std::move(store));
  Random random(seed);
  std::vector<GuardedBuffer> buffers;
  std::vector<std::pair<StoreRequestId, size_t>> submitted;
  const auto note = [&](Result<StoreRequestId> id, size_t items) {
    submitted.emplace_back(handle.note(std::move(id)), items);
  };
  const auto write_down = [&] {
    handle.take();
    text += std::to_string(clock.now().time_since_epoch().count()) + ":";
    for (const auto& [id, items] : submitted) {
      if (!handle.has_ended(id)) continue;
      const Codes codes = handle.wait(id);
      EXPECT_EQ(codes.size(), items);
      text += " " + std::to_string(id.value());
      for (Code code : codes) text += "," + std::string(to_string(code));
    }
    text += "\n";
  };
  for (int step = 0; step < 60; ++step) {
    const ObjectKey first = test_key(static_cast<uint32_t>(random.below(8)));
    const ObjectKey second = test_key(static_cast<uint32_t>(random.below(8)));
    const TimePoint deadline = clock.now() + milliseconds(random.below(20));
    const uint64_t choice = random.below(10);
    if (choice < 4) {
      buffers.emplace_back(test_value(64, random.next()), 2);
      const std::vector<StorePutItem> puts{buffers.back().put_item(first),
                                           buffers.back().put_item(second, true)};
      note(handle.store().submit_put(puts, deadline), 2);
    } else if (choice < 8) {
      buffers.emplace_back(64, 3);
      const std::vector<StoreGetItem> gets{buffers.back().get_item(first)};
      note(handle.store().submit_get(gets, deadline), 1);
    } else if (choice == 8) {
      const std::vector<ObjectKey> keys{first, second};
      note(handle.store().submit_exists(keys, deadline), 2);
    } else {
      const std::vector<ObjectKey> keys{first};
      note(handle.store().submit_remove(keys, deadline), 1);
    }
    clock.advance(milliseconds(random.below(4)));
    write_down();
  }
  EXPECT_TRUE(handle.store().close(kNoDeadline));
  write_down();
  EXPECT_EQ(handle.ended(), handle.given()) << "close ends everything";
  for (const GuardedBuffer& buffer : buffers) EXPECT_TRUE(buffer.guards_are_intact());
  return text;
}

TEST_F(FaultyStoreTest, TheSameSeedDoesTheSameAgain) {
  const auto run = [](uint64_t fault_seed, uint64_t call_seed) {
    FaultOptions options = delays(fault_seed);
    options.delay = options.drop = options.lost_answer = options.error = 0.2;
    options.no_space = options.corrupt = options.truncate = 0.2;
    ManualClock clock;
    auto store = FaultyStore::create(make_memory_store(std::make_shared<MemoryPool>(0), clock),
                                     options, clock);
    return transcript(*std::move(store), clock, call_seed);
  };
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string first = run(seed, seed);
    EXPECT_EQ(first, run(seed, seed));
    EXPECT_NE(first, run(seed + 1000, seed));
  }
}

TEST_F(FaultyStoreTest, DescriptorIsReadableWhileACompletionWaits) {
  Handle handle(make(FaultOptions{}));
  const int fd = handle.store().completion_fd();
  ASSERT_GE(fd, 0);
  EXPECT_FALSE(is_readable(fd));
  const std::vector<ObjectKey> keys{test_key(1)};
  handle.note(handle.store().submit_exists(keys, kNoDeadline));
  EXPECT_TRUE(is_readable(fd));
  EXPECT_EQ(handle.take(), 1U);
  EXPECT_FALSE(is_readable(fd));
}

TEST_F(FaultyStoreTest, DescriptorAnnouncesADelayedCompletion) {
  const SystemClock clock;
  FaultOptions options = delays(1);
  options.delay_min = options.delay_max = milliseconds(1);
  Handle handle(wrap(make_memory_store(pool_, clock), options, clock));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);  // waits at the descriptor
  }
  EXPECT_FALSE(is_readable(handle.store().completion_fd()));
}

TEST_F(FaultyStoreTest, DescriptorAnnouncesTheInnerStoresNews) {
  const SystemClock clock;
  FaultOptions options = delays(1);
  options.delay_min = options.delay_max = milliseconds(1);
  std::unique_ptr<Store> inner = wrap(make_memory_store(pool_, clock), options, clock);
  Handle handle(wrap(std::move(inner), FaultOptions{}, clock));
  for (int i = 0; i < 20; ++i) {
    const std::vector<ObjectKey> keys{test_key(1)};
    const StoreRequestId id = handle.note(handle.store().submit_exists(keys, kNoDeadline));
    ASSERT_TRUE(is_readable(handle.store().completion_fd(), 60'000));
    EXPECT_EQ(handle.wait(id), Codes{Code::kNotFound});
  }
  EXPECT_FALSE(is_readable(handle.store().completion_fd()));
}

// A store that answers nothing before `release()` and does not let itself be closed until then.
class StubbornStore final : public Store {
 public:
  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys, TimePoint) override {
    return hold(keys.size());
  }
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items, TimePoint) override {
    return hold(items.size());
  }
  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items, TimePoint) override {
    return hold(items.size());
  }
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys, TimePoint) override {
    return hold(keys.size());
  }
  Result<StoreRequestId> submit_clear(std::string_view, TimePoint) override { return hold(1); }
  size_t poll(std::vector<StoreCompletion>* completions) override {
    if (!released_) return 0;
    const size_t count = held_.size();
    for (StoreCompletion& completion : held_) completions->push_back(std::move(completion));
    held_.clear();
    return count;
  }
  int completion_fd() const override { return -1; }
  Status register_memory(std::span<std::byte>) override { return {}; }
  StoreStats stats() const override { return {}; }
  Status close(TimePoint) override {
    if (released_) return {};
    return Error(Code::kTimeout, "still held");
  }
  void release() { released_ = true; }
  void refuse() { refuses_ = true; }

 private:
  Result<StoreRequestId> hold(size_t items) {
    if (refuses_) return Error(Code::kBusy, "too much");
    held_.push_back({StoreRequestId(100 + held_.size()), Codes(items, Code::kOk)});
    return held_.back().id;
  }
  bool released_ = false;
  bool refuses_ = false;
  std::vector<StoreCompletion> held_;
};

TEST_F(FaultyStoreTest, WhatTheInnerStoreHoldsBeyondCloseStillCompletes) {
  auto owned = std::make_unique<StubbornStore>();
  StubbornStore& inner = *owned;
  Handle handle(wrap(std::move(owned), FaultOptions{}, clock_));
  const std::vector<ObjectKey> keys{test_key(1)};
  const StoreRequestId id = handle.note(handle.store().submit_exists(keys, kNoDeadline));
  EXPECT_EQ(handle.store().close(clock_.now()).code(), Code::kTimeout);
  EXPECT_EQ(handle.take(), 0U);
  inner.release();
  EXPECT_TRUE(handle.store().close(clock_.now()));
  EXPECT_EQ(handle.take(), 1U);
  EXPECT_EQ(handle.wait(id), Codes{Code::kOk});
}

TEST_F(FaultyStoreTest, ARefusalOfTheInnerStoreIsPassedOn) {
  auto owned = std::make_unique<StubbornStore>();
  owned->refuse();
  Handle handle(wrap(std::move(owned), FaultOptions{}, clock_));
  const std::vector<ObjectKey> keys{test_key(1)};
  EXPECT_EQ(handle.store().submit_exists(keys, kNoDeadline).code(), Code::kBusy);
  EXPECT_EQ(handle.take(), 0U);
}

TEST_F(FaultyStoreTest, ALateRefusalOfTheInnerStoreEndsTheItems) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto owned = std::make_unique<StubbornStore>();
    StubbornStore& inner = *owned;
    Handle handle(wrap(std::move(owned), delays(seed), clock_));
    const std::vector<ObjectKey> keys{test_key(1), test_key(2)};
    const StoreRequestId id = handle.note(handle.store().submit_exists(keys, kNoDeadline));
    inner.refuse();
    inner.release();
    clock_.advance(milliseconds(20));
    EXPECT_EQ(handle.take(), 1U);
    if (handle.wait(id) == Codes{Code::kBusy, Code::kBusy}) ++refused;
  }
  EXPECT_GT(refused, 2);
  EXPECT_LT(refused, 18);
}

}  // namespace
}  // namespace tiercel
