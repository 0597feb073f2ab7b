// SPDX-License-Identifier: Apache-2.0
#include "store/guard/guard_store.h"

#include <string>

#include <gtest/gtest.h>
#include <poll.h>

#include "base/event_fd.h"
#include "base/manual_clock.h"
#include "store/registry.h"
#include "store/store_harness.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool is_readable(int fd, int timeout_ms = 0) {
  pollfd waiter{fd, POLLIN, 0};
  return ::poll(&waiter, 1, timeout_ms) == 1;
}

// Answers what, and when, the test says.
class ScriptedStore final : public Store {
 public:
  explicit ScriptedStore(EventFd announcement) : announcement_(std::move(announcement)) {}

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys, TimePoint until) override {
    return take(keys.size(), until);
  }
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items, TimePoint until) override {
    return take(items.size(), until);
  }
  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items, TimePoint until) override {
    return take(items.size(), until);
  }
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys, TimePoint until) override {
    return take(keys.size(), until);
  }
  Result<StoreRequestId> submit_clear(std::string_view, TimePoint until) override {
    return take(1, until);
  }
  size_t poll(std::vector<StoreCompletion>* completions) override {
    announcement_.drain();
    const size_t count = ready.size();
    completions->insert(completions->end(), ready.begin(), ready.end());
    ready.clear();
    return count;
  }
  int completion_fd() const override { return announcement_.fd(); }
  Status register_memory(std::span<std::byte>) override { return {}; }
  StoreStats stats() const override { return {}; }
  std::string state() const override { return "scripted"; }
  Status close(TimePoint) override { return {}; }

  // The call of this number, from 1, has ended.
  void answer(uint64_t call, std::vector<Code> codes) {
    ready.push_back({StoreRequestId(call + 1000), std::move(codes)});
    announcement_.signal();
  }

  uint64_t calls = 0;
  TimePoint last_deadline;
  Code refusal = Code::kOk;  // of submissions, if not ok
  std::vector<StoreCompletion> ready;

 private:
  Result<StoreRequestId> take(size_t, TimePoint until) {
    if (refusal != Code::kOk) return Error(refusal, "as the test says");
    last_deadline = until;
    return StoreRequestId(++calls + 1000);
  }
  EventFd announcement_;
};

class GuardStoreTest : public ::testing::Test {
 protected:
  static GuardOptions options() {
    GuardOptions options;
    options.breaker.failures = 3;
    return options;
  }

  Handle make(const GuardOptions& options) {
    auto scripted = std::make_unique<ScriptedStore>(*EventFd::create());
    inner_ = scripted.get();
    auto guard = GuardStore::create(std::move(scripted), options, clock_);
    EXPECT_TRUE(guard) << guard.error().to_string();
    guard_ = guard->get();
    return Handle(*std::move(guard));
  }

  TimePoint in(Duration duration) const { return clock_.now() + duration; }
  StoreRequestId ask(Handle& handle, TimePoint deadline = kNoDeadline, size_t items = 2) {
    const std::vector<ObjectKey> keys(items, test_key(1));
    return handle.note(handle.store().submit_exists(keys, deadline));
  }
  StoreRequestId get(Handle& handle, TimePoint deadline) {
    const std::vector<StoreGetItem> items{target_.get_item(test_key(1))};
    return handle.note(handle.store().submit_get(items, deadline));
  }
  void answer(Handle& handle, uint64_t call, std::vector<Code> codes) {
    inner_->answer(call, std::move(codes));
    handle.take();
  }
  BreakerState state() const { return guard_->breaker().state(); }

  ManualClock clock_;
  ScriptedStore* inner_ = nullptr;
  GuardStore* guard_ = nullptr;
  const GuardedBuffer target_{8};
};

TEST_F(GuardStoreTest, AStalledStoreCostsItsDeadlineOnceAndIsThenLeftAlone) {
  Handle handle = make(options());
  const StoreRequestId first = ask(handle, in(milliseconds(50)));
  clock_.advance(milliseconds(49));
  EXPECT_EQ(handle.take(), 0u);
  clock_.advance(milliseconds(1));
  EXPECT_EQ(handle.take(), 1u);
  EXPECT_EQ(handle.wait(first), (Codes{Code::kTimeout, Code::kTimeout}));
  ASSERT_EQ(state(), BreakerState::kOpen);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(handle.wait(ask(handle)), (Codes{Code::kUnavailable, Code::kUnavailable}));
    EXPECT_EQ(handle.wait(get(handle, kNoDeadline)), Codes{Code::kUnavailable});
  }
  EXPECT_EQ(inner_->calls, 1u);
  clock_.advance(milliseconds(210));
  EXPECT_EQ(handle.store().state(), "scripted; open for 210 ms: no answer within 50 ms");
  EXPECT_EQ(handle.store().stats().failures, 2u + 300u);

  const StoreHealth open = handle.store().health();
  EXPECT_EQ(to_string(open), "open (timeout)");
  EXPECT_EQ(open.opened, 1u);
  EXPECT_EQ(open.refused, 200u);
  clock_.advance(seconds(1));
  EXPECT_EQ(to_string(handle.store().health()), "probing (timeout)");
  const StoreRequestId probe = ask(handle, in(milliseconds(50)));
  answer(handle, 2, {Code::kOk, Code::kOk});
  EXPECT_EQ(handle.wait(probe), (Codes{Code::kOk, Code::kOk}));
  EXPECT_EQ(to_string(handle.store().health()), "up");
}

TEST_F(GuardStoreTest, AGetIsNotEndedWhileItsMemoryMayBeWritten) {
  Handle handle = make(options());
  const StoreRequestId late = get(handle, in(milliseconds(50)));
  clock_.advance(seconds(10));
  EXPECT_EQ(handle.take(), 0u);
  EXPECT_FALSE(handle.has_ended(late));
  EXPECT_EQ(guard_->breaker().counters().opened, 1u);
  answer(handle, 1, {Code::kOk});
  EXPECT_EQ(handle.wait(late), Codes{Code::kOk}) << "it has come, if late";
  EXPECT_EQ(guard_->breaker().counters().succeeded, 0u);
}

TEST_F(GuardStoreTest, ALateAnswerToAQuestionIsDropped) {
  Handle handle = make(options());
  const StoreRequestId id = ask(handle, in(milliseconds(50)));
  clock_.advance(milliseconds(50));
  handle.take();
  EXPECT_TRUE(handle.has_ended(id));
  answer(handle, 1, {Code::kOk, Code::kOk});
  EXPECT_EQ(handle.ended(), 1u);
  EXPECT_EQ(state(), BreakerState::kOpen) << "what is too old closes nothing";
}

TEST_F(GuardStoreTest, AStoreThatAnswersOthersIsSlowNotStalled) {
  Handle handle = make(options());
  for (uint64_t call = 1; call <= 5; call += 2) {
    EXPECT_EQ(state(), BreakerState::kClosed);
    ask(handle, in(milliseconds(50)));
    ask(handle);
    answer(handle, call + 1, {Code::kUnavailable, Code::kUnavailable});
    clock_.advance(milliseconds(50));
    handle.take();
    if (guard_->breaker().counters().failed >= 3) break;
  }
  EXPECT_EQ(guard_->breaker().reason(), "3 failures in a row, the last 'unavailable'");
  EXPECT_EQ(inner_->calls, 4u);
}

TEST_F(GuardStoreTest, OnlyTimeoutUnavailableAndBusyCountAsFailures) {
  Handle handle = make(options());
  uint64_t call = 0;
  for (const Code code : {Code::kCorrupt, Code::kNoSpace, Code::kNotFound, Code::kInvalid}) {
    for (int i = 0; i < 10; ++i) {
      ask(handle);
      answer(handle, ++call, {code, code});
    }
    EXPECT_EQ(state(), BreakerState::kClosed) << to_string(code);
  }
  // One item with an answer shows that the service is there.
  for (int i = 0; i < 10; ++i) {
    ask(handle);
    answer(handle, ++call, {Code::kUnavailable, Code::kOk});
  }
  EXPECT_EQ(guard_->breaker().counters().failed, 0u);
  for (const Code code : {Code::kBusy, Code::kTimeout, Code::kUnavailable}) {
    EXPECT_EQ(state(), BreakerState::kClosed);
    ask(handle);
    answer(handle, ++call, {code, Code::kInvalid});
  }
  EXPECT_EQ(state(), BreakerState::kOpen);
}

TEST_F(GuardStoreTest, OneProbeGoesThroughAfterTheBackOffAndItsSuccessCloses) {
  Handle handle = make(options());
  ask(handle, in(milliseconds(50)));
  clock_.advance(milliseconds(50));
  handle.take();
  clock_.advance(seconds(1));
  const StoreRequestId probe = ask(handle);
  EXPECT_EQ(inner_->calls, 2u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(handle.wait(ask(handle)), (Codes{Code::kUnavailable, Code::kUnavailable}));
  }
  EXPECT_EQ(inner_->calls, 2u);
  answer(handle, 2, {Code::kOk, Code::kNotFound});
  EXPECT_EQ(handle.wait(probe), (Codes{Code::kOk, Code::kNotFound}));
  EXPECT_EQ(state(), BreakerState::kClosed);
  EXPECT_EQ(handle.store().state(), "scripted");
  ask(handle);
  EXPECT_EQ(inner_->calls, 3u);
}

TEST_F(GuardStoreTest, TheEarlierOfTwoDeadlinesCounts) {
  GuardOptions options = this->options();
  options.deadline = milliseconds(100);
  Handle handle = make(options);
  ask(handle);
  EXPECT_EQ(inner_->last_deadline, in(milliseconds(100)));
  ask(handle, in(milliseconds(30)));
  EXPECT_EQ(inner_->last_deadline, in(milliseconds(30)));
  ask(handle, in(milliseconds(300)));
  EXPECT_EQ(inner_->last_deadline, in(milliseconds(100)));
}

TEST_F(GuardStoreTest, ADeadlineThatHasPassedAlreadyTouchesNothing) {
  Handle handle = make(options());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(handle.wait(ask(handle, clock_.now())), (Codes{Code::kTimeout, Code::kTimeout}));
  }
  EXPECT_EQ(inner_->calls, 0u);
  EXPECT_EQ(state(), BreakerState::kClosed);
}

TEST_F(GuardStoreTest, ABusySubmissionIsPassedOnAndDoesNotCount) {
  Handle handle = make(options());
  inner_->refusal = Code::kBusy;
  const std::vector<ObjectKey> keys{test_key(1)};
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(handle.store().submit_exists(keys, kNoDeadline).code(), Code::kBusy);
  }
  EXPECT_EQ(state(), BreakerState::kClosed);
  inner_->refusal = Code::kUnavailable;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(handle.store().submit_exists(keys, kNoDeadline).code(), Code::kUnavailable);
  }
  EXPECT_EQ(state(), BreakerState::kOpen);
}

TEST_F(GuardStoreTest, WhatIsNotPolledIsBounded) {
  Handle handle = make(options());
  ask(handle, in(milliseconds(50)));
  clock_.advance(milliseconds(50));
  handle.take();
  const std::vector<ObjectKey> keys{test_key(1)};
  Code code = Code::kOk;
  for (int i = 0; i < 5000 && code == Code::kOk; ++i) {
    const Result<StoreRequestId> id = handle.store().submit_exists(keys, kNoDeadline);
    code = id.code();
    if (id) handle.note(*id);
  }
  EXPECT_EQ(code, Code::kBusy);
  handle.take();
  EXPECT_TRUE(handle.store().submit_exists(keys, kNoDeadline));
}

TEST_F(GuardStoreTest, TheDescriptorAnnouncesRefusalsAnswersAndDeadlines) {
  const SystemClock system;
  auto scripted = std::make_unique<ScriptedStore>(*EventFd::create());
  ScriptedStore* inner = scripted.get();
  auto guard = GuardStore::create(std::move(scripted), options(), system);
  ASSERT_TRUE(guard);
  Handle handle(*std::move(guard));
  const int fd = handle.store().completion_fd();
  EXPECT_FALSE(is_readable(fd));
  const StoreRequestId answered = ask(handle);
  EXPECT_FALSE(is_readable(fd));
  inner->answer(1, {Code::kOk, Code::kOk});
  EXPECT_TRUE(is_readable(fd));
  EXPECT_EQ(handle.take(), 1u);
  EXPECT_TRUE(handle.has_ended(answered));
  EXPECT_FALSE(is_readable(fd));
  // Waits for the descriptor, not for a time of its own.
  EXPECT_EQ(handle.wait(ask(handle, system.now() + milliseconds(20))),
            (Codes{Code::kTimeout, Code::kTimeout}));
  EXPECT_FALSE(is_readable(fd));
  ask(handle);
  EXPECT_TRUE(is_readable(fd)) << "refused";
  EXPECT_EQ(handle.take(), 1u);
  EXPECT_FALSE(is_readable(fd));
}

TEST_F(GuardStoreTest, CloseEndsWhatTheInnerStoreForgot) {
  Handle handle = make(options());
  const StoreRequestId forgotten = get(handle, in(milliseconds(50)));
  clock_.advance(milliseconds(50));
  handle.take();
  ASSERT_TRUE(handle.store().close(kNoDeadline));
  EXPECT_EQ(handle.wait(forgotten), Codes{Code::kUnavailable});
  const std::vector<ObjectKey> keys{test_key(1)};
  EXPECT_EQ(handle.store().submit_exists(keys, kNoDeadline).code(), Code::kUnavailable);
}

class GuardedFaultyStore : public ::testing::Test {
 protected:
  GuardedFaultyStore() { register_all_stores(registry_); }
  Handle open(const std::string& url) {
    auto store = registry_.open(url, {clock_});
    EXPECT_TRUE(store) << store.error().to_string();
    return Handle(*std::move(store));
  }
  ManualClock clock_;
  StoreRegistry registry_;
};

TEST_F(GuardedFaultyStore, CorruptionIsNoFailureOfTheService) {
  Handle handle = open("guard+faulty+memory:?fault_corrupt=1&guard_failures=1");
  ASSERT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(handle.get_value(test_key(1), 8).first, Code::kOk);
  }
  EXPECT_EQ(handle.store().state(), "ok");
}

TEST_F(GuardedFaultyStore, NoSubmissionEndsTwiceOrNeverWhateverTheServiceDoes) {
  uint64_t opened = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Handle handle = open(
        "guard+faulty+memory:?fault_delay=0.5&fault_delay_max=80ms&fault_drop=0.05&fault_error=0.2&"
        "guard_deadline=50ms&guard_backoff=20ms&guard_failures=3&fault_seed=" +
        std::to_string(seed));
    Random random(seed);
    const GuardedBuffer target(8);
    for (int step = 0; step < 500; ++step) {
      const std::vector<ObjectKey> keys{test_key(1), test_key(2)};
      const std::vector<StoreGetItem> gets{target.get_item(test_key(1))};
      if (random.chance(0.5)) {
        handle.note(handle.store().submit_exists(keys, kNoDeadline));
      } else {
        handle.note(handle.store().submit_get(gets, kNoDeadline));
      }
      clock_.advance(milliseconds(random.below(20)));
      handle.take();
      if (handle.store().state().starts_with("open")) ++opened;
    }
    ASSERT_TRUE(handle.store().close(kNoDeadline));
    handle.take();
    EXPECT_EQ(handle.ended(), handle.given());
    EXPECT_TRUE(target.guards_are_intact());
  }
  EXPECT_GT(opened, 0u);
}

TEST_F(GuardedFaultyStore, AStoreThatAnswersAtOnceNeedsNoDescriptor) {
  Handle handle = open("guard+memory:?guard_deadline=50ms");
  ASSERT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  EXPECT_EQ(handle.store().completion_fd(), -1);
}

TEST_F(GuardedFaultyStore, ABackOffAboveItsMaximumIsRefused) {
  const auto refused = registry_.open("guard+memory:?guard_backoff=2min", {clock_});
  ASSERT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.error().message().find("guard_backoff is 2 min"), std::string::npos)
      << refused.error().message();
}

}  // namespace
}  // namespace tiercel
