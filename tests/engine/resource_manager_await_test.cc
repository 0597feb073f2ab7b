// SPDX-License-Identifier: Apache-2.0
//
// Requests that wait because it is quicker: for what another one is computing, and for a store
// while their turn has not come anyway.
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;

class ResourceManagerAwaitTest : public ManagerFixture {
 protected:
  // A thousand tokens of prefill a second.
  static ManagerSetup setup_of(uint32_t chunk_tokens = 2048) {
    ManagerSetup setup;
    setup.costs.enabled = true;
    setup.costs.prefill.tokens_per_second = 1000;
    setup.manager.await_tokens_min = 4;
    setup.manager.prefill_chunk_tokens_max = chunk_tokens;
    return setup;
  }
  // Of tokens 0, 1, … `common` and then others.
  static EngineRequest branch(uint64_t id, uint32_t common, uint32_t tokens) {
    EngineRequest made = request(id, tokens);
    for (uint32_t at = common; at < tokens; ++at) made.prompt[at] += 9000;
    return made;
  }
};

TEST_F(ResourceManagerAwaitTest, TheSecondOfTwoWithOneColdPrefixLeavesItToTheFirst) {
  open_manager(setup_of());
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  const Batch& first = begin_step();
  EXPECT_EQ(tokens_of(first, 1), 17u);
  EXPECT_EQ(tokens_of(first, 2), 0u);
  EXPECT_LE(manager->next_deadline(), clock.now() + milliseconds(33));
  end_step();
  EXPECT_EQ(tokens_of(begin_step(), 2), 6u);
  end_step();
  run_to_end();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(manager->stats().computed_waits, 1u);
  EXPECT_EQ(manager->stats().computed_waits_vain, 0u);
  EXPECT_EQ(prefix->stats().duplicate_blocks, 0u);
  check_calm();
}

TEST_F(ResourceManagerAwaitTest, WhatTheFirstHasComputedIsThereAlsoIfItEndedWithIt) {
  open_manager(setup_of());
  ASSERT_TRUE(add(request(1, 17, 0, 1)));
  ASSERT_TRUE(add(request(2, 17)));
  step();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(tokens_of(begin_step(), 2), 1u);
  end_step();
  EXPECT_EQ(manager->stats().computed_waits_vain, 0u);
}

TEST_F(ResourceManagerAwaitTest, ThoseWhoShareMoreWithEachOtherWaitInTheirOrder) {
  open_manager(setup_of());
  ASSERT_TRUE(add(branch(1, 8, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  ASSERT_TRUE(add(branch(3, 16, 26)));
  EXPECT_EQ(step(), 17u);
  const Batch& second = begin_step();
  EXPECT_EQ(tokens_of(second, 2), 14u);
  EXPECT_EQ(tokens_of(second, 3), 0u);
  end_step();
  EXPECT_EQ(tokens_of(begin_step(), 3), 6u) << "they have five blocks in common";
  end_step();
  run_to_end();
  EXPECT_EQ(finished.size(), 3u);
}

TEST_F(ResourceManagerAwaitTest, WhoWaitsForAComputationStandsInNobodysWay) {
  open_manager(setup_of());
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  ASSERT_TRUE(add(request(3, 9, 7000)));
  EXPECT_EQ(tokens_of(begin_step(), 3), 9u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerAwaitTest, WhenTheFirstIsAbortedTheSecondComputesAtOnce) {
  open_manager(setup_of());
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  begin_step();
  abort(1);
  end_step();
  EXPECT_EQ(tokens_of(begin_step(), 2), 22u);
  end_step();
  EXPECT_EQ(manager->stats().computed_waits_vain, 1u);
  run_to_end();
  check_calm();
}

TEST_F(ResourceManagerAwaitTest, NobodyWaitsLongerThanComputingTakes) {
  open_manager(setup_of(4));
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));  // 16 ms for what both have
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tokens_of(begin_step(), 2), 0u);
    clock.advance(milliseconds(8));
    end_step();
  }
  EXPECT_EQ(tokens_of(begin_step(), 2), 4u);
  end_step();
  run_to_end();
  EXPECT_EQ(manager->stats().computed_waits, 1u) << "not once more for the rest";
  EXPECT_EQ(manager->stats().computed_waits_vain, 1u);
}

TEST_F(ResourceManagerAwaitTest, AStepThatIsLostIsWaitedForAgainInTheSameTime) {
  open_manager(setup_of());
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  begin_step();
  ASSERT_TRUE(manager->fail_step(manager->schedule().step, false));
  EXPECT_EQ(tokens_of(begin_step(), 2), 0u);
  clock.advance(milliseconds(40));
  ASSERT_TRUE(manager->fail_step(manager->schedule().step, false));
  EXPECT_EQ(tokens_of(begin_step(), 2), 22u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerAwaitTest, NobodyWaitsForOneThatComesBehind) {
  open_manager(setup_of(4));
  ASSERT_TRUE(add(request(1, 17)));
  step();
  EngineRequest urgent = branch(2, 16, 22);
  urgent.priority = -1;
  ASSERT_TRUE(add(urgent));
  EXPECT_EQ(tokens_of(begin_step(), 2), 4u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerAwaitTest, AFewTokensAreNotWorthAStep) {
  ManagerSetup setup = setup_of();
  setup.manager.await_tokens_min = 12;
  open_manager(setup);
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 8, 22)));
  ASSERT_TRUE(add(branch(3, 12, 22)));
  const Batch& batch = begin_step();
  EXPECT_EQ(tokens_of(batch, 2), 22u);
  EXPECT_EQ(tokens_of(batch, 3), 0u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerAwaitTest, SwitchedOffBothCompute) {
  ManagerSetup setup = setup_of();
  setup.manager.await_tokens_min = 0;
  open_manager(setup);
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  EXPECT_EQ(step(), 39u);
  run_to_end();
}

TEST_F(ResourceManagerAwaitTest, WithOtherWeightsNobodyWaitsForTheOldOnes) {
  open_manager(setup_of());
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(branch(2, 16, 22)));
  begin_step();
  weights = 1;
  KvSpec spec = test_spec();
  spec.weights_revision = "2";
  manager->weights_changed(*make_namespace(spec));
  end_step();
  EXPECT_EQ(tokens_of(begin_step(), 2), 22u);
  end_step();
  run_to_end();
  check_calm();
}

// The store brings a block in 8 ms; computing it takes 4.
class ResourceManagerTurnTest : public ResourceManagerAwaitTest {
 protected:
  static ManagerSetup slow_store_setup() {
    ManagerSetup setup = setup_of();
    setup.with_store = true;
    setup.costs.probe_blocks = 0;
    auto& rate = setup.costs.transfers[static_cast<size_t>(TransferPath::kStoreToHost)];
    rate = {milliseconds(1),
            static_cast<double>(AttentionModel::block_bytes(kBlockTokens)) / 0.008};
    return setup;
  }
  // Only the store has a prompt of 17 tokens.
  void fill_store() {
    serve(request(900, 17, 0, 1));
    prefix->clear();
    run_to_end();
    finished.clear();
  }
};

TEST_F(ResourceManagerTurnTest, ASlowStoreIsNotWaitedForByWhoeverCanRun) {
  open_manager(slow_store_setup());
  fill_store();
  ASSERT_TRUE(add(request(1, 17)));
  EXPECT_EQ(step(), 17u);
  run_to_end();
}

TEST_F(ResourceManagerTurnTest, ASlowStoreBringsItsBlocksToWhoeverHasToWaitForItsTurn) {
  ManagerSetup setup = slow_store_setup();
  setup.manager.step_tokens_max = 40;
  setup.manager.running_max = 4;
  setup.device_blocks = 64;
  open_manager(setup);
  fill_store();
  // Takes 80 ms, in which all four blocks come.
  ASSERT_TRUE(add(request(1, 80, 5000, 1)));
  ASSERT_TRUE(add(request(2, 17)));
  EXPECT_EQ(step(), 40u);
  EXPECT_EQ(state(2), RequestState::kPrefetching);
  carry_out_everything();
  run_to_end();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[1].loaded_tokens, 16u);
  check_calm();
}

TEST_F(ResourceManagerTurnTest, WhoFoundTooManyAtTheStoreAndNoRoomAsksAgain) {
  ManagerSetup setup;
  setup.with_store = true;
  setup.device_blocks = 8;
  setup.manager.prefetching_max = 1;
  setup.manager.await_tokens_min = 0;
  open_manager(setup);
  serve(request(900, 9, 3000, 1));
  serve(request(901, 17, 0, 1));
  prefix->clear();
  run_to_end();
  finished.clear();
  ASSERT_TRUE(add(request(1, 15, 7000, 8)));  // half of the pool
  run_once();
  ASSERT_TRUE(add(request(2, 9, 3000)));  // stands at the store
  step();
  ASSERT_EQ(state(2), RequestState::kPrefetching);
  ASSERT_TRUE(add(request(3, 25)));  // no place there, and no room in the pool
  step();
  ASSERT_EQ(state(3), RequestState::kWaiting);
  abort(2);
  step();
  EXPECT_EQ(state(3), RequestState::kPrefetching);
  run_to_end();
  check_calm();
}

}  // namespace
}  // namespace tiercel
