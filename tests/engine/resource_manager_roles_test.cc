// SPDX-License-Identifier: Apache-2.0
//
// Prefill and decode instances that hand over through a store. The fixture's store outlives its
// instances: the decode instance is opened after the prefill instance.
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

class ResourceManagerRolesTest : public ManagerFixture {
 protected:
  void open_role(EngineRole role, uint32_t ranks = 1) {
    ManagerSetup setup;
    setup.with_store = true;
    setup.ranks = ranks;
    setup.manager.role = role;
    open_manager(setup);
    finished.clear();
  }
  // What the prefill instance makes of it, as the decode instance is asked to go on.
  EngineRequest prefilled(const EngineRequest& wanted) {
    const FinishedRequest done = serve(wanted);
    EXPECT_EQ(done.reason, FinishReason::kHandedOver);
    EXPECT_EQ(done.outputs.size(), 1u);
    EXPECT_EQ(done.stored_tokens, wanted.prompt.size());
    EngineRequest rest = wanted;
    rest.outputs = done.outputs;
    return rest;
  }
};

TEST_F(ResourceManagerRolesTest, RolesNeedAStore) {
  open_manager();
  ResourceManagerConfig config;
  for (const EngineRole role : {EngineRole::kPrefill, EngineRole::kDecode}) {
    config.role = role;
    EXPECT_EQ(ResourceManager::create(config, *cache, *prefix, clock).code(), Code::kInvalid);
  }
}

TEST_F(ResourceManagerRolesTest, TheDecodeInstanceComputesNothingOfThePrompt) {
  for (const uint32_t tokens : {1u, 3u, 4u, 7u, 8u, 19u, 40u}) {
    open_role(EngineRole::kPrefill, 2);
    const EngineRequest wanted = request(tokens, tokens, tokens * 1000, 6);
    const EngineRequest rest = prefilled(wanted);
    open_role(EngineRole::kDecode, 2);
    clock.advance(std::chrono::milliseconds(7));
    ASSERT_TRUE(add(rest));
    while (step() == 0) carry_out_everything();
    const TimePoint first_token = clock.now();
    EXPECT_EQ(manager->stats().scheduled_tokens, 1u) << tokens << " tokens";
    run_to_end();
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].first_token, first_token) << "the first that was sampled here";
    EXPECT_EQ(finished[0].loaded_tokens, tokens);
    EXPECT_EQ(finished[0].outputs.size(), 6u);
    check_calm();
  }
}

TEST_F(ResourceManagerRolesTest, WhatIsMissingInTheStoreTheDecodeInstanceComputes) {
  open_role(EngineRole::kPrefill);
  const EngineRequest wanted = request(1, 19, 0, 6);
  const FinishedRequest done = serve(wanted);
  EngineRequest rest = wanted;
  rest.outputs = done.outputs;
  // Another prompt under the same id: nothing of it was ever stored but its first two blocks.
  rest.prompt[8] = 777;
  rest.outputs = AttentionModel::outputs_of(rest, 0, 1);
  open_role(EngineRole::kDecode);
  ASSERT_TRUE(add(rest));
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].loaded_tokens, 8u);
  EXPECT_EQ(finished[0].outputs, AttentionModel::outputs_of(rest, 0, 6));
}

TEST_F(ResourceManagerRolesTest, TheNextTurnsPrefillFindsWhatTheDecodeInstanceSaid) {
  open_role(EngineRole::kPrefill);
  const EngineRequest rest = prefilled(request(1, 19, 0, 6));
  open_role(EngineRole::kDecode);
  ASSERT_TRUE(add(rest));
  run_to_end();
  ASSERT_EQ(finished.size(), 1u);
  EngineRequest turn = rest;
  turn.prompt.insert(turn.prompt.end(), finished[0].outputs.begin(), finished[0].outputs.end());
  turn.prompt.push_back(9);
  turn.outputs.clear();
  open_role(EngineRole::kPrefill);
  EXPECT_EQ(serve(turn).loaded_tokens, 24u);
}

TEST_F(ResourceManagerRolesTest, HandOverWaitsForTheStoreAndNotForEver) {
  open_role(EngineRole::kPrefill);
  ASSERT_TRUE(add(request(1, 10)));
  carry_out_all(OpKind::kStoreExists, Code::kNotFound);
  step();
  carry_out_all(OpKind::kStoreExists, Code::kNotFound);
  while (manager->stats().scheduled_tokens == 0) {
    step();
    carry_out_all(OpKind::kStoreExists, Code::kNotFound);
  }
  EXPECT_EQ(state(1), RequestState::kHandingOver);
  carry_out_all(OpKind::kSave);
  step();
  EXPECT_EQ(state(1), RequestState::kHandingOver);
  EXPECT_GT(plane->open_count(OpKind::kStorePut), 0u);
  EXPECT_LE(manager->next_deadline(), clock.now() + std::chrono::seconds(5));
  clock.advance(std::chrono::seconds(5));
  step();
  take_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].reason, FinishReason::kHandedOver);
  EXPECT_EQ(finished[0].stored_tokens, 0u);
  run_to_end();
  check_calm();
}

TEST_F(ResourceManagerRolesTest, WhatTheStoreDoesNotTakeIsNotWaitedFor) {
  open_role(EngineRole::kPrefill);
  ASSERT_TRUE(add(request(1, 10)));
  for (int i = 0; i < 20 && finished.empty(); ++i) {
    carry_out_all(OpKind::kStoreExists, Code::kNotFound);
    carry_out_all(OpKind::kSave);
    carry_out_all(OpKind::kStorePut, Code::kUnavailable);
    step();
    take_finished();
  }
  ASSERT_EQ(finished.size(), 1u) << "before any deadline";
  EXPECT_EQ(finished[0].stored_tokens, 0u);
  check_calm();
}

TEST_F(ResourceManagerRolesTest, AbortDuringHandOverForgetsTheRequest) {
  open_role(EngineRole::kPrefill);
  ASSERT_TRUE(add(request(1, 10)));
  while (state(1) != RequestState::kHandingOver) {
    carry_out_all(OpKind::kStoreExists, Code::kNotFound);
    step();
  }
  abort(1);
  run_to_end();
  EXPECT_TRUE(finished.empty());
  check_calm();
}

TEST_F(ResourceManagerRolesTest, ALateLoadOfAPartialBlockKeepsItsDeviceBlocks) {
  open_role(EngineRole::kPrefill);
  const EngineRequest rest = prefilled(request(1, 10, 0, 6));
  open_role(EngineRole::kDecode);
  ASSERT_TRUE(add(rest));
  while (state(1) != RequestState::kLoading) {
    carry_out_all(OpKind::kStoreExists);
    carry_out_all(OpKind::kStoreGet);
    step();
  }
  ASSERT_EQ(plane->open_count(OpKind::kLoad), 3u);
  carry_out(0);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(step(), 7u);
  while (finished.empty()) step();
  EXPECT_GT(prefix->stats().referenced_blocks, 0u) << "the transfers have not let go";
  run_to_end();
  check_calm();
}

}  // namespace
}  // namespace tiercel
