// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores that fail, come late or never, and requests that end meanwhile.
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ResourceManagerFaultTest : public ManagerFixture {
 protected:
  // Puts a prompt of 17 tokens (tokens 0, 1, …) into the host tier and drives it from the device.
  void open_with_host_content(ManagerSetup setup = {}) {
    setup.device_blocks = 8;
    open_manager(setup);
    serve(request(900, 17, 0, 1));
    serve(request(901, 31, 5000, 1));
    ASSERT_EQ(prefix->match(keys_of(17)).blocks, 0u);
    finished.clear();
  }
  // The same, but only the store has it.
  void open_with_store_content(ManagerSetup setup = {}) {
    setup.with_store = true;
    setup.device_blocks = 8;
    open_manager(setup);
    serve(request(900, 17, 0, 1));
    prefix->clear();
    finished.clear();
    run_to_end();
  }
  // Of the tokens 0, 1, …
  std::vector<BlockKey> keys_of(uint32_t tokens) { return test_keys(tokens / kBlockTokens); }

  // Steps until the request is loading.
  void begin_load(uint64_t id, uint32_t outputs = 4) {
    ASSERT_TRUE(add(request(id, 17, 0, outputs)));
    EXPECT_EQ(step(), 0u);
    ASSERT_EQ(state(id), RequestState::kLoading);
    ASSERT_EQ(plane->open_count(OpKind::kLoad), 4u);
  }
};

TEST_F(ResourceManagerFaultTest, AbortBeforeTheLoadLeavesNothing) {
  open_with_host_content();
  ASSERT_TRUE(add(request(1, 17)));
  abort(1);
  EXPECT_EQ(step(), 0u);
  EXPECT_EQ(plane->open_count(OpKind::kLoad), 0u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, AbortDuringTheLoadKeepsItsBlocksUntilItHasLetGo) {
  open_with_host_content();
  begin_load(1);
  abort(1);
  EXPECT_EQ(state(1), std::nullopt);
  // Wants the whole pool, which is not there as long as the load may write to it.
  ASSERT_TRUE(add(request(2, 31, 7000, 1)));
  EXPECT_EQ(step(), 0u);
  carry_out_all(OpKind::kLoad);
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, AnIdIsUsedAgainWhileTheLoadOfItsFormerLifeRuns) {
  open_with_host_content();
  begin_load(1);
  abort(1);
  ASSERT_TRUE(add(request(1, 9, 7000)));
  step();
  carry_out_all(OpKind::kLoad);
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].loaded_tokens, 0u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, AbortAfterTheLoadLeavesWhatItLoadedForOthers) {
  open_with_host_content();
  begin_load(1);
  carry_out_all(OpKind::kLoad);
  begin_step();
  ASSERT_EQ(state(1), RequestState::kRunning);
  end_step();
  abort(1);
  EXPECT_EQ(serve(request(2, 17)).device_hit_tokens, 16u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, AbortInTheOpenBatchKeepsBlocksAndTokensUntilItIsComplete) {
  open_manager();
  ASSERT_TRUE(add(request(1, 10)));
  ASSERT_TRUE(add(request(2, 10, 1000)));
  begin_step();
  abort(1);
  EXPECT_EQ(state(1), std::nullopt);
  EXPECT_GE(prefix->stats().referenced_blocks, 6u);
  ASSERT_TRUE(manager->add(request(1, 6, 2000)));  // the id is free
  end_step();
  EXPECT_EQ(prefix->stats().referenced_blocks, 3u);
  ASSERT_TRUE(manager->abort(RequestId(1)));
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].id, RequestId(2));
  check_calm();
}

TEST_F(ResourceManagerFaultTest, ALoadThatMissesItsDeadlineIsPrefillInTheNextStep) {
  open_with_host_content();
  begin_load(1);
  clock.advance(seconds(1));
  EXPECT_EQ(step(), 16u) << "what the rest of the pool has room for";
  EXPECT_EQ(manager->stats().loads_short, 1u);
  EXPECT_EQ(manager->stats().blocks_parted, 4u);
  carry_out_all(OpKind::kLoad);  // writes now, to blocks that are nobody's any more
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, WhatALateLoadHasOfThePoolIsWaitedFor) {
  open_with_host_content();
  begin_load(1);
  ASSERT_TRUE(add(request(2, 12, 8000, 1)));
  step();
  clock.advance(seconds(1));
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(manager->stats().lost_tokens, 0u);
  carry_out_all(OpKind::kLoad);
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, FinishedWithALoadInFlightItsBlocksComeBackLater) {
  ManagerSetup setup;
  setup.host_blocks = 128;
  open_with_host_content(setup);
  // A pool with room for a second set of blocks.
  setup.device_blocks = 32;
  open_manager(setup);
  serve(request(900, 17, 0, 1));
  for (uint64_t id = 901; id < 905; ++id) {
    serve(request(id, 100, static_cast<TokenId>(id * 1000), 1));
  }
  finished.clear();
  begin_load(1, 1);
  clock.advance(seconds(1));
  EXPECT_EQ(step(), 17u);
  EXPECT_EQ(manager->stats().blocks_parted, 4u);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_TRUE(manager->idle());
  EXPECT_GT(prefix->stats().referenced_blocks, 0u) << "a transfer may still write to them";
  carry_out_all(OpKind::kLoad);
  run_to_end();
  check_calm();
}

TEST_F(ResourceManagerFaultTest, WhatALoadCouldNotBringIsComputed) {
  open_with_host_content();
  for (const Code code : {Code::kCorrupt, Code::kUnavailable, Code::kTimeout}) {
    const auto id = static_cast<uint64_t>(code);
    ASSERT_TRUE(add(request(id, 17, 0, 1)));
    step();
    if (plane->open_count(OpKind::kLoad) > 2) {
      carry_out(2, code);
      carry_out_all(OpKind::kLoad);
    }
    run_to_end();
    serve(request(1000 + id, 31, 6000, 1));
  }
  EXPECT_GE(manager->stats().loads_short, 1u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, TwoRequestsWithOneMissingPrefixLoadItOnce) {
  open_with_host_content();
  begin_load(1);
  EngineRequest other = request(2, 17);
  other.prompt.back() = 999;
  ASSERT_TRUE(add(other));
  step();
  EXPECT_EQ(state(2), RequestState::kWaiting);
  EXPECT_EQ(plane->open_count(OpKind::kLoad), 4u);
  carry_out_all(OpKind::kLoad);
  run_to_end();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[1].device_hit_tokens, 16u);
  EXPECT_EQ(manager->stats().loads, 1u);
  EXPECT_EQ(manager->stats().shared_waits, 1u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, IfTheOneWhoLoadsIsAbortedTheOtherLoads) {
  open_with_host_content();
  begin_load(1);
  ASSERT_TRUE(add(request(2, 17)));
  step();
  abort(1);
  carry_out_all(OpKind::kLoad);  // of the aborted one
  step();
  EXPECT_EQ(state(2), RequestState::kLoading);
  run_to_end();
  EXPECT_EQ(finished.size(), 1u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, WhatOnlyTheStoreHasIsFetchedWhileTheRequestWaits) {
  open_with_store_content();
  ASSERT_TRUE(add(request(1, 17)));
  EXPECT_EQ(step(), 0u);
  EXPECT_EQ(state(1), RequestState::kPrefetching);
  EXPECT_EQ(prefix->stats().referenced_blocks, 0u)
      << "no device blocks before it is known what there is";
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].loaded_tokens, 16u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, TwoRequestsThatWantTheSameOfTheStoreShareOneTransfer) {
  open_with_store_content();
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(request(2, 17)));
  run_to_end();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(plane->count(OpKind::kStoreGet), 4u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, AStoreThatHangsCostsItsDeadlineAndNobodyElseAnything) {
  ManagerSetup setup;
  setup.manager.running_max = 4;
  setup.manager.step_tokens_max = 64;
  open_with_store_content(setup);
  serve(request(800, 9, 7000, 1));  // is on the device afterwards
  finished.clear();
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(request(2, 9, 7000)));
  EXPECT_EQ(step(), 1u) << "who needs nothing of the store runs in the same step";
  EXPECT_EQ(state(1), RequestState::kPrefetching);
  while (finished.empty()) ASSERT_EQ(step(), 1u);
  EXPECT_EQ(finished[0].id, RequestId(2));
  EXPECT_EQ(step(), 0u);
  EXPECT_LE(manager->next_deadline(), clock.now() + setup.manager.prefetch_deadline);
  clock.advance(setup.manager.prefetch_deadline);
  EXPECT_EQ(step(), 17u) << "after the deadline it is computed";
  run_to_end();
  check_calm();
}

TEST_F(ResourceManagerFaultTest, TheStoreAnswersAfterTheRequestHasEnded) {
  open_with_store_content();
  ASSERT_TRUE(add(request(1, 17)));
  step();
  ASSERT_GT(plane->open_count(OpKind::kStoreExists), 0u);
  abort(1);
  ASSERT_TRUE(add(request(1, 9, 7000)));  // the same id in another life
  carry_out_everything();
  step();
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outputs.size(), 4u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, NoMoreThanSoManyWaitForTheStore) {
  ManagerSetup setup;
  setup.manager.prefetching_max = 1;
  open_with_store_content(setup);
  const uint64_t before = manager->stats().prefetches;
  ASSERT_TRUE(add(request(1, 17)));
  ASSERT_TRUE(add(request(2, 9, 7000)));
  EXPECT_EQ(step(), 9u) << "the second does without";
  EXPECT_EQ(manager->stats().prefetches, before + 1);
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
}

TEST_F(ResourceManagerFaultTest, WithTheNewWeightsNothingOfTheOldOnesIsFound) {
  open_manager();
  serve(request(1, 17));
  weights = 1;
  manager->weights_changed(*make_namespace([] {
    KvSpec spec = test_spec();
    spec.weights_revision = "2";
    return spec;
  }()));
  const FinishedRequest done = serve(request(2, 17));
  EXPECT_EQ(done.device_hit_tokens, 0u);
  EXPECT_EQ(done.loaded_tokens, 0u);
  EXPECT_EQ(done.outputs, AttentionModel::outputs_of(request(2, 17), 1, 4));
  // And back: what was computed then is good again.
  weights = 0;
  manager->weights_changed(*make_namespace(test_spec()));
  EXPECT_EQ(serve(request(3, 17)).device_hit_tokens, 16u);
}

TEST_F(ResourceManagerFaultTest, WeightsThatChangeInMidLoadLetTheRequestBeginAnew) {
  open_with_host_content();
  begin_load(1);
  weights = 1;
  KvSpec spec = test_spec();
  spec.weights_revision = "2";
  manager->weights_changed(*make_namespace(spec));
  check();
  EXPECT_EQ(state(1), RequestState::kWaiting);
  EXPECT_EQ(manager->stats().preempted, 1u) << "it has lost its device blocks";
  carry_out_all(OpKind::kLoad);
  const Batch& next = manager->schedule();
  EXPECT_EQ(std::vector(next.preempted.begin(), next.preempted.end()), std::vector{RequestId(1)});
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outputs, AttentionModel::outputs_of(request(1, 17), 1, 4));
  EXPECT_EQ(finished[0].preemptions, 1u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, WeightsThatChangeInMidRequestKeepItToItself) {
  open_manager();
  ASSERT_TRUE(add(request(1, 10, 0, 12)));
  step();
  step();
  const uint64_t saves = plane->count(OpKind::kSave);
  begin_step();  // with the old ones
  weights = 1;
  KvSpec spec = test_spec();
  spec.weights_revision = "2";
  manager->weights_changed(*make_namespace(spec));
  end_step();
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outputs.size(), 12u);
  EXPECT_EQ(plane->count(OpKind::kSave), saves) << "what is of both weights is not saved";
  // Neither is it shared, under either name.
  EXPECT_EQ(serve(request(2, 10)).device_hit_tokens, 0u);
  EngineRequest turn = request(3, 10);
  turn.prompt.insert(turn.prompt.end(), finished[0].outputs.begin(), finished[0].outputs.end());
  weights = 0;
  manager->weights_changed(*make_namespace(test_spec()));
  EXPECT_EQ(serve(turn).device_hit_tokens, 8u) << "what was computed before the change";
  check_calm();
}

TEST_F(ResourceManagerFaultTest, WhatAStepHasLostIsComputedAgain) {
  open_manager();
  ASSERT_TRUE(add(request(1, 10)));
  const uint64_t first = begin_step().step;
  ASSERT_TRUE(manager->fail_step(first, false));
  is_open = false;
  check();
  EXPECT_EQ(manager->stats().lost_tokens, 10u);
  EXPECT_EQ(prefix->match(test_keys(2)).blocks, 0u) << "what was not computed is not shared";
  EXPECT_EQ(step(), 10u);
  // A request without a result, beside one that has one.
  ASSERT_TRUE(add(request(2, 6, 1000)));
  begin_step();
  results.erase(results.begin());
  end_step();
  EXPECT_EQ(begin_step().requests.size(), 2u);
  end_step();
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, ARankThatIsLostInMidStepTakesTheDeviceTierWithIt) {
  ManagerSetup setup;
  setup.ranks = 2;
  open_manager(setup);
  serve(request(1, 17));
  ASSERT_TRUE(add(request(2, 17, 0, 8)));
  ASSERT_TRUE(add(request(3, 17, 1000, 8)));
  step();
  carry_out_everything();
  const uint64_t open = begin_step().step;
  ASSERT_TRUE(manager->fail_step(open, true));
  is_open = false;
  model->lose_memory();
  check();
  EXPECT_EQ(state(2), RequestState::kWaiting);
  EXPECT_EQ(state(3), RequestState::kWaiting);
  EXPECT_EQ(prefix->stats().cached_blocks, 0u);
  const Batch& next = begin_step();
  EXPECT_EQ(next.preempted.size(), 2u);
  if (is_open) end_step();
  run_to_end();
  ASSERT_EQ(finished.size(), 3u);
  EXPECT_GT(manager->stats().loaded_tokens, 0u) << "the host tier still has it";
  check_calm();
}

TEST_F(ResourceManagerFaultTest, DeviceMemoryMayBeLostBetweenSteps) {
  open_manager();
  serve(request(1, 17));
  ASSERT_TRUE(manager->fail_step(0, true));
  model->lose_memory();
  EXPECT_EQ(serve(request(2, 17)).device_hit_tokens, 0u);
  check_calm();
}

TEST_F(ResourceManagerFaultTest, WhoIsAbortedAfterALostStepIsNotSaidToBePreempted) {
  open_manager();
  ASSERT_TRUE(add(request(1, 9, 0, 4)));
  const uint64_t lost = begin_step().step;
  ASSERT_TRUE(manager->fail_step(lost, true));
  is_open = false;
  model->lose_memory();
  abort(1);
  ASSERT_TRUE(add(request(1, 9, 5000, 4)));  // another one of that id
  EXPECT_TRUE(begin_step().preempted.empty());
  end_step();
  run_to_end();
  check_calm();
}

TEST_F(ResourceManagerFaultTest, NobodyIsWaitedForOnceAllHaveGone) {
  ManagerSetup setup;
  setup.device_blocks = 8;
  open_manager(setup);
  // Blocks of the first are still being saved when it has ended; the second waits for them.
  ASSERT_TRUE(add(request(2, 16, 5000, 1)));
  ASSERT_TRUE(add(request(1, 15, 0, 10)));
  for (int i = 0; i < 4; ++i) step();
  ASSERT_GT(prefix->leaving_blocks(), 0u) << "nobody waits: the test is too weak";
  ASSERT_LT(manager->next_deadline(), kNoDeadline);
  abort(1);
  clock.advance(std::chrono::milliseconds(200));
  run_to_end();
  EXPECT_TRUE(manager->idle());
  EXPECT_GT(manager->next_deadline(), clock.now()) << "idle, and wants to be called at once";
}

TEST_F(ResourceManagerFaultTest, ManyWhoWaitForOneLoadStandInNobodysWay) {
  open_with_host_content();
  for (uint64_t id = 1; id <= 100; ++id) ASSERT_TRUE(add(request(id, 17, 0, 1)));
  ASSERT_TRUE(add(request(200, 2, 7000, 1)));
  for (int i = 0; i < 20 && state(200); ++i) step();
  EXPECT_FALSE(state(200)) << "it waits for a load that is none of its business";
  EXPECT_EQ(state(1), RequestState::kLoading);
  run_to_end();
  check_calm();
}

}  // namespace
}  // namespace tiercel
