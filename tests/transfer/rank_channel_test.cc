// SPDX-License-Identifier: Apache-2.0
//
// The channel's memory, and the loop that serves it, with the other side played by the test.
#include "transfer/rank_channel.h"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"
#include "transfer/rank_loop.h"
#include "transfer/rank_port.h"

namespace tiercel {
namespace {

using namespace testing;

constexpr uint32_t kRingOps = 8;

class ChannelMemory {
 public:
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(lines_)); }

 private:
  struct CacheLine {
    alignas(kCacheLineBytes) std::array<std::byte, kCacheLineBytes> bytes;
  };
  std::vector<CacheLine> lines_ =
      std::vector<CacheLine>(RankChannel::bytes(kRingOps) / kCacheLineBytes + 1);
};

ChannelFacts sample_facts() {
  ChannelFacts facts{.ring_ops = kRingOps, .rank = 3, .geometry = {}};
  facts.geometry[0] = std::byte{9};
  return facts;
}

TEST(RankChannel, WhatOneSideFormatsTheOtherOpens) {
  ChannelMemory memory;
  RankChannel::format(memory.bytes(), sample_facts());
  const auto opened = RankChannel::open(memory.bytes(), sample_facts());
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_FALSE(opened->asked_to_close());
  EXPECT_EQ(opened->words().stats.read().path(OpKind::kLoad).ops, 0u);
}

TEST(RankChannel, EveryOtherByteOfTheHeaderIsRefused) {
  for (size_t bit = 0; bit < sizeof(ChannelHeader) * 8; ++bit) {
    ChannelMemory memory;
    RankChannel::format(memory.bytes(), sample_facts());
    memory.bytes()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(RankChannel::open(memory.bytes(), sample_facts()).code(), Code::kInvalid)
        << "bit " << bit;
  }
}

TEST(RankChannel, OtherFactsThanWereAgreedOnAreRefused) {
  ChannelMemory memory;
  RankChannel::format(memory.bytes(), sample_facts());
  const auto code = [&](auto&& change) {
    ChannelFacts facts = sample_facts();
    change(facts);
    return RankChannel::open(memory.bytes(), facts).code();
  };
  EXPECT_EQ(code([](ChannelFacts& f) { f.ring_ops = 4; }), Code::kInvalid);
  EXPECT_EQ(code([](ChannelFacts& f) { f.ring_ops = 1024; }), Code::kInvalid);
  EXPECT_EQ(code([](ChannelFacts& f) { f.ring_ops = 3; }), Code::kInvalid);
  EXPECT_EQ(code([](ChannelFacts& f) { f.rank = 2; }), Code::kInvalid);
  EXPECT_EQ(code([](ChannelFacts& f) { f.geometry[5] = std::byte{1}; }), Code::kInvalid);
  EXPECT_EQ(RankChannel::open(memory.bytes().subspan(8), sample_facts()).code(), Code::kInvalid);
  EXPECT_EQ(
      RankChannel::open(memory.bytes().first(RankChannel::bytes(kRingOps) - 1), sample_facts())
          .code(),
      Code::kInvalid);
}

TEST(RankChannel, StatisticsOfAnyBitsAreStatistics) {
  ChannelMemory memory;
  const RankChannel channel = RankChannel::format(memory.bytes(), sample_facts());
  RankStats stats;
  stats.paths[2] = {1, 2, 3, 4, 5};
  stats.store = {
      .condition = StoreCondition::kOpen, .cause = Code::kTimeout, .opened = 6, .refused = 7};
  channel.words().stats.publish(stats);
  const RankStats read = channel.words().stats.read();
  EXPECT_EQ(read.paths[2].busy_ns, 5u);
  EXPECT_EQ(read.paths[2].ops, 1u);
  EXPECT_EQ(read.store.condition, StoreCondition::kOpen);
  EXPECT_EQ(read.store.cause, Code::kTimeout);
  EXPECT_EQ(read.store.refused, 7u);
  std::memset(static_cast<void*>(&channel.words().stats), 0xff, sizeof(SharedStats));
  EXPECT_EQ(channel.words().stats.read().store.condition, StoreCondition::kNone);
  EXPECT_EQ(channel.words().stats.read().store.cause, Code::kOk);
}

TEST(RankChannel, CloseBudgetIsNeverBelowZero) {
  ChannelMemory memory;
  const RankChannel channel = RankChannel::format(memory.bytes(), sample_facts());
  channel.ask_to_close(Duration(-5));
  EXPECT_TRUE(channel.asked_to_close());
  EXPECT_EQ(channel.close_budget(), Duration::zero());
  channel.ask_to_close(Duration::max());
  EXPECT_EQ(channel.close_budget(), Duration::max());
}

class RankLoopTest : public ::testing::Test {
 protected:
  SpscRingCounters& counters(std::span<std::byte> ring) {
    return *reinterpret_cast<SpscRingCounters*>(ring.data());
  }

  ManualClock clock_;
  SlotGeometry geometry_ = SlotGeometry::for_blocks({{100}}, 16, 4).value();
  TestRank rank_{geometry_, 0, 4};
  std::unique_ptr<RankWorker> worker_ = rank_.make_worker(nullptr, clock_);
  ChannelMemory memory_;
  RankChannel channel_ = RankChannel::format(memory_.bytes(), sample_facts());
  EventFd wake_ = EventFd::create().value();
  EventFd announced_ = EventFd::create().value();
  RankLoop loop_{*worker_, channel_, wake_, Announcer(channel_.words().announced, announced_),
                 clock_};
  RankPort port_{channel_, wake_};
};

// By the time that anybody sees that an operation has failed.
TEST_F(RankLoopTest, WhyTheStoreFailedReachesTheOtherSideWithTheCompletion) {
  FakeStoreHandle store(true);
  store.state->set_words("no master");
  store.state->refuse_with(Code::kUnavailable);
  const std::unique_ptr<RankWorker> worker = rank_.make_worker(store.make(), clock_);
  RankLoop loop(*worker, channel_, wake_, Announcer(channel_.words().announced, announced_),
                clock_);
  EXPECT_TRUE(port_.store_reason().empty());
  ASSERT_TRUE(
      port_.submit({{make_op(OpKind::kStoreExists, 1, nth_slot(geometry_, GroupId(0), 0))}}));
  while (loop.step()) {
  }
  EXPECT_EQ(port_.store_reason().view(), "no master");
}

TEST_F(RankLoopTest, CompletionsAreAnnouncedOnceUntilTheyAreAcknowledged) {
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(port_.submit({&op, 1}));
    EXPECT_TRUE(loop_.step());
  }
  EXPECT_FALSE(loop_.step());
  EXPECT_EQ(announced_.drain(), 1u);
  std::array<Completion, 4> out;
  EXPECT_EQ(port_.poll(out), 3u);
  EXPECT_EQ(port_.stats().path(OpKind::kSave).ops, 3u);
}

TEST_F(RankLoopTest, MoreOperationsThanRoomForTheirCompletionsBreakTheProtocol) {
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0));
  SpscProducer<BlockOp> producer(channel_.ops_memory(), kRingOps);
  const std::vector<BlockOp> eight(kRingOps, op);
  ASSERT_EQ(producer.push(eight), kRingOps);
  while (loop_.step()) {
  }
  EXPECT_FALSE(loop_.peer_broke());
  // Nobody has polled, so there is room for none.
  ASSERT_EQ(producer.push({&op, 1}), 1u);
  EXPECT_FALSE(loop_.step());
  EXPECT_TRUE(loop_.peer_broke());
  EXPECT_EQ(loop_.run(), RankLoopEnd::kPeerBroke);
}

TEST_F(RankLoopTest, RoomThatIsTakenBackBreaksTheProtocolAndNothingIsOverwritten) {
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0));
  ASSERT_TRUE(port_.submit({&op, 1}));
  counters(channel_.completions_memory()).consumed.store(1000);
  EXPECT_FALSE(loop_.step());
  EXPECT_TRUE(loop_.peer_broke());
}

TEST_F(RankLoopTest, PortTakesNoMoreCompletionsThanItHasGivenOperations) {
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0));
  ASSERT_TRUE(port_.submit({&op, 1}));
  EXPECT_TRUE(loop_.step());
  EXPECT_FALSE(port_.is_broken());
  counters(channel_.completions_memory()).produced.store(3);
  EXPECT_TRUE(port_.is_broken());
  std::array<Completion, 4> out;
  EXPECT_EQ(port_.poll(out), 1u);
  EXPECT_EQ(port_.poll(out), 0u);
  counters(channel_.completions_memory()).produced.store(UINT64_MAX);
  EXPECT_TRUE(port_.is_broken());
  EXPECT_EQ(port_.poll(out), 0u);
}

TEST_F(RankLoopTest, PortSubmitsNothingWhereTheRankShowsLessRoomThanItMustHave) {
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0));
  counters(channel_.ops_memory()).consumed.store(uint64_t{0} - kRingOps);
  EXPECT_FALSE(port_.submit({&op, 1}));
  EXPECT_EQ(port_.in_flight(), 0u);
}

TEST_F(RankLoopTest, StopDescriptorEndsTheRun) {
  EventFd stop = EventFd::create().value();
  RankLoop loop(*worker_, channel_, wake_, Announcer(channel_.words().announced, announced_),
                clock_, {.stop_fd = stop.fd()});
  stop.signal();
  EXPECT_EQ(loop.run(), RankLoopEnd::kStopped);
}

TEST_F(RankLoopTest, CloseCompletesWhatWaitsInTheRing) {
  const BlockOp op = make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 0));
  ASSERT_TRUE(port_.submit({&op, 1}));
  port_.ask_to_close(std::chrono::seconds(1));
  EXPECT_EQ(loop_.run(), RankLoopEnd::kAskedToClose);
  EXPECT_EQ(loop_.close_deadline(), clock_.now() + std::chrono::seconds(1));
  EXPECT_TRUE(loop_.close(loop_.close_deadline()));
  Completion completion;
  ASSERT_EQ(port_.poll({&completion, 1}), 1u);
  EXPECT_EQ(completion.code, Code::kCancelled);
}

}  // namespace
}  // namespace tiercel
