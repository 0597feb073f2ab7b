// SPDX-License-Identifier: Apache-2.0
//
// A device pool that is too small for everybody.
#include "base/random.h"
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

class ResourceManagerPreemptTest : public ManagerFixture {
 protected:
  // Two requests that fit while they begin and no longer when they grow.
  void open_small(ManagerSetup setup = {}) {
    setup.device_blocks = 8;
    open_manager(setup);
    ASSERT_TRUE(add(request(1, 8, 0, 16)));
    ASSERT_TRUE(add(request(2, 8, 1000, 16)));
  }
  // Runs until somebody is preempted.
  std::vector<RequestId> until_preemption(bool with_transfers = true) {
    for (int i = 0; i < 100; ++i) {
      if (with_transfers) carry_out_everything();
      const Batch& batch = begin_step();
      const std::vector<RequestId> preempted(batch.preempted.begin(), batch.preempted.end());
      if (is_open) end_step();
      if (!preempted.empty()) return preempted;
    }
    return {};
  }
};

TEST_F(ResourceManagerPreemptTest, WhoeverCameLastGoesAndItsOutputsStayTheSame) {
  open_small();
  EXPECT_EQ(until_preemption(), std::vector{RequestId(2)});
  EXPECT_EQ(state(2), RequestState::kWaiting);
  run_to_end();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].id, RequestId(1));
  EXPECT_EQ(finished[0].preemptions, 0u);
  EXPECT_GE(finished[1].preemptions, 1u);
  EXPECT_EQ(finished[1].outputs.size(), 16u);
  check_calm();
}

TEST_F(ResourceManagerPreemptTest, PriorityGoesBeforeArrival) {
  ManagerSetup setup;
  setup.device_blocks = 8;
  open_manager(setup);
  EngineRequest patient = request(1, 8, 0, 16);
  patient.priority = 5;
  ASSERT_TRUE(add(patient));
  step();
  ASSERT_TRUE(add(request(2, 8, 1000, 16)));
  EXPECT_EQ(until_preemption(), std::vector{RequestId(1)});
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
}

TEST_F(ResourceManagerPreemptTest, WhoWasPreemptedFindsWhatItHadComputed) {
  open_small();
  ASSERT_FALSE(until_preemption().empty());
  run_to_end();
  // What was in full blocks when it was preempted was on the device, or came from the host tier.
  EXPECT_GT(manager->stats().device_hit_tokens + manager->stats().loaded_tokens, 0u);
}

TEST_F(ResourceManagerPreemptTest, WhoWasPreemptedComesBackBeforeThoseWhoCameLater) {
  open_small();
  ASSERT_FALSE(until_preemption().empty());
  ASSERT_TRUE(add(request(3, 8, 2000, 16)));
  run_to_end();
  ASSERT_EQ(finished.size(), 3u);
  EXPECT_EQ(finished[1].id, RequestId(2));
}

TEST_F(ResourceManagerPreemptTest,
       PreemptedWhileItsSavesAreQueuedItsBlocksStayUntilTheyAreThrough) {
  ManagerSetup setup;
  setup.manager.save_preempted = true;
  open_small(setup);
  ASSERT_FALSE(until_preemption(false).empty());  // no save has ended by now
  ASSERT_GT(plane->open_count(OpKind::kSave), 0u);
  EXPECT_GT(prefix->leaving_blocks(), 0u);
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
  EXPECT_EQ(cache->stats().save_dropped, 0u);
  check_calm();
}

TEST_F(ResourceManagerPreemptTest, WithoutSavingThePreemptedTheirQueuedSavesAreDropped) {
  ManagerSetup setup;
  setup.manager.save_preempted = false;
  setup.device_blocks = 8;
  CacheConfig config;
  open_manager(setup);
  // No room in the rings: saves stay queued.
  while (plane->submit_capacity() > 0) {
    BlockOp op;
    op.kind = OpKind::kStoreRemove;
    ASSERT_TRUE(plane->submit({&op, 1}));
  }
  ASSERT_TRUE(add(request(1, 8, 0, 16)));
  ASSERT_TRUE(add(request(2, 8, 1000, 16)));
  ASSERT_FALSE(until_preemption(false).empty());
  EXPECT_EQ(prefix->leaving_blocks(), 0u);
  EXPECT_GT(cache->stats().save_dropped, 0u);
  plane->complete_all(OpKind::kStoreRemove);
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
  check_calm();
}

TEST_F(ResourceManagerPreemptTest, NobodyElseIsPreemptedWhileBlocksAreOnTheirWayBack) {
  ManagerSetup setup;
  setup.device_blocks = 9;
  open_manager(setup);
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(add(request(id, 8, static_cast<TokenId>(id * 1000), 16)));
  }
  ASSERT_EQ(until_preemption(false), std::vector{RequestId(3)});
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(manager->stats().preempted, 1u) << "its saves have not ended, its blocks will come";
  // But not for ever: a rank may never let go of them.
  clock.advance(std::chrono::seconds(1));
  step();
  EXPECT_EQ(manager->stats().preempted, 2u);
  run_to_end();
  EXPECT_EQ(finished.size(), 3u);
  check_calm();
}

TEST_F(ResourceManagerPreemptTest, APoolOfOneBlockServesWhatFitsIntoIt) {
  ManagerSetup setup;
  setup.device_blocks = 1;
  open_manager(setup);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(add(request(id, 3, 0, 9)));
  run_to_end();
  ASSERT_EQ(finished.size(), 4u);
  for (const FinishedRequest& done : finished) {
    EXPECT_EQ(done.outputs.size(), 2u);
    EXPECT_EQ(done.reason, FinishReason::kContextLimit);
  }
  EXPECT_EQ(manager->add(request(9, 5)).code(), Code::kInvalid);
  check_calm();
}

TEST_F(ResourceManagerPreemptTest, RandomCrowdsInASmallPoolAllEndWithTheRightOutputs) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    ManagerSetup setup;
    setup.device_blocks = static_cast<uint32_t>(6 + random.below(12));
    setup.host_blocks = static_cast<uint32_t>(4 + random.below(40));
    setup.manager.running_max = static_cast<uint32_t>(1 + random.below(6));
    setup.manager.step_tokens_max = static_cast<uint32_t>(6 + random.below(20));
    setup.manager.prefill_chunk_tokens_max = static_cast<uint32_t>(1 + random.below(6));
    setup.manager.cache_outputs = random.chance(0.7);
    setup.manager.save_preempted = random.chance(0.5);
    open_manager(setup);
    finished.clear();
    uint64_t added = 0;
    for (int i = 0; i < 200; ++i) {
      if (added < 30 && random.chance(0.3)) {
        EngineRequest wanted = request(++added, static_cast<uint32_t>(1 + random.below(20)),
                                       static_cast<TokenId>(random.below(3) * 1000),
                                       static_cast<uint32_t>(1 + random.below(8)));
        wanted.priority = static_cast<int32_t>(random.below(3));
        ASSERT_TRUE(add(wanted));
      }
      while (!plane->open.empty() && random.chance(0.6))
        carry_out(random.below(plane->open.size()));
      step();
      clock.advance(std::chrono::milliseconds(1));
    }
    run_to_end();
    ASSERT_EQ(finished.size(), added) << "seed " << seed;
    check_calm();
  }
}

}  // namespace
}  // namespace tiercel
