// SPDX-License-Identifier: Apache-2.0
//
// Load or recompute, by way of the cache.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cache/disk_cache_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

// A block is 64 bytes and 4 tokens: 4 ms of prefill.
constexpr double kBlockPerMillisecond = 64 * 1000;

class CacheCost : public DiskCacheFixture {
 protected:
  CacheConfig config(uint32_t host_blocks, bool with_store) const {
    CacheConfig config = test_config(host_blocks, 1, with_store);
    config.load_or_recompute.enabled = true;
    config.load_or_recompute.transfers = {
        TransferRate{0ms, 10 * kBlockPerMillisecond},
        TransferRate{1ms, kBlockPerMillisecond},
        TransferRate{2ms, kBlockPerMillisecond},
        TransferRate{1ms, 1e6},
    };
    config.load_or_recompute.prefill.tokens_per_second = 1000;
    return config;
  }
  // The store has what it is asked for.
  void answer_exists() { plane->complete_all(OpKind::kStoreExists); }
  bool start_prefetch(uint64_t request, const std::vector<BlockKey>& keys,
                      Duration wait = Duration(0)) {
    const auto started = cache->prefetch(RequestId(request), keys, 0, kNoDeadline, wait);
    EXPECT_TRUE(started) << started.error().message();
    return started && *started;
  }
  // The whole of a prefetch in which all blocks come together after `duration`.
  void prefetch_in(uint64_t request, const std::vector<BlockKey>& keys, Duration duration) {
    ASSERT_TRUE(start_prefetch(request, keys));
    clock.advance(1ms);
    answer_exists();
    EXPECT_TRUE(poll().empty());
    clock.advance(duration);
    plane->complete_all(OpKind::kStoreGet);
    EXPECT_EQ(poll().size(), 1u);
  }
  const WhyRecord& why_of(uint64_t request) { return *cache->why(RequestId(request)); }
  std::vector<WhySpan> spans_of(uint64_t request) {
    const auto spans = why_of(request).spans();
    return {spans.begin(), spans.end()};
  }
  void end(uint64_t request) { EXPECT_TRUE(cache->finish(RequestId(request))); }
  // Blocks take twice as long from the store as the engine computes them, until it is not asked
  // any more.
  void make_store_slow() {
    for (uint64_t request = 100; request < 110; ++request) {
      const auto keys = test_keys(8, static_cast<uint32_t>(1000 * request));
      if (!start_prefetch(request, keys)) break;
      clock.advance(1ms);
      answer_exists();
      poll();
      while (plane->open_count(OpKind::kStoreGet) > 0) {
        clock.advance(8ms);
        plane->complete(0);
        poll();
      }
    }
  }
};

TEST_F(CacheCost, WhatIsWorthItIsLoadedAndTheRecordSaysSo) {
  open(config(32, false));
  const auto keys = test_keys(8);
  store(1, keys);
  EXPECT_EQ(cache->load(RequestId(2), keys, 2, device(6), kNoDeadline), 6u);
  clock.advance(3ms);
  plane->complete_all(OpKind::kLoad);
  ASSERT_EQ(poll().size(), 1u);
  const LoadChoice& choice = why_of(2).load_choice;
  EXPECT_TRUE(choice.made);
  EXPECT_EQ(choice.first_block, 2u);
  EXPECT_EQ(choice.blocks_there, 6u);
  EXPECT_EQ(choice.blocks_chosen, 6u);
  EXPECT_EQ(choice.load_expected, 600us);
  EXPECT_EQ(choice.prefill_expected, 0ms);
  EXPECT_EQ(choice.recompute_expected, 24ms);
  EXPECT_EQ(choice.time_saved, 24ms - 600us);
  EXPECT_TRUE(choice.measured);
  EXPECT_EQ(choice.load_measured, 3ms);
  EXPECT_EQ(cache->stats().load_choices, 1u);
  EXPECT_EQ(cache->stats().not_worth_blocks, 0u);
  EXPECT_NE(why_of(2).to_string().find("load: 6 of 6 blocks behind block 2 worth loading"),
            std::string::npos)
      << why_of(2).to_string();
}

TEST_F(CacheCost, WhatIsExpectedToLoseIsNotStarted) {
  CacheConfig unprobed = config(32, false);
  unprobed.load_or_recompute.probe_blocks = 0;
  open(unprobed);
  const auto keys = test_keys(8);
  store(1, keys);
  // The engine computes a block in 20 us; a copy takes 100.
  for (int i = 0; i < 8; ++i) cache->observe_prefill(2000, 0, 10ms);
  plane->all.clear();
  EXPECT_EQ(cache->load(RequestId(2), keys, 0, device(8), kNoDeadline), 0u);
  EXPECT_EQ(plane->count(OpKind::kLoad), 0u);
  EXPECT_TRUE(poll().empty()) << "nothing, no event";
  EXPECT_EQ(spans_of(2), (std::vector<WhySpan>{{0, 8, WhyReason::kNotWorthLoading, Code::kOk}}));
  EXPECT_EQ(cache->stats().not_worth_blocks, 8u);
}

TEST_F(CacheCost, TheWayToTheDeviceIsProbedByARequestThatWouldLoadNothing) {
  open(config(32, false));
  const auto keys = test_keys(12);
  store(1, keys);
  for (int i = 0; i < 8; ++i) cache->observe_prefill(2000, 0, 10ms);
  // Nobody has measured the way, and by the prior it is slower than the engine.
  EXPECT_EQ(cache->load(RequestId(2), keys, 0, device(12), kNoDeadline), 8u);
  EXPECT_EQ(cache->stats().probes, 1u);
  EXPECT_EQ(cache->load(RequestId(3), keys, 0, device(12), kNoDeadline), 0u) << "one at a time";
  clock.advance(40us);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().at(0).blocks, 8u);
  // Now it is known to be quicker.
  EXPECT_EQ(cache->load(RequestId(4), keys, 0, device(12), kNoDeadline), 12u);
  EXPECT_EQ(cache->stats().probes, 1u);
}

TEST_F(CacheCost, ADeviceThatStallsInAProbeCostsNoMoreThanComputing) {
  open(config(32, false));
  const auto keys = test_keys(12);
  store(1, keys);
  for (int i = 0; i < 8; ++i) cache->observe_prefill(2000, 0, 10ms);
  EXPECT_EQ(cache->load(RequestId(2), keys, 0, device(12), kNoDeadline), 8u);
  clock.advance(241us);  // twelve blocks at 20 us
  EXPECT_EQ(poll().at(0).code, Code::kTimeout);
  EXPECT_EQ(cache->load(RequestId(3), keys, 0, device(12), kNoDeadline), 0u);
}

TEST_F(CacheCost, AStoreThatWasNeverFetchedFromIsAskedAndThenFetchedFromByAProbe) {
  CacheConfig careful = config(64, true);
  careful.load_or_recompute.transfers[2] = {2ms, kBlockPerMillisecond / 100};
  open(careful);
  const auto keys = test_keys(8);
  EXPECT_FALSE(start_prefetch(1, keys));
  EXPECT_EQ(plane->open_count(OpKind::kStoreExists), 8u);
  clock.advance(1ms);
  answer_exists();
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->open_count(OpKind::kStoreGet), 8u);
  clock.advance(8ms);
  plane->complete_all(OpKind::kStoreGet);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(ready(keys), 8u);
  EXPECT_TRUE(start_prefetch(2, test_keys(8, 5000)));
}

TEST_F(CacheCost, SwitchedOffItLoadsEverythingAndRecordsNothing) {
  CacheConfig off = config(32, false);
  off.load_or_recompute.enabled = false;
  open(off);
  const auto keys = test_keys(8);
  store(1, keys);
  for (int i = 0; i < 8; ++i) cache->observe_prefill(2000, 0, 10ms);
  EXPECT_EQ(cache->load(RequestId(2), keys, 0, device(8), kNoDeadline), 8u);
  settle();
  EXPECT_FALSE(why_of(2).load_choice.made);
  EXPECT_EQ(cache->stats().load_choices, 0u);
}

TEST_F(CacheCost, BlocksInMemoryAreLoadedAndThoseOnASlowDiskLeftToPrefill) {
  CacheConfig slow_disk = config(16, false);
  slow_disk.load_or_recompute.transfers[1] = {1ms, kBlockPerMillisecond / 10};
  slow_disk.load_or_recompute.prefill.tokens_per_second = 100;
  slow_disk.load_or_recompute.probe_blocks = 0;
  const auto keys = test_keys(8);
  config_ = slow_disk;
  open_disk(slow_disk, 64, contents_of(keys));
  // An engine that needs 40 ms for a block takes those that come in 10.
  const std::vector<BlockKey> head(keys.begin(), keys.begin() + 3);
  ASSERT_EQ(cache->load(RequestId(1), head, 0, device(3), kNoDeadline), 3u);
  clock.advance(31ms);
  plane->complete_all(OpKind::kDiskGet);
  poll();
  clock.advance(1ms);
  settle();
  plane->all.clear();
  // One that needs 4 ms does not.
  cache->observe_prefill(1000, 0, 1s);
  EXPECT_EQ(cache->load(RequestId(2), keys, 0, device(8), kNoDeadline), 3u);
  settle();
  EXPECT_EQ(why_of(2).load_choice.blocks_chosen, 3u);
  EXPECT_EQ(spans_of(2), (std::vector<WhySpan>{{3, 5, WhyReason::kNotWorthLoading, Code::kOk}}));
  EXPECT_EQ(plane->count(OpKind::kDiskGet), 0u);
}

TEST_F(CacheCost, AFastStoreIsPrefetchedAndASlowOneIsNotEvenAsked) {
  open(config(64, true));
  prefetch_in(1, test_keys(8, 500), 8ms);
  EXPECT_EQ(why_of(1).prefetch_choice.blocks_chosen, 8u);
  EXPECT_TRUE(why_of(1).prefetch_choice.measured);
  EXPECT_EQ(why_of(1).prefetch_choice.load_measured, 9ms);

  make_store_slow();
  const size_t asked = plane->count(OpKind::kStoreExists);
  const auto keys = test_keys(8);
  EXPECT_FALSE(start_prefetch(9, keys));
  EXPECT_EQ(plane->count(OpKind::kStoreExists), asked);
  EXPECT_EQ(spans_of(9), (std::vector<WhySpan>{{0, 8, WhyReason::kNotWorthLoading, Code::kOk}}));
  // The load that follows knows why it finds nothing.
  EXPECT_EQ(cache->load(RequestId(9), keys, 0, device(8), kNoDeadline), 0u);
  EXPECT_EQ(spans_of(9), (std::vector<WhySpan>{{0, 8, WhyReason::kNotWorthLoading, Code::kOk}}));
}

TEST_F(CacheCost, ASlowStoreIsWorthItForARequestThatWaitsAnyway) {
  open(config(64, true));
  make_store_slow();
  const auto keys = test_keys(8);
  EXPECT_FALSE(start_prefetch(8, keys));
  EXPECT_TRUE(start_prefetch(9, keys, 1s));
  settle();
  EXPECT_EQ(ready(keys), 8u);
}

TEST_F(CacheCost, AStalledStoreCostsItsPatienceOnceAndIsThenLeftAlone) {
  open(config(64, true));
  for (uint64_t i = 1; i <= 4; ++i) {
    prefetch_in(i, test_keys(8, static_cast<uint32_t>(1000 * i)), 8ms);
  }
  ASSERT_TRUE(start_prefetch(10, test_keys(8)));
  clock.advance(1ms);
  answer_exists();
  poll();
  // No deadline was given: computing the eight blocks would take 32 ms, three times the expected
  // time a little more.
  clock.advance(24ms);
  EXPECT_TRUE(poll().empty());
  clock.advance(20ms);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kTimeout);
  EXPECT_EQ(cache->stats().suspensions, 1u);
  EXPECT_TRUE(cache->load_estimates().transfers[2].suspended);

  EXPECT_FALSE(start_prefetch(11, test_keys(8, 7000)));
  EXPECT_EQ(cache->stats().get_timeout, 8u);
}

TEST_F(CacheCost, AProbeThatNoRequestWaitsForBringsTheStoreBack) {
  open(config(64, true));
  for (uint64_t i = 1; i <= 4; ++i) {
    prefetch_in(i, test_keys(8, static_cast<uint32_t>(1000 * i)), 8ms);
  }
  const auto keys = test_keys(12);
  ASSERT_TRUE(start_prefetch(10, keys));
  clock.advance(1ms);
  answer_exists();
  poll();
  clock.advance(1s);
  ASSERT_EQ(poll().at(0).code, Code::kTimeout);
  plane->complete_all(OpKind::kStoreGet);  // too late, but it lets go
  poll();
  ASSERT_TRUE(cache->load_estimates().transfers[2].suspended);
  EXPECT_EQ(cache->stats().probes, 0u);

  clock.advance(1s);
  EXPECT_FALSE(start_prefetch(11, keys)) << "the request itself goes on at once";
  EXPECT_EQ(cache->stats().probes, 1u);
  // Large enough to be measured with polls as far apart as they are here.
  const auto probed = static_cast<uint32_t>(plane->open_count(OpKind::kStoreGet));
  EXPECT_GE(probed, 8u);
  clock.advance(10ms);
  plane->complete_all(OpKind::kStoreGet);
  EXPECT_TRUE(poll().empty());
  EXPECT_FALSE(cache->load_estimates().transfers[2].suspended);
  EXPECT_EQ(ready(keys), probed) << "what it brought is there for all";
  EXPECT_EQ(start_prefetch(11, keys), probed < keys.size());
  settle();
  EXPECT_EQ(ready(keys), 12u);
  for (uint64_t request : {1, 2, 3, 4, 10, 11}) end(request);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheCost, ASlowStoreThatHasRecoveredIsFoundOutByAProbe) {
  CacheConfig quick = config(64, true);
  quick.existence_ttl = 1h;
  open(quick);
  make_store_slow();
  const auto keys = test_keys(8);
  EXPECT_FALSE(start_prefetch(10, keys));
  EXPECT_EQ(cache->stats().probes, 0u) << "it has just been measured";
  // First the question, then, once it is answered, blocks.
  for (uint64_t request = 11; request <= 16; ++request) {
    clock.advance(11s);
    if (start_prefetch(request, test_keys(12, static_cast<uint32_t>(5000 + 100 * request)))) break;
    for (int i = 0; i < 3; ++i) {
      clock.advance(1ms);
      while (!plane->open.empty()) plane->complete(0);
      EXPECT_TRUE(poll().empty());
      EXPECT_FALSE(
          start_prefetch(request, test_keys(12, static_cast<uint32_t>(5000 + 100 * request))));
    }
    clock.advance(2ms);
    while (!plane->open.empty()) plane->complete(0);
    poll();
  }
  EXPECT_GE(cache->stats().probes, 2u);
  EXPECT_TRUE(start_prefetch(20, test_keys(8, 90000)));
}

TEST_F(CacheCost, AProbeLeavesNothingBehindWhenTheCacheIsCleared) {
  open(config(64, true));
  for (uint64_t i = 1; i <= 2; ++i) {
    prefetch_in(i, test_keys(8, static_cast<uint32_t>(1000 * i)), 8ms);
  }
  const auto keys = test_keys(12);
  ASSERT_TRUE(start_prefetch(10, keys));
  clock.advance(1ms);
  answer_exists();
  poll();
  clock.advance(2s);
  poll();
  plane->complete_all(OpKind::kStoreGet);
  poll();
  clock.advance(1s);
  ASSERT_FALSE(start_prefetch(11, keys));
  ASSERT_EQ(cache->stats().probes, 1u);
  cache->clear();
  plane->complete_all(OpKind::kStoreGet);
  settle();
  EXPECT_EQ(ready(keys), 0u);
  for (uint64_t request : {1, 2, 10, 11}) end(request);
  settle();
  EXPECT_EQ(cache->check(true), "");
}

// Windows of 8 tokens: only the last blocks before the cut count.
TEST_F(CacheCost, AWindowGroupCostsItsWindowOnly) {
  CacheConfig hybrid = config(64, false);
  hybrid.spec.groups.resize(2);
  hybrid.spec.groups[1].attention = AttentionKind::kWindow;
  hybrid.spec.groups[1].window_tokens = 8;
  hybrid.payload_bytes = {{64}, {64}};
  struct Listener final : LoadChoiceListener {
    void chosen(RequestId, const CutQuestion& question, const LoadChoice&) override {
      works.assign(question.works.begin(), question.works.end());
    }
    std::vector<CutWork> works;
  } listener;
  hybrid.load_or_recompute.listener = &listener;
  open(hybrid);
  const auto keys = test_keys(6);
  store(1, keys);
  EXPECT_EQ(cache->load(RequestId(2), keys, 0, device(6), kNoDeadline), 6u);
  settle();
  ASSERT_EQ(listener.works.size(), 7u);
  std::vector<uint64_t> blocks;
  for (const CutWork& work : listener.works) blocks.push_back(work.units[0] / 64);
  EXPECT_EQ(blocks, (std::vector<uint64_t>{0, 2, 4, 5, 6, 7, 8}));
}

}  // namespace
}  // namespace tiercel
