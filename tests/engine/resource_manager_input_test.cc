// SPDX-License-Identifier: Apache-2.0
//
// What ResourceManager refuses, with the value and what is allowed, and what a refusal leaves
// behind: nothing.
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

class ResourceManagerInputTest : public ManagerFixture {
 protected:
  // The code, after a look at the message and at what the refusal has changed.
  Code refused(const EngineRequest& wanted, const std::vector<std::string>& words) {
    const ResourceManagerStats before = manager->stats();
    const Status added = manager->add(wanted);
    EXPECT_FALSE(added);
    if (added) return Code::kOk;
    for (const std::string& word : words) {
      EXPECT_NE(added.error().message().find(word), std::string::npos)
          << "\"" << word << "\" is missing in: " << added.error().message();
    }
    EXPECT_EQ(manager->stats().added, before.added);
    EXPECT_EQ(manager->check(), "");
    return added.code();
  }
};

TEST_F(ResourceManagerInputTest, AnEmptyPromptIsRefused) {
  open_manager();
  EXPECT_EQ(refused(request(7, 0), {"request 7", "empty prompt", "at least one token"}),
            Code::kInvalid);
  EXPECT_TRUE(manager->idle());
}

TEST_F(ResourceManagerInputTest, MoreTokensThanTheContextAreRefused) {
  ManagerSetup setup;
  setup.manager.context_tokens_max = 20;
  open_manager(setup);
  EXPECT_EQ(refused(request(1, 20), {"20 tokens", "1 to 19", "context_tokens_max is 20"}),
            Code::kInvalid);
  const FinishedRequest done = serve(request(1, 19));
  EXPECT_EQ(done.outputs.size(), 1u);
  EXPECT_EQ(done.reason, FinishReason::kContextLimit);
}

TEST_F(ResourceManagerInputTest, MoreTokensThanTheDevicePoolAreRefused) {
  ManagerSetup setup;
  setup.device_blocks = 3;
  open_manager(setup);
  EXPECT_EQ(refused(request(1, 13), {"13 tokens", "1 to 12", "device pool"}), Code::kInvalid);
  const FinishedRequest done = serve(request(1, 12, 0, 100));
  EXPECT_EQ(done.outputs.size(), 1u) << "the newest token needs no place";
  EXPECT_EQ(done.reason, FinishReason::kContextLimit);
}

TEST_F(ResourceManagerInputTest, ARequestWithoutOutputTokensIsRefused) {
  open_manager();
  EXPECT_EQ(refused(request(1, 5, 0, 0), {"may have 0 output tokens"}), Code::kInvalid);
  EngineRequest handed = request(1, 5, 0, 2);
  handed.outputs = {1, 2};
  EXPECT_EQ(refused(handed, {"may have 2 output tokens and has 2"}), Code::kInvalid);
}

TEST_F(ResourceManagerInputTest, TheSameIdTwiceIsRefusedAsLongAsTheFirstLives) {
  open_manager();
  ASSERT_TRUE(add(request(1, 5)));
  EXPECT_EQ(refused(request(1, 6), {"request 1", "lives already"}), Code::kInvalid);
  step();
  EXPECT_EQ(refused(request(1, 6), {"lives already"}), Code::kInvalid);
  run_to_end();
  EXPECT_EQ(serve(request(1, 6, 500)).outputs.size(), 4u);
}

TEST_F(ResourceManagerInputTest, ItemsThatMakeNoSenseAreRefused) {
  open_manager();
  EngineRequest wanted = request(1, 10);
  wanted.items = {{"image", "content", 5, 5}};
  EXPECT_EQ(refused(wanted, {"its end must be greater"}), Code::kInvalid);
  wanted.items = {{"image", "content", 5, 11}};
  EXPECT_EQ(refused(wanted, {"ends at token 11", "1 to 10"}), Code::kInvalid);
  wanted.items = {{std::string(300, 'k'), "content", 5, 6}};
  EXPECT_EQ(refused(wanted, {"kind has 300 bytes"}), Code::kInvalid);
}

TEST_F(ResourceManagerInputTest, AFullQueueIsBusyAndNotAnError) {
  ManagerSetup setup;
  setup.manager.waiting_max = 2;
  setup.manager.running_max = 1;
  open_manager(setup);
  ASSERT_TRUE(add(request(1, 5)));
  ASSERT_TRUE(add(request(2, 5)));
  EXPECT_EQ(refused(request(3, 5), {"waiting_max is 2"}), Code::kBusy);
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
}

TEST_F(ResourceManagerInputTest, AnUnknownRequestCannotBeAborted) {
  open_manager();
  EXPECT_EQ(manager->abort(RequestId(1)).code(), Code::kNotFound);
  serve(request(1, 5));
  EXPECT_EQ(manager->abort(RequestId(1)).code(), Code::kNotFound);
  EXPECT_EQ(state(1), std::nullopt);
}

TEST_F(ResourceManagerInputTest, ResultsThatDoNotFitTheBatchChangeNothing) {
  ManagerSetup setup;
  setup.manager.step_tokens_max = setup.manager.running_max = 8;
  setup.manager.prefill_chunk_tokens_max = 6;
  open_manager(setup);
  ASSERT_TRUE(add(request(1, 6)));
  ASSERT_TRUE(add(request(2, 9, 100)));
  const Batch& batch = begin_step();
  ASSERT_EQ(batch.requests.size(), 2u);
  const uint64_t open = batch.step;
  const std::vector<StepResult> good = results;
  const auto with = [&](auto&& change) {
    std::vector<StepResult> bad = good;
    change(bad);
    return manager->complete(open, bad).code();
  };
  EXPECT_EQ(manager->complete(open + 1, good).code(), Code::kInvalid);
  EXPECT_EQ(with([](auto& bad) { bad[0].token.reset(); }), Code::kInvalid);
  EXPECT_EQ(with([](auto& bad) { bad[1].token = 5; }), Code::kInvalid);
  EXPECT_EQ(with([](auto& bad) { bad[1].id = RequestId(9); }), Code::kInvalid);
  EXPECT_EQ(with([](auto& bad) { bad.push_back(bad[0]); }), Code::kInvalid);
  EXPECT_EQ(manager->fail_step(open + 1, false).code(), Code::kInvalid);
  check();
  end_step();
  EXPECT_EQ(manager->complete(open, good).code(), Code::kInvalid);
  run_to_end();
  EXPECT_EQ(finished.size(), 2u);
}

}  // namespace
}  // namespace tiercel
