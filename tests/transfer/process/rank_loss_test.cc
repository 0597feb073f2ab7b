// SPDX-License-Identifier: Apache-2.0
//
// Ranks that die, hang or never come up: what they had ends as `unavailable`, the others go on, and
// they are started again with empty host memory.
#include <map>
#include <thread>

#include "transfer/process/process_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class RankLoss : public ProcessPlaneTest {
 protected:
  // The rank starts again after its back-off, which begins when it has let go.
  void expect_back(uint32_t rank) {
    ASSERT_TRUE(wait_for_state(rank, RankState::kRestarting));
    clock_.advance(options_.backoff_max);
    ASSERT_TRUE(wait_for_state(rank, RankState::kUp));
  }

  // A start that fails: its process comes and goes.
  void wait_for_end_of_start(uint32_t rank) {
    const uint32_t starts = plane_->rank_status(rank).starts;
    ASSERT_TRUE(wait_until([&] { return pid_of(rank) != 0; }));
    ASSERT_TRUE(wait_until([&] { return pid_of(rank) == 0; }));
    ASSERT_EQ(plane_->rank_status(rank).starts, starts);
  }
};

TEST_F(RankLoss, RankKilledWhileIdleIsLostAndComesBackWithEmptyMemory) {
  open_and_wait(make_geometry(2));
  const BlockOp save = op(OpKind::kSave, 1);
  EXPECT_EQ(run(save), Code::kOk);
  kill_rank(1);
  ASSERT_TRUE(wait_for_state(1, RankState::kRestarting));
  EXPECT_EQ(plane_->memory_epoch(1), 1u);
  EXPECT_EQ(plane_->memory_epoch(0), 0u);
  EXPECT_NE(plane_->rank_status(1).last_error.find("killed by signal 9"), std::string::npos)
      << plane_->rank_status(1).last_error;
  // Until it is back, its operations end at once, and the other rank goes on.
  EXPECT_EQ(run_each(op(OpKind::kSave, 2, 1)), (std::vector{Code::kOk, Code::kUnavailable}));
  EXPECT_EQ(plane_->rank_status(1).state, RankState::kRestarting);
  clock_.advance(options_.backoff);
  ASSERT_TRUE(wait_for_state(1, RankState::kUp));
  EXPECT_EQ(plane_->rank_status(1).starts, 2u);
  EXPECT_EQ(plane_->memory_epoch(1), 1u);
  EXPECT_EQ(run(op(OpKind::kSave, 3, 2)), Code::kOk);
  EXPECT_EQ(run(op(OpKind::kLoad, 3, 2, 1)), Code::kOk);
}

TEST_F(RankLoss, CountersOfALostRankOnlyRise) {
  open_and_wait(make_geometry(1));
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  kill_rank(0);
  expect_back(0);
  EXPECT_EQ(plane_->stats(0).path(OpKind::kSave).ops, 1u);
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  EXPECT_EQ(plane_->stats(0).path(OpKind::kSave).ops, 2u);
}

class KilledIn : public RankLoss, public ::testing::WithParamInterface<OpKind> {};

TEST_P(KilledIn, RankKilledInTheMiddleOfACopyEndsWhatItHadAsUnavailable) {
  const bool in_load = GetParam() == OpKind::kLoad;
  play(in_load ? "stop_in_load" : "stop_in_save");
  open_and_wait(make_geometry(1, 1));
  EXPECT_EQ(run(op(OpKind::kSave, 7, 0, 0)), Code::kOk);
  // The helper stops itself in the copy of block 1; two more operations wait behind it.
  BlockOp stopping = op(GetParam(), 7, in_load ? 0 : 1, 1);
  const std::vector<BlockOp> ops = {stopping, op(OpKind::kSave, 8, 2), op(OpKind::kStoreExists, 9)};
  ASSERT_TRUE(plane_->submit(ops));
  ASSERT_TRUE(wait_stopped(0));
  kill_rank(0);
  const std::vector<Completion> ended = wait_for(3);
  std::set<uint64_t> jobs;
  for (const Completion& completion : ended) {
    jobs.insert(completion.job.value());
    // The rank may have refused the question to its store before it stopped.
    EXPECT_EQ(completion.code, Code::kUnavailable);
  }
  EXPECT_EQ(jobs.size(), 3u);
  EXPECT_EQ(plane_->memory_epoch(0), 1u);
  EXPECT_EQ(plane_->submit_capacity(), options_.ring_ops);
  expect_back(0);
  EXPECT_EQ(run(op(OpKind::kSave, 7, 0, 0)), Code::kOk);
}

INSTANTIATE_TEST_SUITE_P(Copies, KilledIn, ::testing::Values(OpKind::kSave, OpKind::kLoad));

TEST_F(RankLoss, OkOfASaveThatHasNotBeenPolledIsTakenBackWithTheMemory) {
  open_and_wait(make_geometry(1));
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  ASSERT_TRUE(plane_->submit(std::vector{op(OpKind::kSave, 2, 1), op(OpKind::kLoad, 1, 0, 2)}));
  // Both are done, and their completions stand in the ring, before the rank dies.
  while (plane_->stats(0).path(OpKind::kSave).ops < 2 ||
         plane_->stats(0).path(OpKind::kLoad).ops < 1) {
    std::this_thread::yield();
  }
  kill_and_wait(0);
  const std::vector<Completion> ended = wait_for(2);
  std::map<uint64_t, Code> codes;
  for (const Completion& completion : ended) codes[completion.job.value()] = completion.code;
  EXPECT_EQ(codes[last_job_ - 1], Code::kUnavailable) << "the save: its slot is gone";
  EXPECT_EQ(codes[last_job_], Code::kOk) << "the load: the device has its block";
  EXPECT_EQ(plane_->memory_epoch(0), 1u);
}

TEST_F(RankLoss, StoppedRankDelaysNobodyAndGoesOnWhereItWas) {
  open_and_wait(make_geometry(2));
  stop_rank(1);
  // As many as the ring holds are taken, then it is full: busy, not waiting.
  size_t submitted = 0;
  while (plane_->submit_capacity() > 0) {
    const BlockOp save = op(OpKind::kSave, submitted, static_cast<uint32_t>(submitted % kSlots));
    ASSERT_TRUE(plane_->submit({&save, 1}));
    ++submitted;
    std::array<Completion, 64> out;
    const size_t count = plane_->poll(out);
    taken_.insert(taken_.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
  }
  EXPECT_EQ(submitted, options_.ring_ops);
  const BlockOp save = op(OpKind::kSave, 1);
  EXPECT_FALSE(plane_->submit({&save, 1}));
  // The other rank has done all of it.
  for (const Completion& completion : wait_for(submitted)) EXPECT_EQ(completion.rank, 0);
  clock_.advance(options_.rank_hard_limit - Duration(1));
  std::array<Completion, 1> out;
  EXPECT_EQ(plane_->poll(out), 0u);
  EXPECT_EQ(plane_->rank_status(1).state, RankState::kUp);
  kill_rank(1, SIGCONT);
  for (const Completion& completion : wait_for(submitted)) EXPECT_EQ(completion.code, Code::kOk);
  EXPECT_EQ(plane_->submit_capacity(), options_.ring_ops);
  EXPECT_EQ(plane_->memory_epoch(1), 0u);
}

TEST_F(RankLoss, RankThatIsStoppedForEverIsKilledAtTheHardLimit) {
  open_and_wait(make_geometry(2));
  stop_rank(1);
  const int64_t pid = pid_of(1);
  const BlockOp save = op(OpKind::kSave, 1);
  ASSERT_TRUE(plane_->submit({&save, 1}));
  EXPECT_EQ(wait_for(1)[0].rank, 0);
  clock_.advance(options_.rank_hard_limit);
  const std::vector<Completion> ended = wait_for(1);
  EXPECT_EQ(ended[0].rank, 1);
  EXPECT_EQ(ended[0].code, Code::kUnavailable);
  EXPECT_FALSE(exists(pid)) << "completed while its process could still touch memory";
  EXPECT_NE(plane_->rank_status(1).last_error.find("rank_hard_limit"), std::string::npos);
  EXPECT_EQ(plane_->memory_epoch(1), 1u);
  expect_back(1);
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
}

TEST_F(RankLoss, IdleRankHasNoHardLimit) {
  open_and_wait(make_geometry(1));
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(options_.rank_hard_limit * 2);
    EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  }
  EXPECT_EQ(plane_->rank_status(0).starts, 1u);
}

TEST_F(RankLoss, WhoeverPollsLateDoesNotBlameTheRank) {
  open_and_wait(make_geometry(1));
  const std::vector<BlockOp> ops = {op(OpKind::kSave, 1), op(OpKind::kSave, 2, 1)};
  ASSERT_TRUE(plane_->submit(ops));
  while (plane_->stats(0).path(OpKind::kSave).ops < 2) std::this_thread::yield();
  clock_.advance(options_.rank_hard_limit * 2);
  // Nor whoever takes the answers one by one.
  for (int i = 0; i < 2; ++i) {
    std::array<Completion, 1> out;
    ASSERT_TRUE(readable(plane_->completion_fd(), kHangMs));
    while (plane_->poll(out) == 0) {
    }
    EXPECT_EQ(out[0].code, Code::kOk);
    clock_.advance(options_.rank_hard_limit * 2);
  }
  EXPECT_EQ(plane_->rank_status(0).starts, 1u);
}

TEST_F(RankLoss, WhoeverPollsLateDuringTheHandshakeDoesNotBlameTheRankEither) {
  open(make_geometry(1));
  while (plane_->rank_status(0).state != RankState::kUp) {
    ASSERT_TRUE(readable(plane_->completion_fd(), kHangMs));
    clock_.advance(options_.handshake_timeout - Duration(1));
    std::array<Completion, 1> out;
    plane_->poll(out);
    ASSERT_EQ(plane_->rank_status(0).last_error, "");
  }
}

TEST_F(RankLoss, EachStepOfTheHandshakeHasALimitOfItsOwn) {
  play("stop_before_ready");
  open(make_geometry(1, 1));
  ASSERT_TRUE(wait_until([&] { return pid_of(0) != 0; }));
  clock_.advance(options_.handshake_timeout - Duration(1));
  ASSERT_TRUE(wait_stopped(0));
  clock_.advance(options_.handshake_timeout - Duration(1));
  std::array<Completion, 1> out;
  plane_->poll(out);
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kStarting);
  clock_.advance(Duration(1));
  plane_->poll(out);
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kLost);
}

class KilledBefore : public RankLoss, public ::testing::WithParamInterface<const char*> {};

TEST_P(KilledBefore, RankKilledInTheHandshakeIsStartedAgain) {
  play(GetParam());
  open(make_geometry(1, 1));
  ASSERT_TRUE(wait_stopped(0));
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kStarting);
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kUnavailable);
  kill_rank(0);
  ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
  EXPECT_EQ(plane_->memory_epoch(0), 0u) << "it never had anything in its memory";
  clock_.advance(options_.backoff);
  ASSERT_TRUE(wait_stopped(0));
  EXPECT_EQ(plane_->rank_status(0).starts, 2u);
}

TEST_P(KilledBefore, RankThatHangsInTheHandshakeIsKilledAtItsLimit) {
  play(GetParam());
  open(make_geometry(1, 1));
  ASSERT_TRUE(wait_stopped(0));
  const int64_t pid = pid_of(0);
  clock_.advance(options_.handshake_timeout);
  ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
  EXPECT_FALSE(exists(pid));
  EXPECT_NE(plane_->rank_status(0).last_error.find("not up within"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Steps, KilledBefore,
                         ::testing::Values("stop_before_hello", "stop_before_ready"));

TEST_F(RankLoss, RankThatIsKilledAtOnceIsTriedAgainLessAndLessOftenAndThenGivenUp) {
  play("be_killed");
  options_.restarts_max = 3;
  options_.backoff = std::chrono::milliseconds(100);
  options_.backoff_max = std::chrono::milliseconds(150);
  open(make_geometry(1, 1));
  for (const int ms : {100, 150, 150}) {
    wait_for_end_of_start(0);
    const uint32_t starts = plane_->rank_status(0).starts;
    clock_.advance(std::chrono::milliseconds(ms) - Duration(1));
    std::array<Completion, 1> out;
    plane_->poll(out);
    EXPECT_EQ(plane_->rank_status(0).starts, starts) << "too early";
    clock_.advance(Duration(1));
    plane_->poll(out);
    EXPECT_EQ(plane_->rank_status(0).starts, starts + 1);
  }
  wait_for_end_of_start(0);
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kLost);
  EXPECT_EQ(plane_->rank_status(0).starts, 4u);
  EXPECT_NE(plane_->rank_status(0).last_error.find("killed by signal 9"), std::string::npos)
      << plane_->rank_status(0).last_error;
  EXPECT_EQ(plane_->wait_until_up(kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kUnavailable);
}

TEST_F(RankLoss, RankOfAnotherProtocolVersionIsRefusedAndNotTriedAgain) {
  play("other_version");
  open(make_geometry(1, 1));
  ASSERT_TRUE(wait_for_state(0, RankState::kLost));
  const Status up = plane_->wait_until_up(kNoDeadline);
  ASSERT_EQ(up.code(), Code::kUnavailable);
  EXPECT_NE(up.error().message().find("version of the other side is 99; allowed: 2"),
            std::string::npos)
      << up.error().message();
  EXPECT_EQ(plane_->rank_status(0).starts, 1u);
}

TEST_F(RankLoss, WaitUntilUpNamesTheRanksThatAreMissingAtItsDeadline) {
  play("stop_before_hello");
  open(make_geometry(1, 1));
  const Status up = plane_->wait_until_up(clock_.now());
  ASSERT_EQ(up.code(), Code::kTimeout);
  EXPECT_NE(up.error().message().find("rank 0 (starting)"), std::string::npos)
      << up.error().message();
}

TEST_F(RankLoss, RankKilledWhileItClosesEndsCloseAllTheSame) {
  play("stop_in_close");
  open_and_wait(make_geometry(1, 1));
  ASSERT_TRUE(plane_->submit(std::vector{op(OpKind::kSave, 1)}));
  const auto pid = static_cast<pid_t>(pid_of(0));
  std::thread killer([pid] {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WEXITED | WNOWAIT);
    EXPECT_EQ(info.si_code, CLD_STOPPED);
    ::kill(pid, SIGKILL);
  });
  EXPECT_TRUE(plane_->close(kNoDeadline));
  killer.join();
  EXPECT_FALSE(exists(pid));
  EXPECT_EQ(wait_for(1).size(), 1u);
}

TEST_F(RankLoss, CloseKillsARankThatIsStoppedAndEndsWhatItHad) {
  open_and_wait(make_geometry(2));
  const std::vector<int64_t> pids = {pid_of(0), pid_of(1)};
  stop_rank(1);
  const BlockOp save = op(OpKind::kSave, 1);
  ASSERT_TRUE(plane_->submit({&save, 1}));
  ASSERT_TRUE(wait_until([&] { return !taken_.empty(); }));
  EXPECT_TRUE(plane_->close(clock_.now()));
  EXPECT_EQ(codes_of(wait_for(2)), (std::vector{Code::kOk, Code::kUnavailable}));
  for (const int64_t pid : pids) EXPECT_FALSE(exists(pid));
}

TEST_F(RankLoss, CloseInTheMiddleOfAHandshakeLeavesNothing) {
  for (const char* part : {"stop_before_hello", "stop_before_ready"}) {
    play(part);
    open(make_geometry(1, 1));
    ASSERT_TRUE(wait_stopped(0));
    const int64_t pid = pid_of(0);
    EXPECT_TRUE(plane_->close(kNoDeadline)) << part;
    EXPECT_FALSE(exists(pid)) << part;
  }
}

// Ranks are killed, stopped and continued in the middle of a random load, and the clock jumps over
// back-offs and limits: still every operation ends once on every rank, and no save of an earlier
// epoch is called ok in a later one.
TEST_F(RankLoss, EveryOpCompletesExactlyOncePerRankWhileRanksAreKilledAndStopped) {
  constexpr uint32_t kRanks = 3;
  options_.restarts_max = UINT32_MAX;
  options_.store_url = "memory:";
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Random random(seed);
    open_and_wait(make_geometry(kRanks));
    struct Given {
      OpKind kind;
      std::array<uint64_t, kRanks> epochs;
    };
    std::vector<Given> given;
    std::map<std::pair<uint32_t, uint32_t>, int> ended;
    uint32_t oks = 0;
    const auto epochs = [&] {
      std::array<uint64_t, kRanks> now{};
      for (uint32_t r = 0; r < kRanks; ++r) now[r] = plane_->memory_epoch(r);
      return now;
    };
    const auto poll_some = [&](size_t count) {
      std::vector<Completion> out(count);
      out.resize(plane_->poll(out));
      const auto now = epochs();
      for (const Completion& completion : out) {
        ++ended[{completion.item, completion.rank}];
        if (completion.code != Code::kOk) continue;
        ++oks;
        const Given& op = given[completion.item];
        if (op.kind != OpKind::kSave && op.kind != OpKind::kStoreGet) continue;
        ASSERT_EQ(op.epochs[completion.rank], now[completion.rank]);
      }
    };
    for (int step = 0; step < 1500; ++step) {
      std::vector<BlockOp> ops(random.below(12));
      for (size_t i = 0; i < ops.size(); ++i) {
        ops[i] = make_op(static_cast<OpKind>(random.below(kOpKindCount)), random.below(6),
                         nth_slot(*geometry_, GroupId(0), static_cast<uint32_t>(random.below(9))),
                         static_cast<uint32_t>(random.below(kDeviceBlocks)));
        ops[i].job = JobId(seed + 1);
        ops[i].item = static_cast<uint32_t>(given.size() + i);
      }
      if (plane_->submit(ops)) {
        for (const BlockOp& op : ops) given.push_back({op.kind, epochs()});
      }
      const auto rank = static_cast<uint32_t>(random.below(kRanks));
      const auto pid = static_cast<pid_t>(pid_of(rank));
      if (pid != 0 && random.chance(0.02)) ::kill(pid, SIGKILL);
      if (pid != 0 && random.chance(0.02)) ::kill(pid, SIGSTOP);
      if (pid != 0 && random.chance(0.05)) ::kill(pid, SIGCONT);
      if (random.chance(0.05)) clock_.advance(options_.backoff * 3);
      if (random.chance(0.01)) clock_.advance(options_.rank_hard_limit);
      // The ranks shall have their share of the processors.
      if (random.chance(0.1)) readable(plane_->completion_fd(), 1);
      poll_some(random.below(60));
    }
    EXPECT_GT(given.size(), 100u);
    // All of them come back, and then all is well.
    const auto is_up = [&](uint32_t r) { return plane_->rank_status(r).state == RankState::kUp; };
    do {
      for (uint32_t r = 0; r < kRanks; ++r) {
        if (pid_of(r) != 0) ::kill(static_cast<pid_t>(pid_of(r)), SIGCONT);
      }
      clock_.advance(options_.backoff * 3);
      readable(plane_->completion_fd(), 1);
      poll_some(60);
    } while (!is_up(0) || !is_up(1) || !is_up(2));
    oks = 0;
    while (oks < kRanks) {
      BlockOp last = make_op(OpKind::kSave, 1, nth_slot(*geometry_, GroupId(0), 0));
      last.job = JobId(seed + 1);
      last.item = static_cast<uint32_t>(given.size());
      if (plane_->submit({&last, 1})) given.push_back({last.kind, epochs()});
      ASSERT_TRUE(readable(plane_->completion_fd(), kHangMs));
      poll_some(60);
    }
    ASSERT_TRUE(plane_->close(clock_.now()));
    for (size_t before = SIZE_MAX; before != ended.size();) {
      before = ended.size();
      poll_some(100);
    }
    EXPECT_GT(plane_->rank_status(0).starts, 1u);
    ASSERT_EQ(ended.size(), kRanks * given.size());
    for (const auto& [op, count] : ended) ASSERT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace tiercel
