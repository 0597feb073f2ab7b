// SPDX-License-Identifier: Apache-2.0
//
// What a client of Mooncake can do to a store, played by a stub (stub_python.h): none of it may
// cost more than a deadline, reach our process, or touch memory after its request has ended.
#include <chrono>
#include <cstring>

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/mooncake/stub_fixture.h"
#include "support/child_process.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::StubPython;

TEST_F(MooncakeStubTest, TheStubIsAStore) {
  const StubPython python;
  MooncakeStore& store = open(python.url());
  const std::vector<std::byte> value = test_value(100, 1);
  EXPECT_EQ(handle_->put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(handle_->exists({test_key(1), test_key(2)}), (Codes{Code::kOk, Code::kNotFound}));
  EXPECT_EQ(handle_->get_value(test_key(1), 100), std::pair(Code::kOk, value));
  EXPECT_EQ(store.state(), "ok");
  EXPECT_EQ(store.sidecar().starts(), 1U);
}

TEST_F(MooncakeStubTest, StartsNothingBeforeItIsNeeded) {
  const StubPython python;
  EXPECT_EQ(open(python.url()).sidecar().starts(), 0U);
}

TEST_F(MooncakeStubTest, NamesThePythonThatIsNotThere) {
  expect_says(trouble("mooncake://127.0.0.1:1?python=/nowhere/python3"), "No such file");
}

TEST_F(MooncakeStubTest, NamesTheMissingPackageAndTheCommandThatInstallsIt) {
  const StubPython python(StubPython::Module{"import a_package_that_nobody_has\n"});
  const std::string text = trouble(python.url());
  expect_says(text, "mooncake-transfer-engine-non-cuda");
  expect_says(text, "scripts/install-deps --for mooncake");
}

TEST_F(MooncakeStubTest, NamesAVersionThatIsTooOld) {
  const StubPython python("", "0.3.12.post1");
  const std::string text = trouble(python.url());
  expect_says(text, "0.3.12.post1");
  expect_says(text, "0.3.13.post1 and later");
}

TEST_F(MooncakeStubTest, NamesTheMissingSystemLibrary) {
  const StubPython python(StubPython::Module{
      "raise ImportError('libibverbs.so.1: cannot open shared object file: No such file')\n"});
  expect_says(trouble(python.url()), "system library libibverbs.so.1 is missing");
}

TEST_F(MooncakeStubTest, NamesAMasterThatDoesNotListen) {
  const StubPython python;
  expect_says(trouble("mooncake://127.0.0.1:1?python=" + python.path()),
              "the Mooncake master at 127.0.0.1:1 cannot be reached");
}

TEST_F(MooncakeStubTest, NamesAMasterThatCannotBeResolved) {
  const StubPython python;
  expect_says(trouble("mooncake://master.invalid:1?python=" + python.path()),
              "master.invalid:1 cannot be resolved");
}

// Mooncake's own setup waits 90 seconds for a port at which something else listens.
TEST_F(MooncakeStubTest, GivesUpASetupThatDoesNotReturn) {
  const StubPython python("    def setup(self, *arguments):\n        time.sleep(3600)\n");
  const std::string text = trouble(python.url("start_timeout=5s"));
  expect_says(text, "no answer within 5 s");
  expect_says(text, "may not be a Mooncake master");
}

TEST_F(MooncakeStubTest, NamesTheCodeOfASetupThatFails) {
  const StubPython python("    def setup(self, *arguments):\n        return -1\n");
  expect_says(trouble(python.url()), "code -1");
}

TEST_F(MooncakeStubTest, MemoryThatMooncakeDoesNotRegisterIsAnError) {
  const StubPython python("    def register_buffer(self, address, size):\n        return -600\n");
  expect_says(trouble(python.url()), "Mooncake does not register 64 MiB of memory: code -600");
}

// After a failure nothing is tried for a moment: then an answer costs no process.
TEST_F(MooncakeStubTest, AnswersAtOnceWhileItIsLeftAlone) {
  const StubPython python("    def setup(self, *arguments):\n        return -1\n");
  const MooncakeStore& store = open(python.url());
  ASSERT_EQ(handle_->exists_one(test_key(1)), Code::kUnavailable);
  const TimePoint retry = store.sidecar().retry_at();
  const std::vector<ObjectKey> keys{test_key(1)};
  const StoreRequestId id = handle_->note(handle_->store().submit_exists(keys, kNoDeadline));
  handle_->take();
  if (clock_.now() < retry) {
    EXPECT_TRUE(handle_->has_ended(id));
    EXPECT_EQ(store.sidecar().starts(), 1U);
  }
}

TEST_F(MooncakeStubTest, ACrashInACallEndsItsRequestAndTheNextOnesAreServed) {
  const StubPython python(
      "    def get_size(self, key):\n        return -704\n"
      "    def batch_remove(self, keys, force):\n        ctypes.string_at(0)\n");
  const MooncakeStore& store = open(python.url());
  ASSERT_EQ(handle_->exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(handle_->remove({test_key(1)}), Codes{Code::kUnavailable});
  expect_says(store.state(), "was killed by signal 11");
  EXPECT_EQ(ask_until_answered(), Code::kNotFound);
  EXPECT_EQ(store.sidecar().starts(), 2U);
  EXPECT_EQ(store.state(), "ok");
}

TEST_F(MooncakeStubTest, AnExceptionInACallEndsItsItemsOnly) {
  const StubPython python(
      "    def batch_remove(self, keys, force):\n        raise RuntimeError('no')\n");
  const MooncakeStore& store = open(python.url());
  EXPECT_EQ(handle_->remove({test_key(1), test_key(2)}),
            (Codes{Code::kUnavailable, Code::kUnavailable}));
  EXPECT_EQ(handle_->exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(store.sidecar().starts(), 1U);
}

constexpr const char* kHangingCalls =
    "    def batch_is_exist(self, keys):\n        time.sleep(3600)\n"
    "    def batch_get_into(self, keys, addresses, lengths):\n        time.sleep(3600)\n"
    "    def batch_put_from_multi_buffer_ranges(self, *arguments):\n        time.sleep(3600)\n";

TEST_F(MooncakeStubTest, AQuestionThatHangsEndsAtItsDeadline) {
  const StubPython python(kHangingCalls);
  open(python.url());
  ASSERT_EQ(handle_->remove({test_key(1)}), Codes{Code::kOk}) << "it is up";
  const TimePoint deadline = in(milliseconds(50));
  EXPECT_EQ(handle_->exists({test_key(1)}, deadline), Codes{Code::kTimeout});
  EXPECT_GE(clock_.now(), deadline);
  EXPECT_EQ(handle_->remove({test_key(1)}), Codes{Code::kOk}) << "other threads go on";
}

// What is copied through the store's own buffer need not wait either.
TEST_F(MooncakeStubTest, AGetThatHangsEndsAtItsDeadlineWhereTheMemoryIsNotShared) {
  const StubPython python(kHangingCalls);
  const MooncakeStore& store = open(python.url());
  ASSERT_EQ(handle_->remove({test_key(1)}), Codes{Code::kOk});
  const GuardedBuffer target(100);
  const std::vector<std::byte> before = target.value();
  EXPECT_EQ(handle_->get({target.get_item(test_key(1))}, in(milliseconds(50))),
            Codes{Code::kTimeout});
  EXPECT_EQ(target.value(), before);
  EXPECT_EQ(store.sidecar().starts(), 1U);
}

TEST_F(MooncakeStubTest, AGetThatHangsInSharedMemoryEndsWhenItsSidecarHasBeenKilled) {
  const StubPython python(kHangingCalls);
  MooncakeStore& store = open(python.url("stuck_after=300ms"));
  const std::span<std::byte> memory = share(store, 1 << 20);
  remove_until_ok();
  const uint64_t starts = store.sidecar().starts();
  StoreGetItem item{test_key(1), {}};
  item.spans[0] = memory.first(4096);
  const TimePoint deadline = in(milliseconds(50));
  EXPECT_EQ(handle_->get({item}, deadline), Codes{Code::kTimeout});
  EXPECT_GE(clock_.now(), deadline + milliseconds(300)) << "its memory was still in use";
  expect_says(store.state(), "the sidecar was killed");
  EXPECT_EQ(store.sidecar().state(), Sidecar::State::kDown) << "nobody can write any more";
  remove_until_ok();
  EXPECT_GT(store.sidecar().starts(), starts);
}

TEST_F(MooncakeStubTest, ThreadsThatAllHangAreReplaced) {
  const StubPython python(kHangingCalls);
  const MooncakeStore& store = open(python.url("stuck_after=300ms&threads=2"));
  remove_until_ok();
  const uint64_t starts = store.sidecar().starts();
  const std::vector<ObjectKey> keys{test_key(1)};
  std::vector<StoreRequestId> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(handle_->note(handle_->store().submit_exists(keys, in(milliseconds(50)))));
  }
  for (StoreRequestId id : ids) EXPECT_EQ(handle_->wait(id), Codes{Code::kTimeout});
  remove_until_ok();
  EXPECT_GT(store.sidecar().starts(), starts);
}

// Whoever starts a process may be killed -9 in the middle of a put.
TEST_F(MooncakeStubTest, ASidecarDoesNotOutliveItsProcess) {
  const StubPython python(kHangingCalls);
  const testing::TempFolder folder;
  testing::WaitingChild child([&](const std::function<void()>& wait) {
    const MooncakeStore& store = open(python.url());
    if (handle_->remove({test_key(1)}) != Codes{Code::kOk}) return;
    const GuardedBuffer source(test_value(100, 1), 1);
    const std::vector<StorePutItem> puts{source.put_item(test_key(1))};
    handle_->note(handle_->store().submit_put(puts, kNoDeadline));
    folder.write("pid", std::to_string(store.sidecar().pid()));
    wait();
  });
  const pid_t pid = std::stoi(testing::read_file(folder.path("pid")));
  const FileDescriptor sidecar(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ASSERT_TRUE(sidecar) << "it should be alive";
  child.kill_now();
  EXPECT_TRUE(testing::readable(sidecar.get(), testing::kHangMs)) << "an orphan";
}

TEST_F(MooncakeStubTest, CloseEndsWhatHangs) {
  const StubPython python(kHangingCalls);
  MooncakeStore& store = open(python.url());
  const std::span<std::byte> memory = share(store, 1 << 20);
  ASSERT_EQ(handle_->remove({test_key(1)}), Codes{Code::kOk});
  StoreGetItem get{test_key(1), {}};
  get.spans[0] = memory.first(4096);
  StorePutItem put{test_key(2), {}, false};
  put.spans[0] = memory.last(4096);
  const std::vector<StoreGetItem> gets{get};
  const std::vector<StorePutItem> puts{put};
  const StoreRequestId got = handle_->note(store.submit_get(gets, kNoDeadline));
  const StoreRequestId written = handle_->note(store.submit_put(puts, kNoDeadline));
  EXPECT_TRUE(store.close(in(seconds(1))));
  EXPECT_EQ(handle_->wait(got), Codes{Code::kUnavailable});
  EXPECT_EQ(handle_->wait(written), Codes{Code::kUnavailable});
  EXPECT_EQ(store.sidecar().state(), Sidecar::State::kDown);
}

TEST_F(MooncakeStubTest, ASidecarThatIsStoppedIsKilledAndReplaced) {
  const StubPython python;
  const MooncakeStore& store = open(python.url("stuck_after=300ms"));
  ASSERT_EQ(ask_until_answered(), Code::kNotFound);
  const uint64_t starts = store.sidecar().starts();
  const pid_t pid = store.sidecar().pid();
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(handle_->exists({test_key(1)}, in(milliseconds(50))), Codes{Code::kTimeout});
  EXPECT_EQ(ask_until_answered(), Code::kNotFound);
  EXPECT_GT(store.sidecar().starts(), starts);
}

// The codes that Mooncake has for an object of another length, in one piece and in several.
TEST_F(MooncakeStubTest, KnowsAnObjectOfAnotherLengthAlsoInPieces) {
  const StubPython python(
      "    def batch_get_into_multi_buffers(self, keys, addresses, lengths):\n"
      "        return [-800] * len(keys)\n");
  MooncakeStore& store = open(python.url());
  const std::span<std::byte> memory = share(store, 4 << 20);
  ASSERT_EQ(handle_->put_value(test_key(1), test_value(1000, 1)), Code::kOk);
  StoreGetItem item{test_key(1), {}};
  item.spans[0] = memory.first(1 << 20);
  item.spans[1] = memory.last(64);
  EXPECT_EQ(handle_->get({item}), Codes{Code::kInvalid}) << "1000 bytes are there";
  item.key = test_key(2);
  EXPECT_EQ(handle_->get({item}), Codes{Code::kUnavailable}) << "nobody knows";
}

// A full pool is not asked again at once, which would only keep it from evicting.
TEST_F(MooncakeStubTest, AFullPoolIsLeftAloneForAMoment) {
  const StubPython python(
      "    def batch_put_session_start(self, keys, sizes, config):\n"
      "        return [-200] * len(keys)\n");
  open(python.url());
  const std::vector<std::byte> value = test_value(100, 1);
  const GuardedBuffer source(value, 1);
  const Codes full{Code::kNoSpace, Code::kNoSpace};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(handle_->put({source.put_item(test_key(1)), source.put_item(test_key(2))}), full);
  }
  EXPECT_EQ(handle_->exists_one(test_key(1)), Code::kNotFound) << "others are not refused";
}

TEST_F(MooncakeStubTest, ALongQuestionIsOneMessageAndOneCall) {
  const StubPython python(
      "    def batch_is_exist(self, keys):\n"
      "        return [int(len(keys) == 300)] * len(keys)\n");
  MooncakeStore& store = open(python.url());
  std::vector<ObjectKey> keys;
  for (uint32_t i = 0; i < 300; ++i) keys.push_back(test_key(i));
  EXPECT_EQ(handle_->exists(keys), Codes(300, Code::kOk));
  EXPECT_EQ(store.stats().messages, 1u);
}

// Puts cost work for each object, which several threads do sooner than one.
TEST_F(MooncakeStubTest, LargePutsAreDividedAmongTheThreadsThatMayPutAndGetsAreNot) {
  constexpr size_t kBytes = size_t{1} << 20;
  constexpr size_t kObjects = 7;
  const StubPython python;
  MooncakeStore& store = open(python.url("threads=4"));
  const std::span<std::byte> memory = share(store, kObjects * kBytes);
  std::vector<StorePutItem> puts;
  std::vector<StoreGetItem> gets;
  for (uint32_t i = 0; i < kObjects; ++i) {
    const std::span<std::byte> object = memory.subspan(i * kBytes, kBytes);
    object[0] = static_cast<std::byte>(i);
    puts.push_back({test_key(i), {object}});
    gets.push_back({test_key(i), {object}});
  }
  EXPECT_EQ(handle_->put(puts), Codes(kObjects, Code::kOk));
  EXPECT_EQ(store.stats().messages, 3u) << "3, 3 and 1";
  std::fill(memory.begin(), memory.end(), std::byte{0xff});
  EXPECT_EQ(handle_->get(gets), Codes(kObjects, Code::kOk));
  EXPECT_EQ(store.stats().messages, 4u);
  for (uint32_t i = 0; i < kObjects; ++i) {
    EXPECT_EQ(memory[i * kBytes], static_cast<std::byte>(i)) << i;
  }
  // Small ones are not worth it.
  EXPECT_EQ(handle_->put({puts[0]}), Codes{Code::kOk});
  EXPECT_EQ(store.stats().messages, 5u);
}

TEST_F(MooncakeStubTest, TellsTheTimeThatMooncakeTook) {
  const StubPython python(
      "    def batch_is_exist(self, keys):\n"
      "        time.sleep(0.02)\n"
      "        return [1] * len(keys)\n");
  MooncakeStore& store = open(python.url());
  EXPECT_EQ(store.stats().service_time, Duration(0));
  EXPECT_EQ(handle_->exists_one(test_key(1)), Code::kOk);
  EXPECT_GE(store.stats().service_time, milliseconds(20));
}

// Of a batch in which one put breaks off, that one is given up and the others are ended.
TEST_F(MooncakeStubTest, APutThatBreaksOffLeavesTheOthersOfItsBatch) {
  const StubPython python(
      "    revoked = []\n"
      "    def batch_put_from_multi_buffer_ranges(self, keys, addresses, lengths, offsets):\n"
      "        return [-800 if i == 1 else 10 for i in range(len(keys))]\n"
      "    def batch_put_session_revoke(self, keys):\n"
      "        self.revoked += keys\n"
      "        return [0] * len(keys)\n"
      "    def batch_put_session_end(self, keys):\n"
      "        for key in keys:\n"
      "            DATA[key] = b'0123456789'\n"
      "        return [0] * len(keys)\n"
      "    def batch_is_exist(self, keys):\n"
      "        return [int(key in self.revoked) for key in keys]\n");
  open(python.url());
  const GuardedBuffer source(test_value(10, 1), 1);
  EXPECT_EQ(handle_->put({source.put_item(test_key(1)), source.put_item(test_key(2)),
                          source.put_item(test_key(3))}),
            (Codes{Code::kOk, Code::kUnavailable, Code::kOk}));
  EXPECT_EQ(handle_->exists({test_key(1), test_key(2), test_key(3)}),
            (Codes{Code::kNotFound, Code::kOk, Code::kNotFound}))
      << "what was revoked";
}

TEST_F(MooncakeStubTest, WhatOutlivesItsLeaseIsReadOnceMore) {
  const StubPython python(
      "    late = True\n"
      "    def batch_get_into(self, keys, addresses, lengths):\n"
      "        if self.late:\n"
      "            self.late = False\n"
      "            return [-707, *[-704] * (len(keys) - 1)]\n"
      "        assert len(keys) == 1, 'only what was late'\n"
      "        return self.batch_get_into_multi_buffers(keys, [addresses], [lengths])\n");
  open(python.url());
  const std::vector<std::byte> value = test_value(100, 1);
  ASSERT_EQ(handle_->put_value(test_key(1), value), Code::kOk);
  const GuardedBuffer first(100);
  const GuardedBuffer second(100);
  EXPECT_EQ(handle_->get({first.get_item(test_key(1)), second.get_item(test_key(2))}),
            (Codes{Code::kOk, Code::kNotFound}));
  EXPECT_EQ(first.value(), value);
}

// Two that replace a key at once: the removal of one takes the other's half-written object away.
TEST_F(MooncakeStubTest, WhatAnotherOneRemovedWhileItReplacedItIsPutAgain) {
  const StubPython python(
      "    removals = 1\n"
      "    def batch_put_from_multi_buffer_ranges(self, keys, addresses, lengths, offsets):\n"
      "        codes = []\n"
      "        for key, places, sizes in zip(keys, addresses, lengths):\n"
      "            if self.removals > 0 and key == keys[1]:\n"
      "                self.removals -= 1\n"
      "                codes.append(-600)\n"
      "                continue\n"
      "            DATA[key] = b''.join(ctypes.string_at(p, n) for p, n in zip(places, sizes))\n"
      "            codes.append(sum(sizes))\n"
      "        return codes\n");
  open(python.url());
  const GuardedBuffer source(test_value(10, 1), 1);
  std::vector<StorePutItem> puts;
  for (uint32_t i = 0; i < 4; ++i) puts.push_back(source.put_item(test_key(i), true));
  EXPECT_EQ(handle_->put(puts), Codes(4, Code::kOk));
}

// One call of Mooncake answers for two equal keys in a batch whatever became of one.
TEST_F(MooncakeStubTest, NoBatchHasAKeyTwice) {
  const StubPython python(
      "    def batch_put_from_multi_buffer_ranges(self, keys, addresses, lengths, offsets):\n"
      "        assert len(set(keys)) == len(keys)\n"
      "        for key, places, sizes in zip(keys, addresses, lengths):\n"
      "            DATA[key] = ctypes.string_at(places[0], sizes[0])\n"
      "        return [sum(sizes) for sizes in lengths]\n");
  open(python.url());
  const GuardedBuffer first(test_value(10, 1), 1);
  const GuardedBuffer second(test_value(10, 2), 1);
  EXPECT_EQ(handle_->put({first.put_item(test_key(1)), second.put_item(test_key(1)),
                          second.put_item(test_key(2))}),
            (Codes{Code::kOk, Code::kOk, Code::kOk}));
  EXPECT_EQ(handle_->get_value(test_key(1), 10), std::pair(Code::kOk, test_value(10, 1)));
}

TEST_F(MooncakeStubTest, AnObjectLargerThanTheBufferHasNoSpace) {
  const StubPython python;
  open(python.url("buffer_bytes=1MiB"));
  EXPECT_EQ(handle_->put_value(test_key(1), test_value((1 << 20) + 1, 1)), Code::kNoSpace);
  EXPECT_EQ(handle_->get_value(test_key(1), (1 << 20) + 1).first, Code::kNoSpace);
  const std::vector<std::byte> value = test_value(1 << 20, 1);
  EXPECT_EQ(handle_->put_value(test_key(2), value), Code::kOk);
  EXPECT_EQ(handle_->get_value(test_key(2), 1 << 20), std::pair(Code::kOk, value));
}

TEST_F(MooncakeStubTest, MoreThanTheBufferHoldsGoesThroughInTurn) {
  const StubPython python;
  open(python.url("buffer_bytes=1MiB"));
  constexpr size_t kBytes = 300'000;
  std::vector<GuardedBuffer> sources;
  std::vector<StorePutItem> puts;
  std::vector<GuardedBuffer> targets;
  std::vector<StoreGetItem> gets;
  for (uint32_t i = 0; i < 20; ++i) {
    sources.emplace_back(test_value(kBytes, i), 1 + i % 4);
    puts.push_back(sources.back().put_item(test_key(i)));
    targets.emplace_back(kBytes, 1 + (i + 1) % 4);
    gets.push_back(targets.back().get_item(test_key(i)));
  }
  EXPECT_EQ(handle_->put(puts), Codes(20, Code::kOk));
  EXPECT_EQ(handle_->get(gets), Codes(20, Code::kOk));
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(targets[i].value() == test_value(kBytes, i)) << i;
    EXPECT_TRUE(targets[i].guards_are_intact());
  }
}

TEST_F(MooncakeStubTest, TenThousandKeysInOneCall) {
  const StubPython python;
  open(python.url());
  std::vector<ObjectKey> keys;
  std::vector<StorePutItem> puts;
  const std::vector<std::byte> value = test_value(64, 1);
  const GuardedBuffer source(value, 1);
  for (uint32_t i = 0; i < 10'000; ++i) {
    keys.push_back(test_key(i));
    if (i % 2 == 0) puts.push_back(source.put_item(keys.back()));
  }
  EXPECT_EQ(handle_->put(puts), Codes(5'000, Code::kOk));
  Codes expected;
  for (uint32_t i = 0; i < 10'000; ++i) expected.push_back(i % 2 ? Code::kNotFound : Code::kOk);
  EXPECT_EQ(handle_->exists(keys), expected);
}

}  // namespace
}  // namespace tiercel
