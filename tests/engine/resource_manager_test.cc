// SPDX-License-Identifier: Apache-2.0
//
// What runs when: admission, chunks, decodes, ends. Faults and preemption have files of their own.
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

using ResourceManagerTest = ManagerFixture;

TEST_F(ResourceManagerTest, OneRequestRunsFromPromptToItsLastToken) {
  open_manager();
  const FinishedRequest done = serve(request(1, 10));
  EXPECT_EQ(done.reason, FinishReason::kOutputLimit);
  EXPECT_EQ(done.outputs.size(), 4u);
  EXPECT_EQ(done.prompt_tokens, 10u);
  EXPECT_EQ(done.device_hit_tokens, 0u);
  check_calm();
}

TEST_F(ResourceManagerTest, ThePromptIsOneChunkAndThenEachStepIsOneToken) {
  open_manager();
  ASSERT_TRUE(add(request(1, 10)));
  EXPECT_EQ(step(), 10u);
  EXPECT_EQ(step(), 1u);
  EXPECT_EQ(step(), 1u);
  EXPECT_EQ(step(), 1u);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(step(), 0u);
}

TEST_F(ResourceManagerTest, TheEndOfTheSequenceEndsTheRequest) {
  open_manager();
  model->sequences_end = true;
  // Found by the model: the first of many prompts that samples the end early.
  for (TokenId first = 0; first < 1000; ++first) {
    const EngineRequest asked = request(first, 6, first * 100, 50);
    const size_t length = AttentionModel::outputs_of(asked, 0, 50, true).size();
    if (length < 2 || length > 20) continue;
    const FinishedRequest done = serve(asked);
    EXPECT_EQ(done.reason, FinishReason::kEndOfSequence);
    EXPECT_EQ(done.outputs.size(), length);
    return;
  }
  FAIL() << "no prompt ends early";
}

TEST_F(ResourceManagerTest, ALongPromptIsComputedInChunksBesideTheDecodesOfOthers) {
  ManagerSetup setup;
  setup.manager.running_max = 4;
  setup.manager.step_tokens_max = 16;
  setup.manager.prefill_chunk_tokens_max = 12;
  open_manager(setup);
  ASSERT_TRUE(add(request(1, 4, 0, 40)));
  EXPECT_EQ(step(), 4u);
  ASSERT_TRUE(add(request(2, 40, 1000)));
  ASSERT_TRUE(add(request(3, 40, 2000)));
  const Batch& batch = begin_step();
  EXPECT_EQ(tokens_of(batch, 1), 1u);
  EXPECT_EQ(tokens_of(batch, 2), 12u);
  EXPECT_EQ(tokens_of(batch, 3), 3u);  // what is left of the budget
  end_step();
  run_to_end();
  check_calm();
}

TEST_F(ResourceManagerTest, NoPromptTakesTheTokenOfADecode) {
  ManagerSetup setup;
  setup.manager.running_max = 4;
  setup.manager.step_tokens_max = 4;
  setup.manager.prefill_chunk_tokens_max = 4;
  open_manager(setup);
  EngineRequest late = request(2, 3, 1000, 20);
  ASSERT_TRUE(add(late));
  step();
  EngineRequest urgent = request(1, 40);
  urgent.priority = -1;
  ASSERT_TRUE(add(urgent));
  step();
  const Batch& batch = begin_step();
  EXPECT_EQ(tokens_of(batch, 1), 3u);
  EXPECT_EQ(tokens_of(batch, 2), 1u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerTest, LowerPriorityComesFirstAndThenWhoeverCameFirst) {
  ManagerSetup setup;
  setup.manager.running_max = 1;
  open_manager(setup);
  EngineRequest second = request(2, 5, 100);
  EngineRequest third = request(3, 5, 200);
  EngineRequest first = request(4, 5, 300);
  second.priority = third.priority = 7;
  first.priority = -3;
  ASSERT_TRUE(add(second));
  ASSERT_TRUE(add(third));
  ASSERT_TRUE(add(first));
  run_to_end();
  ASSERT_EQ(finished.size(), 3u);
  EXPECT_EQ(finished[0].id, RequestId(4));
  EXPECT_EQ(finished[1].id, RequestId(2));
  EXPECT_EQ(finished[2].id, RequestId(3));
}

TEST_F(ResourceManagerTest, WhatOneRequestHasComputedTheNextOneFindsOnTheDevice) {
  open_manager();
  serve(request(1, 16));
  const FinishedRequest done = serve(request(2, 16));
  EXPECT_EQ(done.device_hit_tokens, 12u) << "the last block of a full match is computed again";
  EXPECT_EQ(done.loaded_tokens, 0u);
}

TEST_F(ResourceManagerTest, WhatLeftTheDeviceIsLoadedFromTheHostTier) {
  ManagerSetup setup;
  setup.device_blocks = 6;
  open_manager(setup);
  serve(request(1, 17));
  serve(request(2, 20, 1000));
  const FinishedRequest done = serve(request(3, 17));
  EXPECT_GT(done.loaded_tokens, 0u);
  EXPECT_EQ(done.loaded_tokens + done.device_hit_tokens, 16u);
  check_calm();
}

TEST_F(ResourceManagerTest, APromptOfExactlyNBlocksIsServedAndSharedWhole) {
  open_manager();
  for (const uint32_t blocks : {1u, 2u, 5u}) {
    const TokenId first = blocks * 1000;
    serve(request(10 + blocks, blocks * kBlockTokens, first));
    const FinishedRequest again = serve(request(20 + blocks, blocks * kBlockTokens, first));
    EXPECT_EQ(again.device_hit_tokens, (blocks - 1) * kBlockTokens);
    // With one more token the last block is a hit as well.
    const FinishedRequest longer = serve(request(30 + blocks, blocks * kBlockTokens + 1, first));
    EXPECT_EQ(longer.device_hit_tokens, blocks * kBlockTokens);
  }
}

TEST_F(ResourceManagerTest, OutputsAreCachedAndTheNewestTokenIsNot) {
  open_manager();
  EngineRequest first = request(1, 6, 0, 3);
  const FinishedRequest done = serve(first);
  ASSERT_EQ(done.outputs.size(), 3u);
  // The next turn: 9 tokens of before, 8 of which have KV, and new ones.
  EngineRequest turn = request(2, 6, 0, 3);
  turn.prompt.insert(turn.prompt.end(), done.outputs.begin(), done.outputs.end());
  turn.prompt.insert(turn.prompt.end(), {77, 78, 79});
  EXPECT_EQ(serve(turn).device_hit_tokens, 8u);

  // Of 6 + 2 tokens the eighth was sampled last: its block is full, but not computed.
  open_manager();
  first.output_tokens_max = 2;
  const FinishedRequest shorter = serve(first);
  EngineRequest next = request(3, 6, 0, 3);
  next.prompt.insert(next.prompt.end(), shorter.outputs.begin(), shorter.outputs.end());
  next.prompt.insert(next.prompt.end(), {77, 78, 79});
  EXPECT_EQ(serve(next).device_hit_tokens, 4u);
}

TEST_F(ResourceManagerTest, WithoutCachedOutputsOnlyThePromptIsShared) {
  ManagerSetup setup;
  setup.manager.cache_outputs = false;
  open_manager(setup);
  const FinishedRequest done = serve(request(1, 6, 0, 8));
  EngineRequest turn = request(2, 6, 0, 3);
  turn.prompt.insert(turn.prompt.end(), done.outputs.begin(), done.outputs.end());
  turn.prompt.push_back(77);
  EXPECT_EQ(serve(turn).device_hit_tokens, 4u);
}

TEST_F(ResourceManagerTest, ScopesAndItemsKeepRequestsApart) {
  open_manager();
  serve(request(1, 16));
  EngineRequest adapted = request(2, 16);
  adapted.scope.adapter_id = "adapter";
  EXPECT_EQ(serve(adapted).device_hit_tokens, 0u);
  EngineRequest salted = request(3, 16);
  salted.scope.tenant_salt = "tenant";
  EXPECT_EQ(serve(salted).device_hit_tokens, 0u);
  EngineRequest picture = request(4, 16);
  picture.items.push_back({"image", "content", 2, 9});
  EXPECT_EQ(serve(picture).device_hit_tokens, 0u);
  picture.id = RequestId(5);
  EXPECT_EQ(serve(picture).device_hit_tokens, 12u);
}

TEST_F(ResourceManagerTest, DeviceBlocksAreTakenForTheFirstChunkOnly) {
  ManagerSetup setup;
  setup.manager.running_max = 1;
  setup.manager.step_tokens_max = 8;
  setup.manager.prefill_chunk_tokens_max = 8;
  open_manager(setup);
  ASSERT_TRUE(add(request(1, 64)));
  begin_step();
  EXPECT_EQ(prefix->stats().referenced_blocks, 2u);
  end_step();
  begin_step();
  EXPECT_EQ(prefix->stats().referenced_blocks, 4u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerTest, AnOpenBatchIsShownAgainAndAnEmptyOneIsNotOpen) {
  open_manager();
  EXPECT_TRUE(manager->schedule().requests.empty());
  EXPECT_EQ(manager->complete(1, {}).code(), Code::kInvalid);
  ASSERT_TRUE(add(request(1, 5)));
  const uint64_t open = begin_step().step;
  EXPECT_EQ(manager->schedule().step, open);
  EXPECT_EQ(manager->schedule().requests.size(), 1u);
  end_step();
  run_to_end();
}

TEST_F(ResourceManagerTest, TwoGroupsWithAWindowComputeTheSame) {
  ManagerSetup setup;
  setup.device_blocks = 12;
  setup.spec = test_spec(2);
  setup.spec.groups[1].attention = AttentionKind::kWindow;
  setup.spec.groups[1].window_tokens = 6;
  setup.ranks = 2;
  open_manager(setup);
  for (uint64_t round = 0; round < 4; ++round) {
    serve(request(100 + round, 30, 0));
    serve(request(200 + round, 41, 1000));
    EngineRequest longer = request(300 + round, 35, 0);
    serve(longer);
  }
  EXPECT_GT(manager->stats().loaded_tokens, 0u);
  check_calm();
}

TEST_F(ResourceManagerTest, RefusesAConfigurationThatCannotWork) {
  open_manager();
  const auto code = [&](auto&& change) {
    ResourceManagerConfig config;
    change(config);
    const auto created = ResourceManager::create(config, *cache, *prefix, clock);
    return created.code();
  };
  EXPECT_EQ(code([](auto&) {}), Code::kOk);
  EXPECT_EQ(code([](auto& config) { config.running_max = 0; }), Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.step_tokens_max = config.running_max - 1; }),
            Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.prefill_chunk_tokens_max = 0; }), Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.waiting_max = 0; }), Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.context_tokens_max = 1; }), Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.load_deadline = Duration::zero(); }), Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.load_deadline = Duration::max(); }), Code::kInvalid);
  EXPECT_EQ(code([](auto& config) { config.looks_per_step_max = 0; }), Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
