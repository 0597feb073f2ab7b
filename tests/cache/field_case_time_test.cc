// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about answers that never come, and stores that are slow or broken.
#include <map>

#include <malloc.h>

#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class FieldCaseTime : public FieldCase {
 protected:
  // The store's data for A comes after the deadline, when others have filled the tier.
  std::string late_data(const Protections& protections) {
    CacheConfig config = field_config(8, 1, true);
    config.quarantine_slots_max = 8;
    open_bytes(config, 48, protections);
    const auto late = test_keys(2);
    store_bytes(1, late, 0);
    cache->clear();
    settle_bytes();
    const auto started = cache->prefetch(RequestId(2), late, 0, in(50ms));
    if (!started || !*started) return "the prefetch was not started";
    carry_out_all(OpKind::kStoreExists);
    poll();
    if (plane->open_count(OpKind::kStoreGet) != 2) return "the prefetch does not fetch";
    clock.advance(50ms);
    const auto events = poll();
    if (events.size() != 1 || events[0].code != Code::kTimeout || events[0].blocks != 0) {
      return "the prefetch did not end at its deadline";
    }
    const auto others = test_keys(8, 1000);
    write_kv(others, 8);
    declare(3, others, 8);
    carry_out_all(OpKind::kSave);
    poll();
    const std::vector<BlockKey> stored(others.begin(), others.begin() + ready(others));
    carry_out_all(OpKind::kStoreGet);
    settle_bytes();
    if (!cache->finish(RequestId(2)) || !cache->finish(RequestId(3))) return "a lost request";
    poll();
    if (ready(late) != 0) return "late data is visible";
    if (const auto wrong = wrong_after_load(4, stored, 24); !wrong.empty()) return wrong;
    if (stored.size() != 6) return "slots that may still be written to were used";
    if (cache->stats().get_timeout != 2) return "the timeouts are not counted";
    return cache->check(true);
  }

  // Ten blocks and three tokens, in a time in which only six blocks can be stored.
  std::string slow_saves(const Protections& protections) {
    CacheConfig config = field_config(32);
    config.job_blocks_max = 4;
    config.save_deadline = 650ms;
    open_bytes(config, 32, protections);
    const auto keys = test_keys(10);
    write_kv(keys, 0);
    if (!cache->save(RequestId(1), keys, 0, device(10)) || !cache->commit(RequestId(1), 43)) {
      return "the save was refused";
    }
    std::map<uint64_t, uint32_t> slices;
    for (const BlockOp& op : plane->all) ++slices[op.job.value()];
    if (slices.size() != 3) return "the write was not cut into slices";
    uint32_t stored = 0;
    for (int tick = 1; tick <= 10; ++tick) {
      clock.advance(100ms);
      poll();
      if (ready(keys) > stored) return "the index covers more than is stored";
      carry_out(0);
      if (tick <= 6) ++stored;
      poll();
      if (ready(keys) != stored) return "the index does not follow what is stored";
    }
    if (cache->stats().save_failed != 4) return "what was too late is not counted";
    if (!cache->finish(RequestId(1))) return "the request is not known";
    poll();
    const std::vector<BlockKey> head(keys.begin(), keys.begin() + 6);
    if (const auto wrong = wrong_after_load(2, head, 16); !wrong.empty()) return wrong;
    return cache->check(true);
  }

  // Requests offer a hundred blocks a round; of what waits for the store one is carried out a
  // round, or, if it fails, everything.
  void flood(uint32_t rounds, Code code) {
    for (uint32_t round = 0; round < rounds; ++round) {
      for (uint32_t i = 0; i < 10; ++i) {
        const RequestId id(next_id_++);
        const auto keys = salted_keys(config_.spec, 10, static_cast<uint32_t>(id.value()));
        ASSERT_TRUE(cache->save(id, keys, 0, device(10)));
        ASSERT_TRUE(cache->commit(id, 40));
        plane->complete_all(OpKind::kSave);
        (void)cache->poll({});
        ASSERT_TRUE(cache->finish(id));
        const size_t pending = cache->stats().queued_puts + plane->open_count(OpKind::kStorePut);
        ASSERT_LE(pending, config_.put_queue_max);
      }
      if (code == Code::kOk) {
        plane->complete(0);
      } else {
        plane->complete_all(OpKind::kStorePut, code);
      }
      poll();
      clock.advance(10ms);
      plane->all.clear();
    }
  }

  uint64_t next_id_ = 1;
};

// F22: a load whose answer never came left its request waiting for ever.
TEST_F(FieldCaseTime, F22AHundredLoadsThatAreNeverAnsweredEachEndAtTheirDeadline) {
  CacheConfig config = test_config(16);
  config.requests_max = 256;
  open(config);
  const auto keys = test_keys(4);
  store(1, keys);
  for (uint32_t i = 0; i < 100; ++i) {
    const RequestId id(100 + i);
    ASSERT_EQ(cache->load(id, keys, 0, device(4, 8 + 4 * i), in(50ms)), 4u);
    clock.advance(50ms - 1ns);
    ASSERT_TRUE(poll().empty());
    clock.advance(1ns);
    const auto events = poll();
    ASSERT_EQ(events.size(), 1u);
    ASSERT_EQ(events[0].blocks, 0u);
    ASSERT_EQ(events[0].code, Code::kTimeout);
    ASSERT_TRUE(events[0].device_busy);
    ASSERT_EQ(cache->stats().load_timeout, 4u * (i + 1));
    const auto farewell = cache->finish(id);  // computed in other blocks
    ASSERT_TRUE(farewell);
    ASSERT_TRUE(farewell->device_busy);
  }
  EXPECT_EQ(cache->stats().holds, 0u);
  EXPECT_EQ(ready(keys), 4u);
  plane->complete_all(OpKind::kLoad);
  EXPECT_EQ(poll().size(), 100u) << "every device block comes back";
  EXPECT_EQ(cache->stats().stale_completions, 400u);
  EXPECT_EQ(cache->check(true), "");
}

// F22: its slots are not used again while the transfer may still write.
TEST_F(FieldCaseTime, F22LateDataHarmsNobody) { EXPECT_EQ(late_data({}), ""); }

TEST_F(FieldCaseTime, F22WithoutQuarantineLateDataHarmsAnother) {
  EXPECT_NE(late_data(without(&Protections::quarantine)), "");
}

// F27: puts to a slow store raised memory until the process was killed.
TEST_F(FieldCaseTime, F27WhatWaitsForASlowStoreIsBoundedAndTheRestDroppedAndCounted) {
  CacheConfig config = test_config(256, 1, true);
  config.put_queue_max = 16;
  config.request_blocks_max = 16;
  open(config);
  ASSERT_NO_FATAL_FAILURE(flood(60, Code::kOk));
  CacheStats stats = cache->stats();
  EXPECT_EQ(stats.save_blocks, 6000u);
  EXPECT_EQ(stats.save_no_space, 0u) << "a slow store does not take the host tier";
  EXPECT_GT(stats.put_dropped, 5000u);
  EXPECT_EQ(stats.put_blocks + stats.put_dropped + stats.queued_puts +
                plane->open_count(OpKind::kStorePut),
            6000u);
  settle();  // the store is back
  const auto before = ::mallinfo2().uordblks;
  ASSERT_NO_FATAL_FAILURE(flood(60, Code::kOk));
  settle();
  plane->all.clear();
  const auto after = ::mallinfo2().uordblks;
  EXPECT_LE(after, before + before / 20);
  EXPECT_EQ(cache->stats().holds, 0u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(FieldCaseTime, F27AStoreThatFailsEverythingLeavesNothingBehind) {
  CacheConfig config = test_config(256, 1, true);
  config.put_queue_max = 16;
  config.request_blocks_max = 16;
  open(config);
  ASSERT_NO_FATAL_FAILURE(flood(20, Code::kUnavailable));
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.put_failed + stats.put_dropped, 2000u);
  EXPECT_EQ(stats.put_blocks, 0u);
  EXPECT_EQ(stats.save_blocks, 2000u);
  EXPECT_EQ(stats.holds, 0u);
  EXPECT_EQ(cache->check(true), "");
}

// F27: what had to be dropped is no hole in the store for ever.
TEST_F(FieldCaseTime, F27WhatWasDroppedOrFailedIsPutAtTheNextHit) {
  open(test_config(16, 1, true));  // four puts may wait
  const auto keys = test_keys(8);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(8)));
  ASSERT_TRUE(cache->commit(RequestId(1), 32));
  plane->complete_all(OpKind::kSave);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_EQ(cache->stats().put_dropped, 4u);
  plane->complete_all(OpKind::kStorePut, [&](const BlockOp& op, uint32_t) {
    return op.key == keys[0] ? Code::kUnavailable : op.key == keys[1] ? Code::kInvalid : Code::kOk;
  });
  poll();
  std::vector<BlockKey> put;
  for (uint64_t id = 2; id <= 4; ++id) {
    plane->all.clear();
    ASSERT_EQ(cache->load(RequestId(id), keys, 0, device(8), kNoDeadline), 8u);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(id)));
    for (const BlockOp& op : plane->all) {
      if (op.kind == OpKind::kStorePut) put.push_back(op.key);
    }
  }
  // Not those that the store has, nor the one that it can not take; four at a time.
  EXPECT_EQ(put, (std::vector<BlockKey>{keys[0], keys[4], keys[5], keys[6], keys[7]}));
  EXPECT_EQ(cache->check(true), "");
}

// F32: of a long prompt more tokens were reported than blocks written.
TEST_F(FieldCaseTime, F32TheIndexNeverCoversMoreThanIsStored) { EXPECT_EQ(slow_saves({}), ""); }

TEST_F(FieldCaseTime, F32WithoutPublishingWhenDoneItCoversMore) {
  EXPECT_NE(slow_saves(without(&Protections::publish_when_done)), "");
}

}  // namespace
}  // namespace tiercel
