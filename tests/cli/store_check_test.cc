// SPDX-License-Identifier: Apache-2.0
#include "cli/store_check.h"

#include <algorithm>
#include <atomic>

#include <gtest/gtest.h>

#include "tiercel/local_cache.h"

#include "cli/command_fixture.h"
#include "store/registry.h"

namespace tiercel {
namespace {

class StoreCheckTest : public CommandTest {
 protected:
  int check(const std::string& url) {
    return run_command(run_store_check_command,
                       {{"store", url}, {"rounds", "1"}, {"deadline", "5s"}});
  }
  bool says(std::string_view text) const { return out_.str().find(text) != std::string::npos; }
};

TEST_F(StoreCheckTest, AGoodStorePassesWithItsSpeeds) {
  EXPECT_EQ(check("memory:"), kExitOk) << out_.str();
  EXPECT_TRUE(says("the bytes that were put")) << out_.str();
  EXPECT_TRUE(says("32 x 1 MiB")) << out_.str();
  EXPECT_FALSE(says("FAILED")) << out_.str();
}

TEST_F(StoreCheckTest, SaysInWordsWhatIsWrong) {
  EXPECT_EQ(check("faulty+memory:?fault_error=1"), kExitFailed);
  EXPECT_TRUE(says("connect           FAILED: the store cannot be used")) << out_.str();
  EXPECT_EQ(check("faulty+memory:?fault_corrupt=1"), kExitFailed);
  EXPECT_TRUE(says("other bytes came back")) << out_.str();
  EXPECT_EQ(check("faulty+memory:?fault_no_space=1"), kExitFailed);
  EXPECT_TRUE(says("has no room")) << out_.str();
  EXPECT_EQ(check("memory:?bytes=1MiB"), kExitFailed);
  EXPECT_TRUE(says("remove            ok")) << out_.str();
  EXPECT_TRUE(says("exists of 64 KiB")) << "more than fits goes: " << out_.str();
}

// Whatever it was that failed, nothing of ours stays in a store that others use.
TEST_F(StoreCheckTest, LeavesNothingBehind) {
  const auto registry = make_store_registry();
  const auto watcher = registry->open("memory:pool", {clock_}).value();
  const auto store = registry->open("memory:pool", {clock_}).value();
  EXPECT_FALSE(check_store(*store, {.rounds = 1}, clock_, 1).failed());
  EXPECT_EQ(watcher->stats().objects, 0U);
  const auto broken = registry->open("faulty+memory:pool?fault_corrupt=1", {clock_}).value();
  EXPECT_TRUE(check_store(*broken, {.rounds = 1}, clock_, 2).failed());
  EXPECT_EQ(watcher->stats().objects, 0U);
}

// A clock that sets a flag when it has been looked at so many times.
class StoppingClock final : public Clock {
 public:
  StoppingClock(int looks, std::atomic<bool>& stop) : looks_(looks), stop_(stop) {}
  TimePoint now() const override {
    if (looks_-- == 0) stop_.store(true);
    return clock_.now();
  }

 private:
  const SystemClock clock_;
  mutable int looks_;
  std::atomic<bool>& stop_;
};

// Wherever it is stopped: nothing has failed, what was found out is there, and nothing stays in the
// store.
TEST_F(StoreCheckTest, AStopIsNoFailureAndLeavesNothingBehind) {
  const auto registry = make_store_registry();
  const auto watcher = registry->open("memory:pool", {clock_}).value();
  size_t steps_max = 0;
  for (int looks = 0; looks < 80; ++looks) {
    std::atomic<bool> stop{false};
    const StoppingClock clock(looks, stop);
    const auto store = registry->open("memory:pool", {clock_}).value();
    const StoreCheckReport report = check_store(
        *store, {.rounds = 3, .sizes = {4096}, .batch_bytes = 8192, .stop = &stop}, clock, 1);
    EXPECT_FALSE(report.failed()) << looks << ": " << report.steps.back().result;
    EXPECT_EQ(report.stopped, stop.load()) << looks;
    EXPECT_EQ(watcher->stats().objects, 0U) << looks;
    steps_max = std::max(steps_max, report.steps.size());
  }
  EXPECT_GT(steps_max, 4U);
}

TEST_F(StoreCheckTest, AStopWhileTheStoreHangsSaysSo) {
  stop_.store(true);
  EXPECT_EQ(check("faulty+memory:?fault_drop=1"), kExitInterrupted) << out_.str();
  EXPECT_FALSE(says("FAILED")) << out_.str();
  EXPECT_TRUE(says("faulty+memory:")) << out_.str();
  EXPECT_NE(error_.str().find("interrupted"), std::string::npos) << error_.str();
}

TEST_F(StoreCheckTest, RefusesWhatIsNoStore) {
  EXPECT_EQ(check("memroy:"), kExitRefused);
  EXPECT_NE(error_.str().find("did you mean"), std::string::npos) << error_.str();
  EXPECT_EQ(run_command(run_store_check_command, {}), kExitRefused);
  EXPECT_NE(error_.str().find("--store"), std::string::npos) << error_.str();
}

}  // namespace
}  // namespace tiercel
