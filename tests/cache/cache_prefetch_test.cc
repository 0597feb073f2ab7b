// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CachePrefetch : public CacheFixture {
 protected:
  // Answers questions: the store has the first `present` keys of `keys`.
  void answer_exists(const std::vector<BlockKey>& keys, size_t present) {
    plane->complete_all(OpKind::kStoreExists, [&](const BlockOp& op, uint32_t) {
      const auto at = std::find(keys.begin(), keys.end(), op.key) - keys.begin();
      return static_cast<size_t>(at) < present ? Code::kOk : Code::kNotFound;
    });
  }
};

TEST_F(CachePrefetch, WhatOnlyTheStoreMayHaveIsUnknownUntilAsked) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(4);
  std::vector<BlockPlace> places(4);
  const Match match = cache->match(keys, 0, places);
  EXPECT_EQ(match.ready_blocks, 0u);
  EXPECT_EQ(match.reachable_blocks, 0u);
  EXPECT_EQ(match.possible_blocks, 4u);
  EXPECT_EQ(places[0], BlockPlace::kUnknown);
  EXPECT_EQ(plane->all.size(), 0u) << "a match has no side effects";
}

TEST_F(CachePrefetch, AsksOnceFetchesWhatIsThereAndHoldsIt) {
  open(test_config(16, 2, true));
  const auto keys = test_keys(6);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 6u);
  answer_exists(keys, 4);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 4u);
  std::vector<BlockPlace> places(6);
  EXPECT_EQ(cache->match(keys, 0, places).reachable_blocks, 4u);
  EXPECT_EQ(places[3], BlockPlace::kInFlight);
  EXPECT_EQ(ready(keys), 0u);
  plane->complete_all(OpKind::kStoreGet);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kPrefetchDone);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(ready(keys), 4u);
  EXPECT_EQ(cache->stats().holds, 4u);
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 6u);
  ASSERT_EQ(cache->load(RequestId(1), keys, 0, device(6), kNoDeadline), 4u);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 4u);
  EXPECT_EQ(cache->why(RequestId(1))->spans()[0],
            (WhySpan{4, 1, WhyReason::kStoreAbsent, Code::kOk}));
  EXPECT_EQ(cache->why(RequestId(1))->spans()[1],
            (WhySpan{5, 1, WhyReason::kBehindGap, Code::kOk}));
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CachePrefetch, FieldCaseF31ExistenceIsTheMinimumOverRanks) {
  open(test_config(16, 4, true));
  const auto keys = test_keys(8);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  plane->complete_all(OpKind::kStoreExists, [&](const BlockOp& op, uint32_t rank) {
    return rank == 2 && op.key == keys[5] ? Code::kNotFound : Code::kOk;
  });
  poll();
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 5u);
}

TEST_F(CachePrefetch, AnswersAreRememberedAlsoNegativeOnesAndExpire) {
  CacheConfig config = test_config(16, 1, true);
  config.absence_ttl = 5s;
  open(config);
  const auto keys = test_keys(4);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  answer_exists(keys, 0);
  EXPECT_EQ(poll().at(0).blocks, 0u);
  EXPECT_EQ(cache->prefetch(RequestId(2), keys, 0, kNoDeadline), false);
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 4u);
  clock.advance(5s);
  EXPECT_EQ(cache->prefetch(RequestId(2), keys, 0, kNoDeadline), true);
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 8u);
}

TEST_F(CachePrefetch, RequestsWithTheSameMissingPrefixShareOneTransfer) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(4);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  answer_exists(keys, 4);
  poll();
  ASSERT_EQ(cache->prefetch(RequestId(2), keys, 0, kNoDeadline), true);
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 4u);
  EXPECT_EQ(cache->stats().get_shared, 4u);
  plane->complete_all(OpKind::kStoreGet);
  const auto events = poll();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(events[1].blocks, 4u);
  EXPECT_EQ(cache->stats().holds, 8u);
}

TEST_F(CachePrefetch, TheDeadlineOfWhoStartedATransferIsNotThatOfAllWhoWait) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(2);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, in(10ms)), true);
  answer_exists(keys, 2);
  poll();
  ASSERT_EQ(cache->prefetch(RequestId(2), keys, 0, in(1s)), true);
  EXPECT_EQ(cache->stats().get_shared, 2u);
  clock.advance(10ms);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, RequestId(1));
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 4u) << "the second request fetches for itself";
  plane->complete_all(OpKind::kStoreGet);
  events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 2u);
  EXPECT_EQ(events[0].code, Code::kOk);
}

TEST_F(CachePrefetch, ABadObjectIsAMissAndReplacedAtTheNextSave) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(1);
  for (int round = 0; round < 6; ++round) {
    cache->clear();  // the tiers, and what is known of the store
    settle();
    ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
    answer_exists(keys, 1);
    poll();
    plane->complete_all(OpKind::kStoreGet, Code::kCorrupt);
    EXPECT_EQ(poll().at(0).blocks, 0u);
    ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(1)));
    ASSERT_TRUE(cache->commit(RequestId(1), 4));
    plane->complete_all(OpKind::kSave);
    poll();
    ASSERT_EQ(plane->open_count(OpKind::kStorePut), 1u);
    EXPECT_EQ(plane->open.back().op.replace, 1);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(1)));
  }
  EXPECT_EQ(cache->stats().get_corrupt, 6u);
}

TEST_F(CachePrefetch, AStoreThatFailsEndsThePrefetchWithTheReason) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(4);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  plane->complete_all(OpKind::kStoreExists, Code::kUnavailable);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kUnavailable);
  EXPECT_EQ(cache->why(RequestId(1))->spans()[0],
            (WhySpan{0, 4, WhyReason::kStoreFailed, Code::kUnavailable}));
}

TEST_F(CachePrefetch, AStoreThatNeverAnswersCostsTheDeadlineAndItsSlotsWaitInQuarantine) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(4);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, in(50ms)), true);
  answer_exists(keys, 4);
  poll();
  plane->complete(0);
  poll();
  clock.advance(50ms);
  auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kTimeout);
  EXPECT_EQ(events[0].blocks, 1u);
  EXPECT_EQ(cache->stats().host_slots_quarantined, 3u);
  // A second try starts afresh beside the late answers of the first.
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, in(50ms)), true);
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 7u);
  while (plane->open.size() > 3) plane->complete(0);
  poll();
  EXPECT_EQ(cache->stats().host_slots_quarantined, 0u);
  EXPECT_EQ(ready(keys), 1u) << "late bytes are not published";
  plane->complete_all(OpKind::kStoreGet);
  events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 4u);
}

TEST_F(CachePrefetch, AFullTierEndsThePrefetchWithWhatFitted) {
  open(test_config(4, 1, true));
  const auto keys = test_keys(6);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  answer_exists(keys, 6);
  poll();
  plane->complete_all(OpKind::kStoreGet);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 4u);
  EXPECT_EQ(events[0].code, Code::kNoSpace);
}

TEST_F(CachePrefetch, AFullRingDelaysThePrefetchAndDoesNotEndIt) {
  open(test_config(64, 1, true), 8);
  const auto keys = test_keys(40);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
  for (int round = 0; round < 200; ++round) {
    answer_exists(keys, 40);
    plane->complete_all(OpKind::kStoreGet);
    const auto events = poll();
    if (events.empty()) continue;
    EXPECT_EQ(events[0].blocks, 40u);
    return;
  }
  FAIL() << "never done";
}

TEST_F(CachePrefetch, BlocksBehindTheEnginesOwnAreFetchedWithoutTheirParents) {
  open(test_config(16, 1, true));
  const auto keys = test_keys(6);
  ASSERT_EQ(cache->prefetch(RequestId(1), keys, 3, kNoDeadline), true);
  EXPECT_EQ(plane->count(OpKind::kStoreExists), 3u);
  answer_exists(keys, 6);
  poll();
  plane->complete_all(OpKind::kStoreGet);
  EXPECT_EQ(poll().at(0).blocks, 6u);
  EXPECT_EQ(ready(keys, 3), 6u);
  EXPECT_EQ(ready(keys, 0), 0u) << "without the engine's blocks they are of no use";
}

TEST_F(CachePrefetch, SavedBlocksGoOnToTheStoreOnceAndOnlyIfItLacksThem) {
  open(test_config(16, 2, true));
  const auto keys = test_keys(3);
  store(1, keys);
  EXPECT_EQ(plane->count(OpKind::kStorePut), 3u);
  EXPECT_EQ(cache->stats().put_blocks, 3u);
  cache->clear();
  settle();
  // The store says that it has the first two: only the third is put again.
  ASSERT_EQ(cache->prefetch(RequestId(2), keys, 0, kNoDeadline), true);
  answer_exists(keys, 2);
  poll();
  plane->complete_all(OpKind::kStoreGet);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(2)));
  store(3, keys);
  EXPECT_EQ(plane->count(OpKind::kStorePut), 4u);
}

TEST_F(CachePrefetch, AFailedPutIsToldInTheWhyRecordAfterTheRequestHasEnded) {
  open(test_config(16, 2, true));
  const auto keys = test_keys(3);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(3)));
  ASSERT_TRUE(cache->commit(RequestId(1), 12));
  plane->complete_all(OpKind::kSave);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  plane->complete_all(OpKind::kStorePut, Code::kNoSpace);
  poll();
  ASSERT_NE(cache->why(RequestId(1)), nullptr);
  EXPECT_EQ(cache->why(RequestId(1))->spans().back(),
            (WhySpan{0, 3, WhyReason::kPutFailed, Code::kNoSpace}));
  EXPECT_EQ(ready(keys), 3u);
}

TEST_F(CachePrefetch, SelectivePutsWaitForTheNthHit) {
  CacheConfig config = test_config(16, 1, true);
  config.host_to_store = WritePolicy::kWriteThroughSelective;
  config.selective_hits = 2;
  open(config);
  const auto keys = test_keys(2);
  store(1, keys);
  for (uint64_t request = 2; request <= 3; ++request) {
    EXPECT_EQ(plane->count(OpKind::kStorePut), 0u);
    ASSERT_EQ(cache->load(RequestId(request), keys, 0, device(2), kNoDeadline), 2u);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(request)));
  }
  EXPECT_EQ(plane->count(OpKind::kStorePut), 2u);
}

TEST_F(CachePrefetch, StatsTellTheLeastHealthyStoreOfAllRanks) {
  open(test_config(16, 3, true));
  EXPECT_EQ(cache->stats().store.condition, StoreCondition::kNone);
  plane->rank_stats.resize(3);
  plane->rank_stats[0].store = {StoreCondition::kUp, Code::kOk, 1, 10};
  plane->rank_stats[1].store = {StoreCondition::kOpen, Code::kTimeout, 2, 20};
  plane->rank_stats[2].store = {StoreCondition::kProbing, Code::kUnavailable, 3, 30};
  const StoreHealth health = cache->stats().store;
  EXPECT_EQ(to_string(health), "open (timeout)");
  EXPECT_EQ(health.opened, 6u);
  EXPECT_EQ(health.refused, 60u);
}

TEST_F(CachePrefetch, StatsTellWhyTheLeastHealthyStoreFailed) {
  open(test_config(16, 3, true));
  EXPECT_TRUE(cache->stats().store_reason.empty());
  plane->store_reasons = {"", "of the second", "of the third"};
  EXPECT_EQ(cache->stats().store_reason.view(), "of the second");
  plane->rank_stats.resize(3);
  plane->rank_stats[2].store.condition = StoreCondition::kOpen;
  EXPECT_EQ(cache->stats().store_reason.view(), "of the third");
}

TEST_F(CachePrefetch, AStoreThatFailsIsQuotedInTheWhyRecord) {
  open(test_config(16, 2, true));
  const auto keys = test_keys(2);
  plane->store_reasons = {"", "no master at a:1"};
  ASSERT_TRUE(*cache->prefetch(RequestId(1), keys, 0, kNoDeadline));
  plane->complete_all(OpKind::kStoreExists, Code::kUnavailable);
  poll();
  EXPECT_EQ(cache->why(RequestId(1))->spans()[0].reason, WhyReason::kStoreFailed);
  EXPECT_EQ(cache->why(RequestId(1))->store_reason.view(), "no master at a:1");
  // What was computed instead cannot be put either.
  ASSERT_TRUE(cache->save(RequestId(2), keys, 0, device(2)));
  ASSERT_TRUE(cache->commit(RequestId(2), 8));
  plane->complete_all(OpKind::kSave);
  poll();
  plane->complete_all(OpKind::kStorePut, Code::kTimeout);
  poll();
  EXPECT_EQ(cache->why(RequestId(2))->store_reason.view(), "no master at a:1");
}

}  // namespace
}  // namespace tiercel
