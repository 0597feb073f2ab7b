// SPDX-License-Identifier: Apache-2.0
//
// Starts that fail: what cannot get better is given up soon, with the reason; what may is not.
#include <filesystem>

#include "base/process.h"
#include "support/child_process.h"
#include "support/limits.h"
#include "support/temp_folder.h"
#include "transfer/process/process_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class LineLogger final : public Logger {
 public:
  void log(LogLevel level, std::string_view line) override { lines.emplace_back(level, line); }
  uint64_t dropped() const override { return 0; }

  // Lines of the level with all of the words.
  size_t count(LogLevel level, const std::vector<std::string>& words) const {
    return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.first == level && std::all_of(words.begin(), words.end(), [&](const auto& word) {
               return line.second.find(word) != std::string::npos;
             });
    }));
  }

  std::vector<std::pair<LogLevel, std::string>> lines;
};

class FailedStart : public ProcessPlaneTest {
 protected:
  FailedStart() { options_.logger = &logger_; }

  // Lets the back-off pass whenever a start has ended, until there are no more.
  void wait_until_given_up(uint32_t rank) {
    ASSERT_TRUE(wait_until([&] {
      const RankStatus status = plane_->rank_status(rank);
      if (status.state == RankState::kRestarting && status.pid == 0) {
        clock_.advance(options_.backoff_max);
        std::array<Completion, 1> out;
        plane_->poll(out);
      }
      return plane_->rank_status(rank).is_given_up;
    }));
    EXPECT_EQ(plane_->rank_status(rank).state, RankState::kLost);
  }

  // A program of the test's in place of tiercel-rank.
  void use_program(const std::string& text) {
    options_.program = folder_.write("program", text);
    std::filesystem::permissions(options_.program, std::filesystem::perms::owner_all);
    with_device_ = false;
  }

  LineLogger logger_;
  TempFolder folder_;
};

class EndsAtOnce : public FailedStart, public ::testing::WithParamInterface<int> {};

TEST_P(EndsAtOnce, ProgramThatEndsBeforeItIsUpIsGivenUpSoonWithItsExitStatus) {
  use_program("#!/bin/sh\nexit " + std::to_string(GetParam()) + "\n");
  open(make_geometry(1));
  wait_until_given_up(0);
  const RankStatus status = plane_->rank_status(0);
  EXPECT_EQ(status.starts, options_.vain_starts_max);
  EXPECT_LT(status.starts, options_.restarts_max);
  EXPECT_EQ(status.times_up, 0u);
  const std::string reason = "exited with status " + std::to_string(GetParam());
  EXPECT_NE(status.last_error.find(reason), std::string::npos) << status.last_error;
  const Status up = plane_->wait_until_up(kNoDeadline);
  ASSERT_EQ(up.code(), Code::kUnavailable);
  EXPECT_NE(up.error().message().find(reason), std::string::npos) << up.error().message();
  // Each of them is told with its reason, and the end of it too.
  EXPECT_EQ(logger_.count(LogLevel::kWarning, {"rank 0 did not come up", reason}), status.starts);
  EXPECT_EQ(logger_.count(LogLevel::kError, {"rank 0 is given up after 3 starts", reason}), 1u);
}

INSTANTIATE_TEST_SUITE_P(Statuses, EndsAtOnce, ::testing::Values(0, 1, 3));

TEST_F(FailedStart, ProgramThatCrashesBeforeItIsUpIsGivenUpSoon) {
  use_program("#!/bin/sh\nkill -SEGV $$\n");
  open(make_geometry(1));
  wait_until_given_up(0);
  EXPECT_EQ(plane_->rank_status(0).starts, options_.vain_starts_max);
  EXPECT_NE(plane_->rank_status(0).last_error.find("killed by signal 11"), std::string::npos)
      << plane_->rank_status(0).last_error;
}

TEST_F(FailedStart, ProgramThatCannotBeRunIsGivenUpSoonWithTheCall) {
  use_program("this is no program");
  open(make_geometry(1));
  wait_until_given_up(0);
  EXPECT_EQ(plane_->rank_status(0).starts, options_.vain_starts_max);
  EXPECT_NE(plane_->rank_status(0).last_error.find("execve: Exec format error"), std::string::npos)
      << plane_->rank_status(0).last_error;
}

TEST_F(FailedStart, ProgramThatIsGoneWhenTheRankDiesIsGivenUpSoon) {
  std::filesystem::copy_file(binary_path("tiercel-rank"), folder_.path("tiercel-rank"));
  options_.program = folder_.path("tiercel-rank");
  open_and_wait(make_geometry(2));
  std::filesystem::remove(options_.program);
  kill_rank(1);
  wait_until_given_up(1);
  const RankStatus lost = plane_->rank_status(1);
  EXPECT_EQ(lost.starts, 1 + options_.vain_starts_max);
  EXPECT_EQ(lost.times_up, 1u);
  EXPECT_NE(lost.last_error.find("execve: No such file"), std::string::npos) << lost.last_error;
  EXPECT_FALSE(plane_->rank_status(0).is_given_up);
  EXPECT_EQ(run_each(op(OpKind::kSave, 1)), (std::vector{Code::kOk, Code::kUnavailable}));
}

// One that comes back in between has not failed in a row.
TEST_F(FailedStart, ProgramThatIsThereAgainInTimeIsRun) {
  std::filesystem::copy_file(binary_path("tiercel-rank"), folder_.path("tiercel-rank"));
  options_.program = folder_.path("tiercel-rank");
  open_and_wait(make_geometry(1));
  for (uint32_t time = 0; time < 2 * options_.vain_starts_max; ++time) {
    std::filesystem::rename(options_.program, folder_.path("away"));
    kill_rank(0);
    ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
    const uint32_t starts = plane_->rank_status(0).starts;
    clock_.advance(options_.restart_window);
    ASSERT_TRUE(wait_until([&] {
      return plane_->rank_status(0).starts > starts &&
             plane_->rank_status(0).last_error.find("execve") != std::string::npos;
    }));
    std::filesystem::rename(folder_.path("away"), options_.program);
    clock_.advance(options_.backoff_max);
    ASSERT_TRUE(wait_for_state(0, RankState::kUp));
    EXPECT_EQ(plane_->rank_status(0).times_up, 2 + time);
    clock_.advance(options_.restart_window);
  }
}

TEST_F(FailedStart, WhatTheSystemRefusesIsGivenUpSoonBeforeARankWasEverUpAndLaterNot) {
  bool refuse = true;
  options_.make_memory = [&](const std::string& name, size_t bytes) -> Result<FileDescriptor> {
    if (refuse && name.find("channel") != std::string::npos) {
      return Error(Code::kUnavailable, "no memfds now");
    }
    return make_memfd(name, bytes);
  };
  open(make_geometry(1));
  std::array<Completion, 1> out;
  for (uint32_t starts = 1; starts < options_.vain_starts_max; ++starts) {
    EXPECT_FALSE(plane_->rank_status(0).is_given_up);
    clock_.advance(options_.backoff_max);
    plane_->poll(out);
  }
  EXPECT_TRUE(plane_->rank_status(0).is_given_up);
  EXPECT_EQ(plane_->rank_status(0).starts, options_.vain_starts_max);
  refuse = false;
  open_and_wait(make_geometry(1));
  refuse = true;
  kill_rank(0);
  ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
  while (plane_->rank_status(0).starts < 1 + 2 * options_.vain_starts_max) {
    ASSERT_FALSE(plane_->rank_status(0).is_given_up);
    clock_.advance(options_.backoff_max);
    plane_->poll(out);
  }
  refuse = false;
  clock_.advance(options_.backoff_max);
  ASSERT_TRUE(wait_for_state(0, RankState::kUp));
}

// To touch memory takes its time, which is no fault of the rank.
TEST_F(FailedStart, RankThatTouchesMuchMemoryHasMoreTimeUntilItIsReady) {
  play("stop_before_ready");
  options_.prefault = true;
  open(make_geometry(1, 1));
  ASSERT_TRUE(wait_until([&] { return pid_of(0) != 0; }));
  ASSERT_TRUE(wait_stopped(0));
  const Duration more = touch_allowance(geometry_->tier_bytes(0));
  EXPECT_GT(more, Duration::zero());
  clock_.advance(options_.handshake_timeout + more - Duration(1));
  std::array<Completion, 1> out;
  plane_->poll(out);
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kStarting);
  clock_.advance(Duration(1));
  plane_->poll(out);
  EXPECT_NE(plane_->rank_status(0).state, RankState::kStarting);
}

TEST_F(FailedStart, LossOfARankThatWasUpIsToldWithItsReason) {
  open_and_wait(make_geometry(1));
  EXPECT_EQ(logger_.count(LogLevel::kWarning, {""}), 0u);
  kill_rank(0);
  ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
  EXPECT_EQ(logger_.count(LogLevel::kWarning, {"rank 0 is lost"}), 1u);
  EXPECT_EQ(logger_.count(LogLevel::kError, {""}), 0u);
}

TEST(OpenProcess, LimitOfOpenFilesIsNamed) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              set_limit(RLIMIT_NOFILE, 0);
              const auto process = open_process(::getpid());
              if (process.code() != Code::kUnavailable) return "another code";
              const std::string& message = process.error().message();
              return message.find("ulimit -n") != std::string::npos ? "" : message;
            }),
            "");
}

TEST_F(FailedStart, RankThatIsStoppedShowsItAndWhatItHas) {
  open_and_wait(make_geometry(1));
  EXPECT_FALSE(plane_->rank_status(0).is_stopped);
  stop_rank(0);
  const std::vector<BlockOp> ops = {op(OpKind::kSave, 1), op(OpKind::kSave, 2, 1)};
  ASSERT_TRUE(plane_->submit(ops));
  EXPECT_TRUE(plane_->rank_status(0).is_stopped);
  EXPECT_EQ(plane_->rank_status(0).ops, 2u);
  kill_rank(0, SIGCONT);
  EXPECT_EQ(wait_for(2).size(), 2u);
  EXPECT_FALSE(plane_->rank_status(0).is_stopped);
  EXPECT_EQ(plane_->rank_status(0).ops, 0u);
}

}  // namespace
}  // namespace tiercel
