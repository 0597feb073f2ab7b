// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about holds: what is needed stays, and nothing stays for ever.
#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class FieldCaseHold : public FieldCase {
 protected:
  // A tier of eight with room for one; a load of four blocks stands still while others put nine.
  std::string load_while_others_put(const Protections& protections, bool verify = true) {
    open_bytes(field_config(8), 40, protections, verify);
    const auto kept = test_keys(7);
    store_bytes(1, kept, 0);
    const std::vector<BlockKey> read(kept.begin(), kept.begin() + 4);
    const auto started = cache->load(RequestId(2), read, 0, device(4, 10), kNoDeadline);
    if (!started || *started != 4) return "the load was not started";
    for (uint32_t i = 0; i < 3; ++i) {
      const auto others = test_keys(3, 1000 * (i + 1));
      write_kv(others, 20);
      declare(10 + i, others, 20);
      carry_out_all(OpKind::kSave);
      poll();
      if (!cache->finish(RequestId(10 + i))) return "a writer is not known";
      if (ready(read) != 4) return "a block that is being read was evicted";
      if (ready(others) != 3) return "the tier took nothing although four blocks may go";
    }
    return end_of_load(read);
  }

  // The same, but nobody looks at the victims: only at what arrives.
  std::string bytes_of_a_load_while_others_put(const Protections& protections) {
    open_bytes(field_config(8), 40, protections, false);
    const auto read = test_keys(8);
    store_bytes(1, read, 0);
    (void)cache->load(RequestId(2), read, 0, device(8, 10), kNoDeadline);
    const auto others = test_keys(8, 1000);
    write_kv(others, 20);
    declare(3, others, 20);
    carry_out_all(OpKind::kSave);
    poll();
    return end_of_load(read);
  }

  std::string end_of_load(const std::vector<BlockKey>& read) {
    carry_out_all(OpKind::kLoad);
    const auto events = poll();
    if (events.size() != 1 || events[0].blocks != read.size() || events[0].code != Code::kOk) {
      return "the load did not end well";
    }
    return wrong_bytes(read, 10);
  }
};

// F13: a host copy could be evicted and used again while it was being read.
TEST_F(FieldCaseHold, F13WhatIsBeingLoadedIsNoVictim) {
  EXPECT_EQ(load_while_others_put({}), "");
  ASSERT_TRUE(cache->finish(RequestId(2)));
  settle_bytes();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(FieldCaseHold, F13WithoutTheHoldItIsAVictim) {
  EXPECT_NE(load_while_others_put(without(&Protections::load_holds)), "");
}

TEST_F(FieldCaseHold, F13WithoutHoldAndQuarantineForeignBytesArrive) {
  EXPECT_EQ(bytes_of_a_load_while_others_put({}), "");
  Protections protections = without(&Protections::load_holds);
  EXPECT_EQ(bytes_of_a_load_while_others_put(protections), "") << "the quarantine is left";
  protections.quarantine = false;
  EXPECT_NE(bytes_of_a_load_while_others_put(protections), "");
}

// F15: a look-up pinned what was then not loaded, for ever.
TEST_F(FieldCaseHold, F15LookUpsThatLeadToNoLoadHoldNothing) {
  open(test_config(12));
  const auto whole = test_keys(4);  // on the device too
  const auto part = test_keys(4, 1000);
  const auto refused = test_keys(4, 2000);
  store(1, whole);
  store(2, part);
  store(3, refused);
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(ready(whole, 4), 4u);
    ASSERT_EQ(cache->load(RequestId(10), whole, 4, {}, kNoDeadline), 0u);
    ASSERT_EQ(ready(part, 2), 4u);  // and the request is gone before its load
    ASSERT_EQ(ready(refused), 4u);
    ASSERT_EQ(cache->load(RequestId(12), refused, 0, {}, kNoDeadline), 0u);
    ASSERT_TRUE(cache->finish(RequestId(10)));
    ASSERT_TRUE(cache->abort(RequestId(12)));
  }
  poll();
  EXPECT_EQ(cache->stats().holds, 0u);
  EXPECT_EQ(cache->check(true), "");
  store(20, test_keys(12, 5000));
  EXPECT_EQ(ready(test_keys(12, 5000)), 12u);
  for (const auto& old : {whole, part, refused}) EXPECT_EQ(ready(old), 0u);
}

// F15: here the look-up that holds is a prefetch.
TEST_F(FieldCaseHold, F15APrefetchThatLeadsToNoLoadHoldsNothingAfterTheEnd) {
  CacheConfig config = test_config(8, 1, true);
  config.host_to_store = WritePolicy::kNone;
  open(config);
  const auto keys = test_keys(4);
  for (uint64_t round = 0; round < 300; ++round) {
    cache->clear();
    settle();
    ASSERT_EQ(cache->prefetch(RequestId(round), keys, 0, kNoDeadline), true);
    settle();
    ASSERT_EQ(cache->stats().holds, 4u);
    ASSERT_TRUE(round % 2 == 0 ? cache->finish(RequestId(round)) : cache->abort(RequestId(round)));
    ASSERT_EQ(cache->stats().holds, 0u);
  }
  store(1000, test_keys(8, 5000));
  EXPECT_EQ(ready(test_keys(8, 5000)), 8u);
  EXPECT_EQ(ready(keys), 0u);
}

// F16: two clean-up paths released one hold twice, and the count was silently reset.
TEST_F(FieldCaseHold, F16ASecondReleaseIsRefusedAndTheReadersHoldStays) {
  for (const bool looker_first : {true, false}) {
    CacheConfig config = test_config(4, 1, true);
    config.host_to_store = WritePolicy::kNone;
    open(config);
    const auto keys = test_keys(2);
    ASSERT_EQ(cache->prefetch(RequestId(1), keys, 0, kNoDeadline), true);
    settle();
    ASSERT_EQ(cache->stats().holds, 2u);
    ASSERT_EQ(cache->load(RequestId(2), keys, 0, device(2), kNoDeadline), 2u);
    if (!looker_first) {
      plane->complete_all(OpKind::kLoad);
      EXPECT_EQ(poll().size(), 1u);
    }
    ASSERT_TRUE(cache->finish(RequestId(1)));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(cache->finish(RequestId(1)).code(), Code::kNotFound);
      EXPECT_EQ(cache->abort(RequestId(1)).code(), Code::kNotFound);
      EXPECT_EQ(cache->finish(RequestId(99)).code(), Code::kNotFound);
    }
    EXPECT_EQ(cache->stats().unknown_requests, 9u);
    ASSERT_TRUE(cache->save(RequestId(3), test_keys(4, 1000), 0, device(4, 8)));
    ASSERT_TRUE(cache->commit(RequestId(3), 16));
    plane->complete_all(OpKind::kSave);
    poll();
    EXPECT_EQ(ready(test_keys(4, 1000)), 2u);
    EXPECT_EQ(ready(keys), 2u) << "the reader needs them";
    if (looker_first) {
      plane->complete_all(OpKind::kLoad);
      ASSERT_EQ(poll().at(0).blocks, 2u);
    }
    ASSERT_TRUE(cache->finish(RequestId(2)));
    EXPECT_EQ(cache->abort(RequestId(2)).code(), Code::kNotFound);
    ASSERT_TRUE(cache->finish(RequestId(3)));
    poll();
    EXPECT_EQ(cache->stats().unbalanced_unholds, 0u);
    EXPECT_EQ(cache->stats().holds, 0u);
    EXPECT_EQ(cache->check(true), "");
    store(4, test_keys(4, 2000));
    EXPECT_EQ(ready(keys), 0u);
  }
}

// F25: look-ups renewed leases on everything, so that nothing could ever go.
TEST_F(FieldCaseHold, F25APollerThatLooksAtEverythingKeepsNothing) {
  open(test_config(8));
  const auto old = test_keys(8);
  store(1, old);
  for (uint32_t step = 0; step < 600; ++step) {  // a minute
    (void)cache->match(old, 0);
    clock.advance(100ms);
    ASSERT_TRUE(cache->save(RequestId(2), test_keys(1, 1000 + 10 * step), 0, device(1)));
    ASSERT_TRUE(cache->commit(RequestId(2), 4));
    plane->complete_all(OpKind::kSave);
    (void)cache->poll({});
    ASSERT_TRUE(cache->finish(RequestId(2)));
    ASSERT_EQ(cache->stats().save_blocks, 8u + step + 1) << "every put finds room at once";
  }
  EXPECT_EQ(cache->stats().save_no_space, 0u);
  EXPECT_EQ(ready(old), 0u);
  EXPECT_EQ(cache->check(true), "");
}

// F25: requests that hold everything and are forgotten hold it for a limited time, which is seen.
TEST_F(FieldCaseHold, F25AForgottenRequestKeepsTheTierForTheHoldLimitOnly) {
  CacheConfig config = test_config(8);
  config.hold_limit = 5s;
  open(config);
  const auto old = test_keys(8);
  store(1, old);
  ASSERT_EQ(cache->load(RequestId(2), old, 0, device(8), kNoDeadline), 8u);
  settle();
  uint64_t refused = 0;
  while (cache->stats().save_blocks == 8 && refused < 600) {
    (void)cache->match(old, 0);
    store(3 + refused, test_keys(1, 1000));
    if (cache->stats().save_blocks > 8) break;
    ++refused;
    EXPECT_EQ(cache->stats().save_no_space, refused) << "that nothing may go is counted";
    clock.advance(100ms);
    poll();
  }
  EXPECT_EQ(refused, 50u);
  EXPECT_EQ(cache->stats().hold_limit_hits, 1u);
}

// F26: with a full staging area the allocator looped until there was room, which never came.
TEST_F(FieldCaseHold, F26AFullTierIsAMissAtOnceAndNobodySpins) {
  CacheConfig config = test_config(4, 1, true);
  config.host_to_store = WritePolicy::kNone;
  open(config);
  ASSERT_EQ(cache->prefetch(RequestId(1), test_keys(4), 0, kNoDeadline), true);
  settle();  // a hold that nobody ever gives back
  const auto fifth = test_keys(1, 1000);
  ASSERT_EQ(cache->prefetch(RequestId(2), fifth, 0, in(10s)), true);
  plane->complete_all(OpKind::kStoreExists);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Code::kNoSpace);
  EXPECT_EQ(events[0].blocks, 0u);
  EXPECT_EQ(cache->why(RequestId(2))->spans()[0],
            (WhySpan{0, 1, WhyReason::kNoHostSpace, Code::kNoSpace}));
  EXPECT_TRUE(cache->idle()) << "nothing waits to be tried again";
  EXPECT_GT(cache->next_deadline(), clock.now());
  const size_t submitted = plane->all.size();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->all.size(), submitted);
  // A miss: the engine computes, and what it computes is not stored.
  ASSERT_EQ(cache->load(RequestId(2), fifth, 0, device(1), kNoDeadline), 0u);
  ASSERT_TRUE(cache->save(RequestId(2), fifth, 0, device(1)));
  ASSERT_TRUE(cache->commit(RequestId(2), 4));
  EXPECT_EQ(cache->why(RequestId(2))->spans().back().reason, WhyReason::kSaveNoSpace);
  ASSERT_TRUE(cache->finish(RequestId(2)));
  ASSERT_TRUE(cache->finish(RequestId(1)));
  ASSERT_EQ(cache->prefetch(RequestId(3), fifth, 0, kNoDeadline), true);
  EXPECT_EQ(settle().at(0).blocks, 1u);
  ASSERT_TRUE(cache->finish(RequestId(3)));
  EXPECT_EQ(cache->check(true), "");
}

// F26: two requests that each hold what the other one needs.
TEST_F(FieldCaseHold, F26RequestsThatWaitForEachOthersRoomBothEnd) {
  CacheConfig config = test_config(4, 1, true);
  config.host_to_store = WritePolicy::kNone;
  open(config);
  const auto first = test_keys(3);
  const auto second = test_keys(3, 1000);
  ASSERT_EQ(cache->prefetch(RequestId(1), first, 0, kNoDeadline), true);
  ASSERT_EQ(cache->prefetch(RequestId(2), second, 0, kNoDeadline), true);
  std::vector<uint32_t> blocks(3);
  for (const CacheEvent& event : settle()) blocks[event.request.value()] = event.blocks;
  EXPECT_EQ(blocks[1], 3u);
  EXPECT_EQ(blocks[2], 1u);
  ASSERT_EQ(cache->load(RequestId(1), first, 0, device(3), kNoDeadline), 3u);
  ASSERT_EQ(cache->load(RequestId(2), second, 0, device(3, 4), kNoDeadline), 1u);
  EXPECT_EQ(settle().size(), 2u);
  ASSERT_TRUE(cache->finish(RequestId(1)));
  ASSERT_TRUE(cache->finish(RequestId(2)));
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
