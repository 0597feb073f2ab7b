// SPDX-License-Identifier: Apache-2.0
//
// Ranks that lie: whatever they say on the socket or write into the channel, they are cut off, what
// they had ends, and plane and other ranks live.
#include "transfer/process/join_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class HostileRank : public JoinTest {
 protected:
  // A truthful rank 0 and a rank 1 that will lie, with one operation each.
  void open_with_op() {
    open(make_geometry(2));
    good_ = join(0);
    bad_ = join(1);
    op_ = op(OpKind::kSave, 1);
    ASSERT_TRUE(plane_->submit({&op_, 1}));
  }

  // Rank 1 has been cut off for what it did, and rank 0 goes on.
  void expect_cut_off(const std::string& why) {
    // What is found in a ring is acted upon in the next poll, for which the descriptor asks.
    poll_plane();
    if (plane_->rank_status(1).state != RankState::kLost) {
      EXPECT_TRUE(readable(plane_->completion_fd(), 0));
      poll_plane();
    }
    EXPECT_EQ(plane_->rank_status(1).state, RankState::kLost);
    EXPECT_NE(plane_->rank_status(1).last_error.find(why), std::string::npos)
        << plane_->rank_status(1).last_error;
    EXPECT_TRUE(bad_->is_cut_off());
    EXPECT_EQ(plane_->memory_epoch(1), 1u);
    // It still has our memory: what it had under way has not let go.
    EXPECT_TRUE(taken_.empty());
    bad_->hang_up();
    const std::vector<Completion> ended = wait_for(1);
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended[0].rank, 1);
    EXPECT_EQ(ended[0].job, op_.job);
    EXPECT_EQ(ended[0].code, Code::kUnavailable);
    expect_good_lives();
    // And anybody may take its place.
    bad_ = join(1);
    EXPECT_EQ(plane_->memory_epoch(1), 1u);
  }
  void expect_good_lives() {
    good_->complete(good_->completion_of(good_->take_op()));
    const std::vector<Completion> ended = wait_for(1);
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended[0].rank, 0);
    EXPECT_EQ(ended[0].code, Code::kOk);
    EXPECT_EQ(plane_->rank_status(0).state, RankState::kUp);
  }

  std::unique_ptr<FakeRank> good_, bad_;
  BlockOp op_;
};

TEST_F(HostileRank, OneThatTellsTheTruthIsBelieved) {
  open_with_op();
  bad_->complete(bad_->completion_of(bad_->take_op(), Code::kNoSpace));
  const std::vector<Completion> ended = wait_for(1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kNoSpace);
  expect_good_lives();
}

struct Lie {
  const char* name;
  void (*change)(Completion& completion);
};

class LyingCompletion : public HostileRank, public ::testing::WithParamInterface<Lie> {};

TEST_P(LyingCompletion, IsNeverHandedOn) {
  open_with_op();
  Completion completion = bad_->completion_of(bad_->take_op());
  GetParam().change(completion);
  bad_->complete(completion);
  expect_cut_off("it completed what it has not been given");
}

INSTANTIATE_TEST_SUITE_P(
    All, LyingCompletion,
    ::testing::Values(Lie{"OfAnotherJob", [](Completion& c) { c.job = JobId(77); }},
                      Lie{"OfAnotherItem", [](Completion& c) { c.item = 1; }},
                      Lie{"OfAnotherRank", [](Completion& c) { c.rank = 0; }},
                      Lie{"OfNoRank", [](Completion& c) { c.rank = UINT16_MAX; }},
                      Lie{"WithACodeThatIsNone",
                          [](Completion& c) { c.code = static_cast<Code>(11); }},
                      Lie{"WithReservedBytes", [](Completion& c) { c.reserved = 1; }}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(HostileRank, CompletionOfAnOpThatHasEndedBeforeIsALie) {
  open_with_op();
  const BlockOp first = bad_->take_op();
  bad_->complete(bad_->completion_of(first));
  EXPECT_EQ(wait_for(1).size(), 1u);
  op_ = op(OpKind::kSave, 2);
  ASSERT_TRUE(plane_->submit({&op_, 1}));
  bad_->complete(bad_->completion_of(first));
  expect_cut_off("or twice");
}

TEST_F(HostileRank, TheSameCompletionTwiceInOneBatchIsALie) {
  open_with_op();
  const BlockOp second = op(OpKind::kSave, 2);
  ASSERT_TRUE(plane_->submit({&second, 1}));
  op_ = second;
  const Completion completion = bad_->completion_of(bad_->take_op());
  bad_->complete(completion);
  bad_->complete(completion);
  poll_plane();
  // The first was true, and comes before the memory counts as lost.
  ASSERT_EQ(taken_.size(), 1u);
  EXPECT_EQ(taken_[0].code, Code::kOk);
  EXPECT_EQ(plane_->memory_epoch(1), 0u);
  taken_.clear();
  expect_cut_off("or twice");
}

TEST_F(HostileRank, MoreCompletionsThanOperationsAreALie) {
  open_with_op();
  bad_->completions_counters().produced.store(2);
  bad_->announce();
  poll_plane();
  expect_cut_off("");
}

TEST_F(HostileRank, CompletionsBeyondTheRingAreALie) {
  for (const uint64_t produced : {uint64_t{9}, uint64_t{1} << 40, UINT64_MAX}) {
    open_with_op();
    bad_->completions_counters().produced.store(produced);
    bad_->announce();
    expect_cut_off("more completions than");
  }
}

TEST_F(HostileRank, RoomThatIsTakenBackIsALieAndTheOperationsEndAtOnce) {
  open_with_op();
  bad_->ops_counters().consumed.store(UINT64_MAX - 8);
  const BlockOp next = op(OpKind::kSave, 2);
  ASSERT_TRUE(plane_->submit({&next, 1}));
  poll_plane();
  ASSERT_EQ(taken_.size(), 1u);
  EXPECT_EQ(taken_[0].job, next.job);
  EXPECT_EQ(taken_[0].rank, 1);
  EXPECT_EQ(taken_[0].code, Code::kUnavailable);
  taken_.clear();
  expect_cut_off("less room");
}

TEST_F(HostileRank, WordsOfAnyValueAreHarmless) {
  open_with_op();
  const BlockOp first = bad_->take_op();
  for (const uint32_t value : {1u, 2u, UINT32_MAX}) {
    ChannelWords& words = bad_->words();
    words.rank_sleeps.store(value);
    words.announced.store(value);
    words.closing.store(value);
    words.close_within_ns.store(-1);
    EXPECT_EQ(poll_plane(), 0u);
  }
  bad_->complete(bad_->completion_of(first));
  EXPECT_EQ(wait_for(1).size(), 1u);
  EXPECT_EQ(plane_->rank_status(1).state, RankState::kUp);
}

TEST_F(HostileRank, MessageOutOfTurnCutsOff) {
  const auto hello = encode_hello({1, {}});
  const std::vector<std::byte> noise(33, std::byte{7});
  for (const auto& message : {hello, encode_ready(), noise}) {
    open_with_op();
    ASSERT_TRUE(bad_->say(message));
    expect_cut_off("out of turn");
  }
}

TEST_F(HostileRank, DescriptorsFromARankCutItOff) {
  open_with_op();
  const std::array<int, 1> fds = {bad_->fd()};
  ASSERT_TRUE(bad_->say(encode_ready(), fds));
  poll_plane();
  EXPECT_EQ(plane_->rank_status(1).state, RankState::kLost);
  EXPECT_NE(plane_->rank_status(1).last_error.find("descriptors"), std::string::npos);
}

TEST_F(HostileRank, CutOffRankKeepsItsPlaceUntilItHasHungUp) {
  open_with_op();
  ASSERT_TRUE(bad_->say(encode_ready()));
  poll_plane();
  ASSERT_EQ(plane_->rank_status(1).state, RankState::kLost);
  auto next = connect();
  ASSERT_TRUE(next->say(encode_hello({1, {}})));
  poll_plane();
  const Status refused = next->hear_refusal();
  EXPECT_EQ(refused.code(), Code::kBusy);
  EXPECT_NE(refused.error().message().find("has not let go"), std::string::npos)
      << refused.error().message();
  // Hours later it is still so; new operations end at once meanwhile.
  clock_.advance(std::chrono::hours(5));
  EXPECT_EQ(poll_plane(), 0u);
  bad_->hang_up();
  EXPECT_EQ(wait_for(1)[0].rank, 1);
}

TEST_F(HostileRank, HelloThatIsNoneIsRefusedWithTheReasonAndChangesNothing) {
  open(make_geometry(2));
  std::vector<std::byte> other_version = encode_hello({0, {}});
  other_version[4] = std::byte{3};
  std::vector<std::byte> truncated = encode_hello({0, {}});
  truncated.resize(truncated.size() - 1);
  const auto bytes = [](size_t count) { return std::vector<std::byte>(count, std::byte{1}); };
  for (const auto& [message, why] :
       {std::pair(other_version, "protocol version of the other side is 3; allowed: 2"),
        std::pair(truncated, "message length"), std::pair(bytes(3), "message length"),
        std::pair(bytes(200), "magic"), std::pair(encode_ready(), "kind of message"),
        std::pair(encode_hello({2, {}}), "rank is 2; allowed: less than 2"),
        std::pair(encode_hello({UINT32_MAX, {}}), "rank is 4294967295"),
        std::pair(encode_hello({0, test_namespace(5)}), "namespace is")}) {
    auto rank = connect();
    ASSERT_TRUE(rank->say(message));
    poll_plane();
    const Status refused = rank->hear_refusal();
    EXPECT_EQ(refused.code(), Code::kInvalid) << why;
    EXPECT_NE(refused.error().message().find(why), std::string::npos) << refused.error().message();
    EXPECT_TRUE(rank->is_cut_off());
    EXPECT_EQ(plane_->rank_status(0).state, RankState::kStarting);
  }
  // A datagram that is longer than any of ours is not even read.
  auto rank = connect();
  ASSERT_TRUE(rank->say(bytes(kHandshakeBytesMax + 1)));
  poll_plane();
  EXPECT_TRUE(rank->is_cut_off());
  join(0);
  join(1);
}

TEST_F(HostileRank, ReadyThatIsNoneCutsOffBeforeAnythingIsSubmitted) {
  open(make_geometry(1));
  for (const auto& message : {encode_hello({0, {}}), std::vector<std::byte>(16, std::byte{1})}) {
    auto rank = connect();
    ASSERT_TRUE(rank->say(encode_hello({0, {}})));
    poll_plane();
    rank->take_welcome();
    ASSERT_TRUE(rank->say(message));
    poll_plane();
    EXPECT_TRUE(rank->is_cut_off());
    EXPECT_EQ(plane_->memory_epoch(0), 0u);
    rank->hang_up();
    ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
  }
}

TEST_F(HostileRank, RefusalOfTheWelcomeIsToldWithItsReason) {
  open(make_geometry(1));
  auto rank = connect();
  ASSERT_TRUE(rank->say(encode_hello({0, {}})));
  poll_plane();
  ASSERT_TRUE(rank->say(encode_refusal(Error(Code::kNoSpace, "no room\nfor this"))));
  rank->hang_up();
  ASSERT_TRUE(wait_for_state(0, RankState::kRestarting));
  EXPECT_EQ(plane_->rank_status(0).last_error.rfind(
                "no_space: refused by the other side: no room?for this", 0),
            0u)
      << plane_->rank_status(0).last_error;
}

TEST_F(HostileRank, WhoeverSaysNothingIsTurnedAwayAtTheLimitAndBlocksNobody) {
  open(make_geometry(1));
  std::vector<std::unique_ptr<FakeRank>> silent;
  for (uint32_t i = 0; i < 2 * kRankCountMax; ++i) silent.push_back(connect());
  auto talking = connect();
  ASSERT_TRUE(talking->say(encode_hello({0, {}})));
  poll_plane();
  EXPECT_FALSE(talking->hear()) << "it was let in beyond the bound";
  poll_plane();
  EXPECT_FALSE(readable(plane_->completion_fd(), 0)) << "it wakes us though nothing can be done";
  clock_.advance(options_.handshake_timeout);
  poll_plane();
  for (const auto& rank : silent) EXPECT_TRUE(rank->is_cut_off());
  poll_plane();
  poll_plane();
  talking->take_welcome();
}

TEST_F(HostileRank, RankThatIsNeverReadyIsCutOffAtTheLimit) {
  open(make_geometry(1));
  auto rank = connect();
  ASSERT_TRUE(rank->say(encode_hello({0, {}})));
  poll_plane();
  clock_.advance(options_.handshake_timeout);
  poll_plane();
  rank->take_welcome();
  EXPECT_TRUE(rank->is_cut_off());
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kLost);
}

TEST_F(HostileRank, SecondHostOfOneRankIsRefusedWithThePidOfTheFirst) {
  open(make_geometry(1));
  auto first = join(0);
  auto second = connect();
  ASSERT_TRUE(second->say(encode_hello({0, {}})));
  poll_plane();
  const Status refused = second->hear_refusal();
  EXPECT_EQ(refused.code(), Code::kBusy);
  EXPECT_NE(refused.error().message().find("process " + std::to_string(::getpid())),
            std::string::npos)
      << refused.error().message();
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kUp);
}

TEST_F(HostileRank, JoinedRankBeyondTheHardLimitIsCutOffButItsOpsStayQuarantined) {
  open_with_op();
  good_->complete(good_->completion_of(good_->take_op()));
  EXPECT_EQ(wait_for(1)[0].rank, 0);
  clock_.advance(options_.rank_hard_limit);
  EXPECT_EQ(poll_plane(), 0u);
  EXPECT_TRUE(bad_->is_cut_off());
  EXPECT_EQ(poll_plane(), 0u);
  bad_->hang_up();
  EXPECT_EQ(wait_for(1)[0].code, Code::kUnavailable);
}

TEST_F(HostileRank, CloseTellsWhoStillHoldsOn) {
  open_with_op();
  good_->hang_up();
  const Status closed = plane_->close(clock_.now());
  ASSERT_EQ(closed.code(), Code::kTimeout);
  EXPECT_NE(closed.error().message().find("rank 1 (process "), std::string::npos)
      << closed.error().message();
  EXPECT_EQ(closed.error().message().find("rank 0"), std::string::npos);
  bad_->hang_up();
  EXPECT_TRUE(plane_->close(clock_.now()));
  EXPECT_EQ(wait_for(2).size(), 2u);
}

}  // namespace
}  // namespace tiercel
