// SPDX-License-Identifier: Apache-2.0
//
// What can go wrong with memory of this node in a pool, played by a stub (stub_python.h).
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "store/mooncake/mooncake_store.h"
#include "store/mooncake/stub_python.h"
#include "store/registry.h"
#include "store/store_harness.h"
#include "support/child_process.h"
#include "support/temp_folder.h"
#include "support/wait_readable.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::StubPython;

constexpr size_t kBytes = 1000;

class SegmentStubTest : public ::testing::Test {
 protected:
  SegmentStubTest() { register_all_stores(registry_); }

  const MooncakeStore& open(const std::string& url) {
    Result<std::unique_ptr<Store>> opened = registry_.open(url, {clock_});
    EXPECT_TRUE(opened) << opened.error().to_string();
    auto* const store = static_cast<MooncakeStore*>(opened->get());
    handle_.emplace(*std::move(opened));
    return *store;
  }

  // Polls until `is_true`; false if that takes too long.
  template <typename Condition>
  bool poll_until(Condition is_true) {
    const TimePoint limit = clock_.now() + milliseconds(testing::kHangMs);
    while (!is_true()) {
      if (clock_.now() > limit) return false;
      testing::readable(handle_->store().completion_fd(), 100);
      handle_->take();
    }
    return true;
  }

  // Opens a store, and fills the beginning of its segment with `content`.
  const MooncakeStore& open_segment(const std::string& url, const std::vector<std::byte>& content) {
    const MooncakeStore& store = open(url);
    EXPECT_TRUE(poll_until([&] { return store.segment()->place().base != 0; })) << store.state();
    const auto bytes = static_cast<ssize_t>(content.size());
    EXPECT_EQ(::pwrite(store.segment()->memfd(), content.data(), content.size(), 0), bytes);
    return store;
  }

  // A put and a get whose answer shows where it came from.
  std::vector<std::byte> put_and_get(const std::vector<std::byte>& by_transport) {
    EXPECT_EQ(handle_->put_value(test_key(1), by_transport), Code::kOk);
    const auto [code, value] = handle_->get_value(test_key(1), by_transport.size());
    EXPECT_EQ(code, Code::kOk);
    return value;
  }

  SystemClock clock_;
  StoreRegistry registry_;
  std::optional<Handle> handle_;
};

// The lines of a stub in which the sidecar finds each key as `replicas`, Python with `base`.
std::string finds(const std::string& replicas, const std::string& before = "") {
  return "    def batch_get_replica_desc(self, keys):\n" + before +
         "        base = int(open(BASE).read())\n"
         "        return {key: [" +
         replicas + "] for key in keys}\n";
}

const std::vector<std::byte> kHere(kBytes, std::byte{1});
const std::vector<std::byte> kByTransport(kBytes, std::byte{2});

// The machine may stand still for longer than a lease, so more than once.
TEST_F(SegmentStubTest, AnObjectInItIsCopied) {
  const StubPython python(finds("replica(base, 1000)"));
  const MooncakeStore& store = open_segment(python.url("segment=16MiB"), kHere);
  std::vector<std::byte> value;
  for (int i = 0; i < 5 && value != kHere; ++i) value = put_and_get(kByTransport);
  EXPECT_EQ(value, kHere);
  EXPECT_EQ(store.stats().local_hits, 1U);
}

TEST_F(SegmentStubTest, WhatIsNotCertainlyInItComesByTheTransport) {
  for (const char* replicas :
       {"replica(base, 1000, 'stub:3')", "replica(base, 1000, status='PROCESSING')",
        "replica(base - 1, 1000)", "replica(base + (16 << 20) - 999, 1000)", ""}) {
    SCOPED_TRACE(replicas);
    const StubPython python(finds(replicas));
    const MooncakeStore& store = open_segment(python.url("segment=16MiB"), kHere);
    EXPECT_EQ(put_and_get(kByTransport), kByTransport);
    EXPECT_EQ(store.stats().local_hits, 0U);
  }
}

// By then the lease may be over, and the memory may be another object's.
TEST_F(SegmentStubTest, WhatWasCopiedTooLateIsReadOnceMore) {
  const StubPython python(finds("replica(base, 1000)", "        time.sleep(0.6)\n"));
  const MooncakeStore& store = open_segment(python.url("segment=16MiB"), kHere);
  EXPECT_EQ(put_and_get(kByTransport), kByTransport);
  EXPECT_EQ(store.stats().local_hits, 0U);
}

TEST_F(SegmentStubTest, WithoutASegmentNobodyIsAskedWhereObjectsLie) {
  const StubPython python(
      "    def batch_get_replica_desc(self, keys):\n        os.kill(os.getpid(), 9)\n");
  const MooncakeStore& store = open(python.url());
  EXPECT_EQ(put_and_get(kByTransport), kByTransport);
  EXPECT_EQ(store.segment(), nullptr);
  EXPECT_EQ(store.sidecar().starts(), 1U);
}

TEST_F(SegmentStubTest, AGetThatHangsEndsTheSidecarAndNotTheSegment) {
  const StubPython python(
      "    def batch_get_into(self, keys, addresses, lengths):\n        time.sleep(3600)\n");
  const MooncakeStore& store = open_segment(python.url("segment=16MiB&stuck_after=100ms"), kHere);
  ASSERT_EQ(handle_->put_value(test_key(1), kByTransport), Code::kOk);
  const pid_t pid = store.segment()->process()->pid();
  const GuardedBuffer buffer(kBytes);
  EXPECT_EQ(handle_->get({buffer.get_item(test_key(1))}, clock_.now() + milliseconds(50)),
            Codes{Code::kTimeout});
  ASSERT_TRUE(poll_until([&] {
    handle_->exists_one(test_key(1));
    return store.sidecar().starts() > 1;
  }));
  EXPECT_EQ(store.segment()->process()->starts(), 1U);
  EXPECT_EQ(store.segment()->process()->pid(), pid);
  EXPECT_NE(store.segment()->place().base, 0U);
}

TEST_F(SegmentStubTest, ARefusedSegmentIsSaidAndTriedAgainAndTheRestServes) {
  const StubPython python(
      "    def mount_segment(self, path, size, offset, protocol, location):\n"
      "        return {'ret': -1, 'segment_ids': []}\n");
  const MooncakeStore& store = open(python.url("segment=16MiB"));
  EXPECT_EQ(put_and_get(kByTransport), kByTransport);
  ASSERT_TRUE(poll_until([&] { return store.segment()->process()->starts() >= 3; }));
  const std::string state = store.state();
  EXPECT_NE(state.find("the segment of 16 MiB is not in the pool"), std::string::npos) << state;
  EXPECT_NE(state.find("code -1"), std::string::npos) << state;
  EXPECT_EQ(put_and_get(kByTransport), kByTransport);
  EXPECT_EQ(store.sidecar().starts(), 1U);
}

// Nobody need ask the store for anything, but whoever has opened it only to close it pays nothing.
TEST_F(SegmentStubTest, TheFirstPollStartsIt) {
  const StubPython python;
  const MooncakeStore& store = open(python.url("segment=16MiB"));
  EXPECT_EQ(store.segment()->process()->starts(), 0U);
  ASSERT_TRUE(testing::readable(store.completion_fd(), testing::kHangMs));
  ASSERT_TRUE(poll_until([&] { return store.segment()->place().base != 0; })) << store.state();
  EXPECT_EQ(store.state(), "ok");
  EXPECT_EQ(store.sidecar().starts(), 0U);
}

// What the pool says of a place must be proved by bytes that were put there.
TEST_F(SegmentStubTest, ASegmentInWhichNothingIsFoundIsNotUsed) {
  const StubPython python(
      "    def put_from(self, key, address, size, config):\n        self.size = size\n"
      "        return 0\n");
  const MooncakeStore& store = open(python.url("segment=16MiB"));
  ASSERT_TRUE(poll_until([&] { return store.segment()->process()->starts() >= 2; }));
  EXPECT_NE(store.state().find("was found there"), std::string::npos) << store.state();
  EXPECT_EQ(store.segment()->place().base, 0U);
}

TEST_F(SegmentStubTest, ItsProcessDoesNotOutliveOurs) {
  const StubPython python;
  const testing::TempFolder folder;
  testing::WaitingChild child([&](const std::function<void()>& wait) {
    const MooncakeStore& store = open_segment(python.url("segment=16MiB"), kHere);
    folder.write("pid", std::to_string(store.segment()->process()->pid()));
    wait();
  });
  const pid_t pid = std::stoi(testing::read_file(folder.path("pid")));
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ASSERT_TRUE(process) << "it should be alive";
  child.kill_now();
  EXPECT_TRUE(testing::readable(process.get(), testing::kHangMs)) << "an orphan";
}

TEST_F(SegmentStubTest, CloseEndsAProcessThatDoesNotUnmount) {
  const StubPython python("    def unmount_segment(self, ids):\n        time.sleep(3600)\n");
  const MooncakeStore& store = open_segment(python.url("segment=16MiB"), kHere);
  EXPECT_TRUE(handle_->store().close(clock_.now() + seconds(1)));
  EXPECT_EQ(store.segment()->process()->state(), Sidecar::State::kDown);
  EXPECT_EQ(store.state(), "closed");
}

}  // namespace
}  // namespace tiercel
