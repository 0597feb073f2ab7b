// SPDX-License-Identifier: Apache-2.0
//
// Memory of this node in a Mooncake pool, on real pools in which nobody else gives any unless said.
#include <algorithm>
#include <chrono>
#include <optional>

#include <signal.h>
#include <unistd.h>

#include "store/mooncake/pool_fixture.h"
#include "support/temp_folder.h"
#include "support/wait_readable.h"

namespace tiercel {
namespace {

using std::chrono::seconds;

constexpr size_t kObjectBytes = 200'000;

class SegmentTest : public PoolFixture {
 protected:
  // Nobody else gives memory, unless the arguments say so.
  bool start(std::vector<std::string> arguments = {"--segments", "0"}) {
    return PoolFixture::start(std::move(arguments));
  }

  // A store whose segment is in the pool.
  Handle open_segment(const std::string& options = "segment=64MiB&populate=false") {
    Handle handle(open_store(options));
    EXPECT_TRUE(wait_for_segment(handle)) << handle.store().state();
    return handle;
  }

  static const MooncakeStore& mooncake(Handle& handle) {
    return static_cast<const MooncakeStore&>(handle.store());
  }
  static const SegmentSource& segment(Handle& handle) { return *mooncake(handle).segment(); }

  bool wait_for_segment(Handle& handle, uint64_t starts = 1) {
    const TimePoint limit = clock_.now() + seconds(60);
    while (clock_.now() < limit) {
      // It has also been told to the sidecar, which takes its messages in their order.
      if (handle.exists_one(test_key(1'000'000)) == Code::kNotFound &&
          segment(handle).place().base != 0 && segment(handle).process()->starts() >= starts) {
        return true;
      }
      testing::readable(handle.store().completion_fd(), 100);
    }
    return false;
  }

  // Until `client` has it too.
  bool wait_for_segment_of(Handle& service, Handle& client) {
    const TimePoint limit = clock_.now() + seconds(60);
    while (clock_.now() < limit) {
      service.take();
      client.exists_one(test_key(1'000'000));
      if (segment(client).place() == segment(service).place()) return true;
      testing::readable(client.store().completion_fd(), 100);
    }
    return false;
  }

  // Gets items until all of them were copied from the segment: on a machine that stands still for
  // half a second a read goes by the transport. How many were copied in the last call.
  uint64_t get_here(Handle& handle, const std::vector<StoreGetItem>& items) {
    uint64_t copied = 0;
    for (int i = 0; i < 5 && copied != items.size(); ++i) {
      const uint64_t before = handle.store().stats().local_hits;
      EXPECT_EQ(handle.get(items), Codes(items.size(), Code::kOk));
      copied = handle.store().stats().local_hits - before;
    }
    return copied;
  }

  // The value, if it was copied from the segment.
  std::optional<std::vector<std::byte>> read_here(Handle& handle, const ObjectKey& key,
                                                  size_t bytes = kObjectBytes) {
    const GuardedBuffer buffer(bytes);
    const bool is_copied = get_here(handle, {buffer.get_item(key)}) == 1;
    EXPECT_TRUE(buffer.guards_are_intact());
    if (!is_copied) return std::nullopt;
    return buffer.value();
  }
};

TEST_F(SegmentTest, WhatLiesInItIsReadWithoutTheTransport) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  constexpr size_t kSlots = 8;
  const std::unique_ptr<Arena> arena = make_arena(2 * kSlots * ((1 << 20) + 4096));
  Handle handle = open_segment();
  ASSERT_TRUE(handle.store().register_shared_memory(arena->memory(), arena->fd()));
  for (size_t payload : {size_t{4096}, size_t{256} << 10, size_t{1} << 20}) {
    const size_t stride = payload + 4096;
    std::vector<StorePutItem> puts;
    std::vector<StoreGetItem> gets;
    std::vector<std::vector<std::byte>> values;
    for (uint32_t i = 0; i < kSlots; ++i) {
      const ObjectKey key = test_key(i + static_cast<uint32_t>(payload));
      values.push_back(test_value(stride, i));
      const std::span<std::byte> slot = arena->memory().subspan(i * stride, stride);
      const std::span<std::byte> back = arena->memory().subspan((kSlots + i) * stride, stride);
      std::copy(values[i].begin(), values[i].end(), slot.begin());
      puts.push_back({key, {slot.first(payload), slot.last(64)}, false});
      gets.push_back({key, {back.first(payload), back.last(64)}});
    }
    EXPECT_EQ(handle.put(puts), Codes(kSlots, Code::kOk));
    EXPECT_EQ(get_here(handle, gets), kSlots) << payload;
    for (uint32_t i = 0; i < kSlots; ++i) {
      std::vector<std::byte> expected = values[i];
      std::fill(expected.begin() + static_cast<std::ptrdiff_t>(payload), expected.end() - 64,
                std::byte{0});
      const std::span<std::byte> back = arena->memory().subspan((kSlots + i) * stride, stride);
      EXPECT_TRUE(std::equal(back.begin(), back.end(), expected.begin())) << payload;
    }
  }
}

TEST_F(SegmentTest, OthersReadItByTheTransport) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle owner = open_segment();
  Handle other(open_store());
  const std::vector<std::byte> value = test_value(kObjectBytes, 1);
  ASSERT_EQ(other.put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(read_here(owner, test_key(1)), value);
  EXPECT_EQ(other.get_value(test_key(1), kObjectBytes), std::pair(Code::kOk, value));
  EXPECT_EQ(other.store().stats().local_hits, 0U);
}

TEST_F(SegmentTest, WhatLiesElsewhereComesByTheTransportInTheSameCall) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start({"--segment", "64MiB"})) return;
  Handle handle = open_segment("segment=64MiB&populate=false&prefer_local=false");
  constexpr uint32_t kCount = 64;
  std::vector<std::vector<std::byte>> values;
  std::vector<GuardedBuffer> buffers;
  std::vector<StoreGetItem> gets;
  for (uint32_t i = 0; i < kCount; ++i) {
    values.push_back(test_value(10'000, i));
    buffers.emplace_back(10'000);
    gets.push_back(buffers[i].get_item(test_key(i)));
    ASSERT_EQ(handle.put_value(test_key(i), values[i]), Code::kOk);
  }
  buffers.emplace_back(10'000);
  gets.push_back(buffers.back().get_item(test_key(kCount)));
  uint64_t copied = 0;
  for (int i = 0; i < 5 && copied == 0; ++i) {
    Codes expected(kCount, Code::kOk);
    expected.push_back(Code::kNotFound);
    EXPECT_EQ(handle.get(gets), expected);
    copied = handle.store().stats().local_hits;
  }
  EXPECT_GT(copied, 0U);
  EXPECT_LT(copied, handle.store().stats().get_hits);
  for (uint32_t i = 0; i < kCount; ++i) EXPECT_TRUE(buffers[i].value() == values[i]) << i;
}

TEST_F(SegmentTest, PutsPreferIt) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start({"--segment", "64MiB"})) return;
  Handle handle = open_segment();
  constexpr uint32_t kCount = 32;
  std::vector<GuardedBuffer> buffers;
  std::vector<StoreGetItem> gets;
  for (uint32_t i = 0; i < kCount; ++i) {
    buffers.emplace_back(10'000);
    gets.push_back(buffers[i].get_item(test_key(i)));
    ASSERT_EQ(handle.put_value(test_key(i), test_value(10'000, i)), Code::kOk);
  }
  EXPECT_EQ(get_here(handle, gets), kCount);
}

TEST_F(SegmentTest, ItOutlivesTheSidecar) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  const std::vector<std::byte> value = test_value(kObjectBytes, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  ASSERT_EQ(::kill(mooncake(handle).sidecar().pid(), SIGKILL), 0);
  while (mooncake(handle).sidecar().starts() < 2) handle.exists_one(test_key(1));
  ASSERT_TRUE(wait_for_segment(handle));
  EXPECT_EQ(read_here(handle, test_key(1)), value);
  EXPECT_EQ(segment(handle).process()->starts(), 1U);
}

// What lay in it is lost, as with any process of the pool; the memory comes back as empty space.
TEST_F(SegmentTest, AProcessThatIsKilledIsReplacedAndNothingStaleIsRead) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  const std::vector<std::byte> value = test_value(kObjectBytes, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  ASSERT_EQ(::kill(segment(handle).process()->pid(), SIGKILL), 0);
  ASSERT_TRUE(wait_for_segment(handle, 2)) << handle.store().state();
  const uint64_t copied = handle.store().stats().local_hits;
  EXPECT_NE(handle.get_value(test_key(1), kObjectBytes).first, Code::kOk);
  EXPECT_EQ(handle.store().stats().local_hits, copied);
  const std::vector<std::byte> other = test_value(kObjectBytes, 2);
  ASSERT_EQ(put_until_ok(handle, test_key(2), other, seconds(60)), Code::kOk);
  EXPECT_EQ(read_here(handle, test_key(2)), other);
  EXPECT_EQ(mooncake(handle).sidecar().starts(), 1U);
}

TEST_F(SegmentTest, AMasterThatHasForgottenItTakesItAgain) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  const std::vector<std::byte> value = test_value(kObjectBytes, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  pool_->command("kill master");
  EXPECT_NE(handle.get_value(test_key(1), kObjectBytes).first, Code::kOk);
  pool_->command("start master");
  ASSERT_EQ(put_until_ok(handle, test_key(2), value, seconds(60)), Code::kOk);
  EXPECT_EQ(read_here(handle, test_key(2)), value);
  EXPECT_EQ(segment(handle).process()->starts(), 1U);
}

TEST_F(SegmentTest, BytesThatSomebodyHasChangedInItComeBackChangedForTheFrameToFind) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  const std::vector<std::byte> value = test_value(kObjectBytes, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  // Not through a mapping of ours: this process has none.
  std::vector<std::byte> memory(segment(handle).bytes());
  const int fd = segment(handle).memfd();
  ASSERT_EQ(::pread(fd, memory.data(), memory.size(), 0), static_cast<ssize_t>(memory.size()));
  const auto found = std::search(memory.begin(), memory.end(), value.begin(), value.end());
  ASSERT_NE(found, memory.end());
  const auto offset = static_cast<off_t>(found - memory.begin()) + 12'345;
  std::vector<std::byte> changed = value;
  changed[12'345] ^= std::byte{4};
  ASSERT_EQ(::pwrite(fd, &changed[12'345], 1, offset), 1);
  EXPECT_EQ(read_here(handle, test_key(1)), changed);
  ASSERT_EQ(handle.put_value(test_key(1), value, /*replace=*/true), Code::kOk);
  EXPECT_EQ(read_here(handle, test_key(1)), value);
}

// As tiercel store serve and an engine beside it.
TEST_F(SegmentTest, OtherProcessesOfTheNodeReadItWithoutTheTransportToo) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  const testing::TempFolder folder;
  const std::string socket = "segment_socket=" + folder.path("segment");
  std::optional<Handle> service(open_segment("segment=64MiB&populate=false&" + socket));
  Handle client(open_store(socket));
  ASSERT_TRUE(wait_for_segment_of(*service, client)) << client.store().state();
  const std::vector<std::byte> value = test_value(kObjectBytes, 1);
  ASSERT_EQ(client.put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(read_here(client, test_key(1)), value);
  EXPECT_EQ(client.store().stats().given_bytes, 0U);
  EXPECT_EQ(service->store().stats().given_bytes, uint64_t{64} << 20);

  ASSERT_TRUE(service->store().close(kNoDeadline));
  service.emplace(open_segment("segment=32MiB&populate=false&" + socket));
  const uint64_t copied = client.store().stats().local_hits;
  EXPECT_EQ(client.get_value(test_key(1), kObjectBytes).first, Code::kNotFound);
  EXPECT_EQ(client.store().stats().local_hits, copied);
  ASSERT_TRUE(wait_for_segment_of(*service, client)) << client.store().state();
  const std::vector<std::byte> other = test_value(kObjectBytes, 2);
  ASSERT_EQ(put_until_ok(client, test_key(1), other, seconds(60)), Code::kOk);
  EXPECT_EQ(read_here(client, test_key(1)), other);
}

TEST_F(SegmentTest, KnowsAnObjectOfAnotherLength) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  ASSERT_EQ(handle.put_value(test_key(1), test_value(1000, 1)), Code::kOk);
  for (size_t bytes : {999, 1001}) {
    const GuardedBuffer buffer(bytes);
    const std::vector<std::byte> before = buffer.value();
    EXPECT_EQ(handle.get({buffer.get_item(test_key(1))}), Codes{Code::kInvalid}) << bytes;
  }
  EXPECT_EQ(handle.store().stats().local_hits, 0U);
}

TEST_F(SegmentTest, CloseTakesItOutOfThePoolAndLeavesNoProcess) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  Handle other(open_store());
  ASSERT_EQ(handle.put_value(test_key(1), test_value(1000, 1)), Code::kOk);
  ASSERT_EQ(other.exists_one(test_key(1)), Code::kOk);
  const pid_t pid = segment(handle).process()->pid();
  ASSERT_EQ(::kill(pid, 0), 0);
  EXPECT_TRUE(handle.store().close(kNoDeadline));
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_EQ(other.exists_one(test_key(1)), Code::kNotFound)
      << "killed, it would be named for seconds more";
}

TEST_F(SegmentTest, IsTakenOutOfThePoolAtSigterm) {
  TIERCEL_NEEDS_MOONCAKE();
  if (!start()) return;
  Handle handle = open_segment();
  Handle other(open_store());
  ASSERT_EQ(handle.put_value(test_key(1), test_value(1000, 1)), Code::kOk);
  ASSERT_EQ(other.exists_one(test_key(1)), Code::kOk);
  ASSERT_EQ(::kill(segment(handle).process()->pid(), SIGTERM), 0);
  ASSERT_TRUE(wait_for_segment(handle, 2)) << handle.store().state();
  EXPECT_EQ(other.exists_one(test_key(1)), Code::kNotFound);
}

TEST_F(SegmentTest, MoreThanThereIsIsRefused) {
  const Result<std::unique_ptr<Store>> opened =
      registry_.open("mooncake://127.0.0.1:1?segment=15TiB", {clock_});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), Code::kNoSpace);
  const std::string text = opened.error().message();
  EXPECT_NE(text.find("15 TiB"), std::string::npos) << text;
  EXPECT_NE(text.find("segment="), std::string::npos) << text;
}

TEST_F(SegmentTest, LessThanMakesSenseIsRefused) {
  const Result<std::unique_ptr<Store>> opened =
      registry_.open("mooncake://127.0.0.1:1?segment=1MiB", {clock_});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), Code::kInvalid);
  EXPECT_NE(opened.error().message().find("16 MiB"), std::string::npos) << opened.error().message();
}

}  // namespace
}  // namespace tiercel
