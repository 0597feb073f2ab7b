// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as a shared store can show them: contexts
// that meet in one store (F01, F02), a writer that never finishes (F35), counts that drift (F58).
// Those that every store must survive are in the conformance suites (F24, F30, F34, F58).

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/manual_clock.h"
#include "key/field_case_contexts.h"
#include "store/faulty/faulty_store.h"
#include "store/memory/memory_pool.h"
#include "store/memory/memory_store.h"
#include "store/store_harness.h"

namespace tiercel {
namespace {

using std::chrono::seconds;

class FieldCase : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() { return make_memory_store(pool_, clock_); }

  // A writer whose every put is late: half of them reach the store late, of the others only the
  // answer is late. With `dies` the answer never comes at all, and half of the puts never happen.
  Handle open_slow(uint64_t seed, bool dies) {
    FaultOptions options;
    options.seed = seed;
    options.delay = 1;
    options.delay_min = options.delay_max = seconds(5);
    options.drop = dies ? 1 : 0;
    auto store = FaultyStore::create(open(), options, clock_);
    EXPECT_TRUE(store) << store.error().to_string();
    return Handle(*std::move(store));
  }

  ManualClock clock_;
  std::shared_ptr<MemoryPool> pool_ = std::make_shared<MemoryPool>(0);
};

// F01, F02: a run with another element type, rank, adapter … reuses what the first run wrote.
TEST_F(FieldCase, F01F02ContextsThatShareAStoreGetBackOnlyTheirOwnBytes) {
  const testing::NamedContexts all = testing::all_contexts();
  Random random(1);
  const std::vector<TokenId> tokens = testing::random_tokens(random, 64);
  Handle handle(open());
  std::vector<std::vector<ObjectKey>> keys;
  for (const testing::Context& context : all.contexts) {
    auto& its_keys = keys.emplace_back();
    const Namespace name_space = *make_namespace(context.spec);
    for (const BlockKey& block : testing::keys_of(context.spec, context.scope, tokens)) {
      its_keys.emplace_back(name_space, context.group, context.slice, block);
    }
    ASSERT_EQ(its_keys.size(), 4u);
  }
  // The length tells the contexts apart too: a wrong hit would be of the wrong length.
  const auto value_of = [](size_t context, size_t block) {
    return test_value(100 + context, context * 4 + block);
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(handle.exists(keys[i]), Codes(4, Code::kNotFound)) << all.names[i];
    for (size_t block = 0; block < 4; ++block) {
      ASSERT_EQ(handle.get_value(keys[i][block], 100).first, Code::kNotFound) << all.names[i];
      ASSERT_EQ(handle.put_value(keys[i][block], value_of(i, block)), Code::kOk);
    }
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t block = 0; block < 4; ++block) {
      EXPECT_EQ(handle.get_value(keys[i][block], 100 + i), std::pair(Code::kOk, value_of(i, block)))
          << all.names[i];
      EXPECT_EQ(handle.get_value(keys[i][block], 99 + i).first, Code::kInvalid);
    }
  }
  EXPECT_EQ(handle.store().stats().objects, keys.size() * 4);
}

// F35: a writer that died in mid-put left its key "in progress" for ever: unreadable, not
// removable, and new puts were refused.
TEST_F(FieldCase, F35AWriterThatNeverFinishesIsInNobodysWay) {
  constexpr uint32_t kRounds = 1000;
  Handle other(open());
  uint32_t came_first = 0;
  uint32_t left_nothing = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const bool dies = round % 2 == 0;
    const ObjectKey key = test_key(round);
    const std::vector<std::byte> slow_value = test_value(200, 2 * round);
    const std::vector<std::byte> value = test_value(200, 2 * round + 1);
    Handle slow = open_slow(round, dies);
    const GuardedBuffer source(slow_value, 2);
    const std::vector<StorePutItem> puts{source.put_item(key)};
    const StoreRequestId id = slow.note(slow.store().submit_put(puts, kNoDeadline));

    // Before the limit of the slow writer: what is there can be read, whole.
    const bool is_there = other.exists_one(key) == Code::kOk;
    const auto [code, seen] = other.get_value(key, 200);
    ASSERT_EQ(code, is_there ? Code::kOk : Code::kNotFound);
    if (is_there) {
      ASSERT_EQ(seen, slow_value);
    }
    ++(is_there ? came_first : left_nothing);
    // The second put is served at once, and gives way to a value that is there.
    ASSERT_EQ(other.put_value(key, value), Code::kOk);
    const std::vector<std::byte>& stays = is_there ? slow_value : value;
    ASSERT_EQ(other.get_value(key, 200), std::pair(Code::kOk, stays));

    // The slow writer comes too late to commit over the new value; the dead one leaves nothing.
    clock_.advance(seconds(6));
    slow.take();
    ASSERT_EQ(slow.has_ended(id), !dies);
    ASSERT_TRUE(slow.store().close(clock_.now()));
    ASSERT_EQ(other.get_value(key, 200), std::pair(Code::kOk, stays));
    const StoreStats stats = other.store().stats();
    ASSERT_EQ(stats.objects, 1u);
    ASSERT_EQ(stats.bytes, 200u);
    ASSERT_EQ(other.remove({key}), Codes{Code::kOk});
    ASSERT_EQ(other.store().stats().bytes, 0u);
  }
  EXPECT_GT(came_first, kRounds / 10);
  EXPECT_GT(left_nothing, kRounds / 10);
}

// F58: the used size turned negative after "remove all". Evictions are the store's own; what is
// left is asked for after each step, which is no use and so changes nothing.
TEST_F(FieldCase, F58StatsEqualWhatIsThereAlsoWhereTheStoreEvicts) {
  constexpr uint64_t kCapacityBytes = 5000;
  constexpr uint32_t kKeys = 40;
  pool_ = std::make_shared<MemoryPool>(kCapacityBytes);
  Handle handle(open());
  std::vector<ObjectKey> keys;
  for (uint32_t number = 0; number < kKeys; ++number) keys.push_back(test_key(number));
  std::map<uint32_t, uint64_t> sizes;  // of what was put last; may have been evicted since
  Random random(58);
  StoreStats last;
  for (uint32_t step = 0; step < 10'000; ++step) {
    const auto number = static_cast<uint32_t>(random.below(kKeys));
    const uint64_t size = random.chance(0.02) ? kCapacityBytes + 1 : random.between(1, 600);
    const uint64_t choice = random.below(20);
    if (choice < 12) {
      const bool replace = choice < 4;
      const bool was_there = handle.exists_one(keys[number]) == Code::kOk;
      const Code code = handle.put_value(keys[number], test_value(size, step), replace);
      const bool kept = was_there && !replace;
      ASSERT_EQ(code, kept || size <= kCapacityBytes ? Code::kOk : Code::kNoSpace);
      if (!kept && code == Code::kOk) sizes[number] = size;
    } else if (choice < 15) {
      ASSERT_EQ(handle.remove({keys[number]}), Codes{Code::kOk});
    } else if (choice < 19) {
      handle.get_value(keys[number], sizes.contains(number) ? sizes.at(number) : 1);
    } else if (random.chance(0.1)) {
      ASSERT_EQ(handle.clear(object_key_prefix(test_namespace(1))), Codes{Code::kOk});
      ASSERT_EQ(handle.store().stats().objects, 0u);
      ASSERT_EQ(handle.store().stats().bytes, 0u);
    }
    const Codes there = handle.exists(keys);
    uint64_t objects = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kKeys; ++i) {
      if (there[i] != Code::kOk) continue;
      ++objects;
      bytes += sizes.at(i);
    }
    const StoreStats stats = handle.store().stats();
    ASSERT_EQ(stats.objects, objects) << "step " << step;
    ASSERT_EQ(stats.bytes, bytes) << "step " << step;
    ASSERT_LE(stats.bytes, kCapacityBytes);
    ASSERT_GE(stats.evictions, last.evictions);
    ASSERT_GE(stats.failures, last.failures);
    ASSERT_LE(stats.get_hits, stats.gets);
    last = stats;
  }
  EXPECT_GT(last.evictions, 100u);
  EXPECT_GT(last.failures, 10u);
}

}  // namespace
}  // namespace tiercel
