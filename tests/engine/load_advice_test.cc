// SPDX-License-Identifier: Apache-2.0
#include "engine/manager_fixture.h"

namespace tiercel {
namespace {

// Says what a test wants, and keeps what it was asked.
class FixedAdvice final : public LoadAdvice {
 public:
  uint32_t blocks_to_load(const LoadQuestion& question) override {
    questions.push_back(question);
    places.assign(question.places.begin(), question.places.end());
    return blocks;
  }
  bool prefetch_pays(const LoadQuestion&) override { return pays; }

  uint32_t blocks = UINT32_MAX;
  bool pays = true;
  std::vector<LoadQuestion> questions;
  std::vector<BlockPlace> places;
};

class LoadAdviceTest : public ManagerFixture {
 protected:
  // A prompt of 17 tokens is in the host tier, and in the store.
  void open_with_content() {
    ManagerSetup setup;
    setup.with_store = true;
    setup.device_blocks = 8;
    setup.advice = &advice;
    open_manager(setup);
    serve(request(900, 17, 0, 1));
    serve(request(901, 31, 5000, 1));
    finished.clear();
    advice.questions.clear();
  }
  FixedAdvice advice;
};

TEST_F(LoadAdviceTest, CutsTheLoadAndTheRestIsComputed) {
  open_with_content();
  advice.blocks = 2;
  EXPECT_EQ(serve(request(1, 17)).loaded_tokens, 8u);
  ASSERT_FALSE(advice.questions.empty());
  EXPECT_EQ(advice.questions[0].ready_blocks, 4u);
  EXPECT_EQ(advice.questions[0].device_blocks, 0u);
  EXPECT_EQ(advice.questions[0].token_count, 17u);
  EXPECT_EQ(advice.places, std::vector<BlockPlace>(4, BlockPlace::kHost));
}

TEST_F(LoadAdviceTest, OutOfRangeIsTheNearerEnd) {
  open_with_content();
  advice.blocks = 0;
  EXPECT_EQ(serve(request(1, 17)).loaded_tokens, 0u);
  serve(request(902, 31, 6000, 1));
  advice.blocks = 1000;
  EXPECT_EQ(serve(request(2, 17)).loaded_tokens, 16u);
}

TEST_F(LoadAdviceTest, NobodyWaitsForAStoreThatDoesNotPay) {
  open_with_content();
  advice.pays = false;
  const uint64_t before = manager->stats().prefetches;
  serve(request(1, 9, 7000));
  EXPECT_EQ(manager->stats().prefetches, before);
}

}  // namespace
}  // namespace tiercel
