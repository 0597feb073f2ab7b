// SPDX-License-Identifier: Apache-2.0
//
// The Store contract under load, at its bound and from several threads, for every store of the
// registry.
#include <barrier>
#include <cstring>
#include <map>
#include <thread>

#include "store/conformance.h"

namespace tiercel {
namespace {

class StoreLoadConformance : public ConformanceTest {
 protected:
  void race(uint32_t writers, bool replace, bool equal_values);
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreLoadConformance, ::testing::ValuesIn(conformance_cases()),
                         case_name);

// What a store must hold and have counted after the operations so far.
struct Model {
  std::map<std::pair<uint32_t, uint8_t>, uint64_t> sizes;
  StoreStats counts;

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [key, size] : sizes) sum += size;
    return sum;
  }
};

// F58: the used size turned negative after "remove all".
TEST_P(StoreLoadConformance, F58StatsEqualAModelOverRandomOperations) {
  Handle emptied = open_empty();
  Handle handle(open());
  const StoreStats start = handle.store().stats();
  Random random(20);
  Model model;
  for (int step = 0; step < (asks_a_service() ? 3000 : 10000); ++step) {
    const auto number = static_cast<uint32_t>(random.below(40));
    const auto name_space = static_cast<uint8_t>(random.between(1, 2));
    const ObjectKey key = test_key(number, name_space);
    const auto held = model.sizes.find({number, name_space});
    const bool is_held = held != model.sizes.end();
    const uint64_t size = random.between(1, 200);
    switch (random.below(8)) {
      case 0:
      case 1: {
        const GuardedBuffer source(test_value(size, random.next()), 1);
        // Twice in one batch: the second one must not count again.
        ASSERT_EQ(handle.put({source.put_item(key), source.put_item(key)}),
                  (Codes{Code::kOk, Code::kOk}));
        if (!is_held) model.sizes[{number, name_space}] = size;
        model.counts.puts += 2;
        break;
      }
      case 2: {
        ASSERT_EQ(handle.put_value(key, test_value(size, random.next()), true), Code::kOk);
        model.sizes[{number, name_space}] = size;
        ++model.counts.puts;
        break;
      }
      case 3: {
        ASSERT_EQ(handle.put({StorePutItem{key, {}, true}}), Codes{Code::kInvalid});
        ++model.counts.puts;
        ++model.counts.failures;
        break;
      }
      case 4: {
        ASSERT_EQ(handle.remove({key, key}), (Codes{Code::kOk, Code::kOk}));
        model.sizes.erase({number, name_space});
        model.counts.removes += 2;
        break;
      }
      case 5: {
        const Code code = handle.get_value(key, size).first;
        const Code expected = !is_held               ? Code::kNotFound
                              : held->second == size ? Code::kOk
                                                     : Code::kInvalid;
        ASSERT_EQ(code, expected);
        ++model.counts.gets;
        if (code == Code::kOk) ++model.counts.get_hits;
        if (code == Code::kInvalid) ++model.counts.failures;
        break;
      }
      case 6: {
        ASSERT_EQ(handle.exists_one(key), is_held ? Code::kOk : Code::kNotFound);
        ++model.counts.exists;
        break;
      }
      case 7: {
        if (!random.chance(0.05)) break;
        ASSERT_EQ(handle.clear(prefix_of(name_space)), Codes{Code::kOk});
        std::erase_if(model.sizes,
                      [&](const auto& entry) { return entry.first.second == name_space; });
        break;
      }
    }
    const StoreStats stats = handle.store().stats();
    if (GetParam().counts_held) {
      ASSERT_EQ(stats.objects - start.objects, model.sizes.size()) << "step " << step;
      ASSERT_EQ(stats.bytes - start.bytes, model.bytes()) << "step " << step;
    }
    ASSERT_EQ(stats.puts, model.counts.puts);
    ASSERT_EQ(stats.removes, model.counts.removes);
    ASSERT_EQ(stats.gets, model.counts.gets);
    ASSERT_EQ(stats.get_hits, model.counts.get_hits);
    ASSERT_EQ(stats.exists, model.counts.exists);
    ASSERT_EQ(stats.failures, model.counts.failures);
  }
  for (uint8_t name_space : {uint8_t{1}, uint8_t{2}}) {
    ASSERT_EQ(handle.clear(prefix_of(name_space)), Codes{Code::kOk});
  }
  EXPECT_EQ(handle.store().stats().objects, start.objects);
  EXPECT_EQ(handle.store().stats().bytes, start.bytes);
}

// F24: a server that could not allocate said nothing, and the client timed out.
TEST_P(StoreLoadConformance, F24AnswersAnOversizeObjectAtOnceWithNoSpace) {
  if (!GetParam().has_bound) GTEST_SKIP() << "the store has no bound of its own";
  Handle handle = open_empty("bytes=256KiB");
  EXPECT_EQ(handle.store().stats().capacity_bytes, 256U << 10);
  const std::vector<std::byte> small = test_value(1000, 1);
  ASSERT_EQ(handle.put_value(test_key(1), small), Code::kOk);
  const GuardedBuffer large(test_value((256 << 10) + 1, 2), 2);
  const GuardedBuffer fitting(small, 1);
  EXPECT_EQ(handle.put({large.put_item(test_key(2)), fitting.put_item(test_key(3)),
                        large.put_item(test_key(1), true)}),
            (Codes{Code::kNoSpace, Code::kOk, Code::kNoSpace}));
  EXPECT_EQ(handle.exists({test_key(1), test_key(2), test_key(3)}),
            (Codes{Code::kOk, Code::kNotFound, Code::kOk}));
  EXPECT_EQ(handle.get_value(test_key(1), 1000), std::pair(Code::kOk, small));
  EXPECT_EQ(handle.store().stats().failures, 2U);
}

TEST_P(StoreLoadConformance, HoldsItsBoundAtAllTimes) {
  if (!GetParam().has_bound) GTEST_SKIP() << "the store has no bound of its own";
  constexpr uint64_t kCapacityBytes = 256 << 10;
  Handle handle = open_empty("bytes=256KiB");
  Random random(7);
  std::map<uint32_t, std::vector<std::byte>> values;
  for (int step = 0; step < 3000; ++step) {
    const auto number = static_cast<uint32_t>(random.below(60));
    const ObjectKey key = test_key(number);
    if (random.chance(0.6)) {
      const bool replace = random.chance(0.3);
      std::vector<std::byte> value = test_value(random.between(1, 40 << 10), random.next());
      const bool was_there = handle.exists_one(key) == Code::kOk;
      ASSERT_EQ(handle.put_value(key, value, replace), Code::kOk);
      if (!was_there || replace) values[number] = std::move(value);
    } else if (random.chance(0.1)) {
      ASSERT_EQ(handle.remove({key}), Codes{Code::kOk});
      values.erase(number);
    } else if (values.contains(number)) {
      const std::vector<std::byte>& expected = values.at(number);
      const auto [code, value] = handle.get_value(key, expected.size());
      if (code == Code::kNotFound) continue;  // evicted
      ASSERT_EQ(code, Code::kOk);
      ASSERT_TRUE(value == expected);
    }
    const StoreStats stats = handle.store().stats();
    ASSERT_LE(stats.bytes, kCapacityBytes) << "step " << step;
    ASSERT_LE(stats.objects, 60U);
  }
  EXPECT_GT(handle.store().stats().evictions, 0U);
  EXPECT_EQ(handle.store().stats().failures, 0U);
}

// F34: two processes that put one key at once left a key that "exists" but reads as empty, and
// values that were cut.
//
// Threads with a handle each put the same keys at once, many times; whoever sees one must be able
// to read it, and reads one writer's whole value. Batches of several keys make them meet: the
// thread that comes later finds the first keys done and catches up with another in the middle of
// one.
void StoreLoadConformance::race(uint32_t writers, bool replace, bool equal_values) {
  const uint32_t rounds = (asks_a_service() ? 60 : 240) / writers;
  constexpr uint32_t kKeys = 8;
  const size_t bytes = 80000 / writers;
  const auto fill_of = [&](uint32_t round, uint32_t writer) {
    return static_cast<std::byte>(equal_values ? round : round * writers + writer);
  };
  const auto is_of_a_writer = [&](std::byte fill, uint32_t round) {
    for (uint32_t writer = 0; writer < writers; ++writer) {
      if (fill == fill_of(round, writer)) return true;
    }
    return false;
  };
  std::vector<Handle> handles;
  handles.push_back(open_empty());
  while (handles.size() < writers) handles.emplace_back(open());
  std::barrier start(static_cast<std::ptrdiff_t>(writers));
  const auto run = [&](Handle& handle, uint32_t writer) {
    std::vector<std::byte> target(bytes);
    for (uint32_t round = 0; round < rounds; ++round) {
      const GuardedBuffer source(std::vector<std::byte>(bytes, fill_of(round, writer)), 3);
      std::vector<ObjectKey> keys;
      std::vector<StorePutItem> puts;
      for (uint32_t i = 0; i < kKeys; ++i) {
        keys.push_back(test_key(replace ? i : round * kKeys + i));
        puts.push_back(source.put_item(keys.back(), replace));
      }
      const auto read = [&](const ObjectKey& key) {
        EXPECT_EQ(handle.get({StoreGetItem{key, {std::span(target)}}}), Codes{Code::kOk});
        EXPECT_TRUE(is_of_a_writer(target.front(), round));
        EXPECT_EQ(std::memcmp(target.data(), target.data() + 1, bytes - 1), 0) << "a mixed value";
        return target.front();
      };
      start.arrive_and_wait();
      EXPECT_EQ(handle.put(puts), Codes(kKeys, Code::kOk));
      if (replace && !GetParam().replaces_whole) start.arrive_and_wait();
      EXPECT_EQ(handle.exists(keys), Codes(kKeys, Code::kOk));
      std::vector<std::byte> seen;
      for (const ObjectKey& key : keys) seen.push_back(read(key));
      start.arrive_and_wait();
      if (!replace) {
        for (uint32_t i = 0; i < kKeys; ++i) {
          EXPECT_EQ(read(keys[i]), seen[i]) << "the first value must stay";
        }
      }
    }
  };
  std::vector<std::thread> others;
  for (uint32_t writer = 1; writer < writers; ++writer) {
    others.emplace_back([&, writer] { run(handles[writer], writer); });
  }
  run(handles[0], 0);
  for (std::thread& other : others) other.join();
  if (!GetParam().counts_held) return;
  const StoreStats stats = handles[0].store().stats();
  EXPECT_EQ(stats.objects, replace ? kKeys : rounds * kKeys);
  EXPECT_EQ(stats.bytes, stats.objects * bytes);
}

TEST_P(StoreLoadConformance, F34WritersOfEqualValuesAllSucceed) {
  for (uint32_t writers : writer_counts()) race(writers, false, true);
}
TEST_P(StoreLoadConformance, F34WritersOfDifferentValuesLeaveOneWhole) {
  for (uint32_t writers : writer_counts()) race(writers, false, false);
}
TEST_P(StoreLoadConformance, F34WritersThatReplaceAValueLeaveOneWhole) {
  for (uint32_t writers : writer_counts()) race(writers, true, false);
}

}  // namespace
}  // namespace tiercel
