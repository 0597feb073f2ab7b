// SPDX-License-Identifier: Apache-2.0
//
// A Mooncake store on a real pool, and what happens to it when parts of the pool break.
#include <chrono>
#include <optional>
#include <thread>

#include <signal.h>

#include "store/mooncake/pool_fixture.h"
#include "store/mooncake/stub_python.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class MooncakePoolTest : public PoolFixture {
 protected:
  void run_client(const ObjectKey& key, const std::string& lines) {
    pool_->run_client({std::string(key.text())}, "key = keys[0]\n" + lines);
  }
};

// An object of two pieces, as a user of the store contract may have one.
StoreGetItem get_slot(const ObjectKey& key, std::span<std::byte> slot, size_t payload) {
  return {key, {slot.first(payload), slot.last(64)}};
}
StorePutItem put_slot(const ObjectKey& key, std::span<const std::byte> slot, size_t payload,
                      bool replace = false) {
  return {key, {slot.first(payload), slot.last(64)}, replace};
}

TEST_F(MooncakePoolTest, MovesSlotsOfSharedMemoryWhereTheyLie) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  constexpr size_t kSlots = 8;
  for (size_t payload : {size_t{4096}, size_t{256} << 10, size_t{1} << 20}) {
    const size_t stride = payload + 4096;
    const std::unique_ptr<Arena> arena = make_arena(2 * kSlots * stride);
    Handle handle(open_store());
    ASSERT_TRUE(handle.store().register_shared_memory(arena->memory(), arena->fd()));
    std::vector<StorePutItem> puts;
    std::vector<StoreGetItem> gets;
    std::vector<std::vector<std::byte>> values;
    for (uint32_t i = 0; i < kSlots; ++i) {
      const ObjectKey key = test_key(i + static_cast<uint32_t>(payload));
      values.push_back(test_value(stride, i));
      const std::span<std::byte> slot = arena->memory().subspan(i * stride, stride);
      std::copy(values[i].begin(), values[i].end(), slot.begin());
      puts.push_back(put_slot(key, slot, payload));
      gets.push_back(
          get_slot(key, arena->memory().subspan((kSlots + i) * stride, stride), payload));
    }
    EXPECT_EQ(handle.put(puts), Codes(kSlots, Code::kOk));
    EXPECT_EQ(handle.get(gets), Codes(kSlots, Code::kOk));
    for (uint32_t i = 0; i < kSlots; ++i) {
      std::vector<std::byte> expected = values[i];
      std::fill(expected.begin() + static_cast<std::ptrdiff_t>(payload), expected.end() - 64,
                std::byte{0});
      const std::span<std::byte> slot = arena->memory().subspan((kSlots + i) * stride, stride);
      EXPECT_TRUE(std::equal(slot.begin(), slot.end(), expected.begin()))
          << payload << ": the padding belongs to somebody else";
    }
    // Another length, in pieces: less and more than is there.
    gets[0].spans[0] = gets[0].spans[0].first(payload - 64);
    gets[1].key = test_key(99'999);
    EXPECT_EQ(handle.get(gets)[0], Code::kInvalid);
    ASSERT_EQ(handle.put_value(test_key(99'998), test_value(100, 1), true), Code::kOk);
    gets[1].key = test_key(99'998);
    EXPECT_EQ(handle.get(gets)[1], Code::kInvalid);
  }
}

TEST_F(MooncakePoolTest, AnObjectThatSomebodyHasDamagedIsReplaced) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  constexpr size_t kPayload = 1 << 20;
  const std::unique_ptr<Arena> arena = make_arena(2 * (kPayload + 4096));
  Handle handle(open_store());
  ASSERT_TRUE(handle.store().register_shared_memory(arena->memory(), arena->fd()));
  const std::span<std::byte> slot = arena->memory().first(kPayload + 4096);
  const std::span<std::byte> back = arena->memory().last(kPayload + 4096);
  const std::vector<std::byte> value = test_value(slot.size(), 1);
  std::copy(value.begin(), value.end(), slot.begin());
  ASSERT_EQ(handle.put({put_slot(test_key(1), slot, kPayload)}), Codes{Code::kOk});
  // Another client: cut.
  run_client(test_key(1),
             "assert store.remove(key, True) == 0\n"
             "assert store.put_from(key, memory(b'x' * 1000), 1000) == 0\n");
  EXPECT_EQ(handle.get({get_slot(test_key(1), back, kPayload)}), Codes{Code::kInvalid});
  EXPECT_EQ(handle.put({put_slot(test_key(1), slot, kPayload)}), Codes{Code::kOk});
  EXPECT_EQ(handle.get({get_slot(test_key(1), back, kPayload)}), Codes{Code::kInvalid})
      << "without being told to, a put leaves what is there";
  EXPECT_EQ(handle.put({put_slot(test_key(1), slot, kPayload, /*replace=*/true)}),
            Codes{Code::kOk});
  EXPECT_EQ(handle.get({get_slot(test_key(1), back, kPayload)}), Codes{Code::kOk});
  EXPECT_TRUE(std::equal(slot.begin(), slot.begin() + kPayload, back.begin()));
}

// Mooncake would keep such a key blocked for half a minute, and answer puts of it with success.
TEST_F(MooncakePoolTest, AKeyThatADeadWriterLeftIsWrittenAgain) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle(open_store());
  ASSERT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);
  run_client(test_key(1),
             "assert store.batch_put_session_start([key], [1000], ReplicateConfig()) == [0]\n");
  EXPECT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(handle.get_value(test_key(1), 1000).first, Code::kNotFound);
  const std::vector<std::byte> value = test_value(1000, 1);
  EXPECT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 1000), std::pair(Code::kOk, value));
}

TEST_F(MooncakePoolTest, AWriterThatIsKilledInAPutLeavesNothingThatStays) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  constexpr size_t kBytes = 4 << 20;
  constexpr size_t kCount = 16;
  const std::unique_ptr<Arena> arena = make_arena(kCount * kBytes);
  Handle writer(open_store("stuck_after=1s"));
  ASSERT_TRUE(writer.store().register_shared_memory(arena->memory(), arena->fd()));
  ASSERT_EQ(writer.exists_one(test_key(0)), Code::kNotFound);
  std::vector<StorePutItem> puts;
  for (uint32_t i = 0; i < kCount; ++i) {
    puts.push_back({test_key(i), {arena->memory().subspan(i * kBytes, kBytes)}, false});
  }
  const StoreRequestId id = writer.note(writer.store().submit_put(puts, kNoDeadline));
  ASSERT_EQ(::kill(static_cast<MooncakeStore&>(writer.store()).sidecar().pid(), SIGKILL), 0);
  const Codes ended = writer.wait(id);
  EXPECT_EQ(ended, Codes(kCount, Code::kUnavailable));
  Handle other(open_store());
  const std::vector<std::byte> value(kBytes, std::byte{7});
  for (uint32_t i = 0; i < kCount; i += 5) {
    ASSERT_EQ(other.put_value(test_key(i), value, /*replace=*/true), Code::kOk) << i;
    EXPECT_EQ(other.get_value(test_key(i), kBytes), std::pair(Code::kOk, value)) << i;
  }
}

TEST_F(MooncakePoolTest, AMasterThatIsAwayCostsADeadlineAndComesBackWithoutARestart) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle(open_store());
  const std::vector<std::byte> value = test_value(1000, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  pool_->command("kill master");
  const Code code = handle.exists({test_key(1)}, in(milliseconds(500)))[0];
  EXPECT_TRUE(code == Code::kUnavailable || code == Code::kTimeout) << to_string(code);
  EXPECT_NE(handle.get_value(test_key(1), 1000).first, Code::kOk);
  EXPECT_NE(handle.put_value(test_key(2), value), Code::kOk);
  pool_->command("start master");
  EXPECT_EQ(put_until_ok(handle, test_key(2), value), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(2), 1000), std::pair(Code::kOk, value));
  EXPECT_EQ(handle.get_value(test_key(1), 1000).first, Code::kNotFound) << "it has forgotten all";
  EXPECT_EQ(static_cast<MooncakeStore&>(handle.store()).sidecar().starts(), 1U);
}

TEST_F(MooncakePoolTest, AMasterThatIsFrozenCostsADeadline) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle(open_store());
  const std::vector<std::byte> value = test_value(1000, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  pool_->command("stop master");
  EXPECT_EQ(handle.exists({test_key(1)}, in(milliseconds(100))), Codes{Code::kTimeout});
  const GuardedBuffer target(1000);
  EXPECT_EQ(handle.get({target.get_item(test_key(1))}, in(milliseconds(100))),
            Codes{Code::kTimeout});
  pool_->command("continue master");
  const TimePoint limit = in(seconds(30));
  Code code = Code::kTimeout;
  while (code != Code::kOk && clock_.now() < limit) code = handle.exists_one(test_key(1));
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 1000), std::pair(Code::kOk, value));
}

TEST_F(MooncakePoolTest, ASegmentThatIsGoneIsAMissAndAnotherTakesItsPlace) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle(open_store());
  const std::vector<std::byte> value = test_value(100'000, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  pool_->command("kill owner 0");
  EXPECT_NE(handle.get_value(test_key(1), 100'000).first, Code::kOk);
  pool_->command("start owner 0");
  EXPECT_EQ(put_until_ok(handle, test_key(2), value), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(2), 100'000), std::pair(Code::kOk, value));
}

TEST_F(MooncakePoolTest, ASegmentOwnerThatIsFrozenCostsADeadline) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle(open_store());
  const std::vector<std::byte> value = test_value(100'000, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  pool_->command("stop owner 0");
  const GuardedBuffer target(100'000);
  EXPECT_EQ(handle.get({target.get_item(test_key(1))}, in(milliseconds(100))),
            Codes{Code::kTimeout});
  pool_->command("continue owner 0");
  EXPECT_EQ(put_until_ok(handle, test_key(2), value), Code::kOk);
}

// More than fits: what is there stays readable or is gone, and is never something else.
TEST_F(MooncakePoolTest, APoolThatIsFullForgetsOrRefusesAndNeverMixes) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start({"--segment", "32MiB"})) return;
  Handle handle(open_store());
  constexpr size_t kBytes = 1 << 20;
  constexpr uint32_t kCount = 100;
  Codes put;
  for (uint32_t i = 0; i < kCount; ++i) {
    put.push_back(handle.put_value(test_key(i), test_value(kBytes, i)));
    EXPECT_TRUE(put.back() == Code::kOk || put.back() == Code::kNoSpace) << to_string(put.back());
  }
  EXPECT_EQ(put.front(), Code::kOk);
  uint32_t held = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    const auto [code, value] = handle.get_value(test_key(i), kBytes);
    if (code == Code::kNotFound) continue;
    ASSERT_EQ(code, Code::kOk);
    EXPECT_EQ(put[i], Code::kOk);
    EXPECT_TRUE(value == test_value(kBytes, i)) << i;
    ++held;
  }
  EXPECT_GT(held, 0U);
  EXPECT_LE(held, 32U);
}

TEST_F(MooncakePoolTest, AnObjectLargerThanThePoolHasNoSpace) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start({"--segment", "16MiB"})) return;
  Handle handle(open_store());
  EXPECT_EQ(handle.put_value(test_key(1), test_value(20 << 20, 1)), Code::kNoSpace);
  EXPECT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(handle.put_value(test_key(2), test_value(1000, 1)), Code::kOk);
}

TEST_F(MooncakePoolTest, TenThousandKeysInOneCall) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle(open_store());
  const GuardedBuffer source(test_value(100, 1), 2);
  std::vector<StorePutItem> puts;
  std::vector<ObjectKey> keys;
  Codes expected;
  for (uint32_t i = 0; i < 10'000; ++i) {
    keys.push_back(test_key(i));
    expected.push_back(i < 3'000 ? Code::kOk : Code::kNotFound);
    if (i < 3'000) puts.push_back(source.put_item(keys.back()));
  }
  EXPECT_EQ(handle.put(puts), Codes(3'000, Code::kOk));
  EXPECT_EQ(handle.exists(keys), expected);
  EXPECT_EQ(handle.remove(keys), Codes(10'000, Code::kOk));
}

// Two engines that were given one name by mistake.
TEST_F(MooncakePoolTest, TwoClientsOfOneNameDoNotDisturbEachOther) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle first(open_store("host=127.0.0.1:12399"));
  Handle second(open_store("host=127.0.0.1:12399"));
  const std::vector<std::byte> value = test_value(1000, 1);
  EXPECT_EQ(first.put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(second.get_value(test_key(1), 1000), std::pair(Code::kOk, value));
  EXPECT_EQ(second.put_value(test_key(2), value), Code::kOk);
  EXPECT_EQ(first.get_value(test_key(2), 1000), std::pair(Code::kOk, value));
}

// Mooncake itself waits for a minute and a half.
TEST_F(MooncakePoolTest, WhereNoMasterListensButSomebodyElseIsToldInWords) {
  TIERCEL_NEEDS_MOONCAKE();
  const testing::StubPython listener;
  const std::string url = listener.url().substr(0, listener.url().find('?'));
  Handle handle(registry_.open(url + "?start_timeout=3s", {clock_}).value());
  EXPECT_EQ(handle.exists_one(test_key(1)), Code::kUnavailable);
  const std::string state = handle.store().state();
  EXPECT_NE(state.find("may not be a Mooncake master"), std::string::npos) << state;
}

TEST_F(MooncakePoolTest, OptionsReachMooncake) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start({"--segment", "64MiB", "--segments", "2"})) return;
  Handle handle(open_store("replicas=2&soft_pin=true&connection_pool=true&threads=2"));
  const std::vector<std::byte> value = test_value(200'000, 1);
  EXPECT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 200'000), std::pair(Code::kOk, value));
  run_client(test_key(1), "assert len(store.get_replica_desc(key)) == 2\n");
}

}  // namespace
}  // namespace tiercel
