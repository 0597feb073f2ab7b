// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/workload.h"

#include "examples/tiny_llm/tiny_fixture.h"

namespace tiercel::tiny {
namespace {

class WorkloadTest : public ::testing::Test {
 protected:
  Workload make(uint64_t weights_seed, WorkloadOptions options = {}) {
    models_.push_back(*TinyModel::create(config_, weights_seed));
    TinyWeightsRevision weights;
    weights.model = models_.back().get();
    weights.recorder = &recorder_;
    weights.name_space = *make_namespace(kv_spec(config_, weights_seed, "order"));
    return *make_workload(options, weights);
  }

  TinyConfig config_;
  KvRecorder recorder_{config_};
  std::vector<std::unique_ptr<TinyModel>> models_;
};

TEST_F(WorkloadTest, HasWhatPromptsAreLikeInPractice) {
  const Workload workload = make(1);
  uint32_t whole_blocks = 0, below_a_block = 0, single = 0;
  for (const auto& wave : workload.waves) {
    for (const WorkItem& item : wave) {
      whole_blocks += item.prompt.size() % config_.block_tokens == 0 ? 1 : 0;
      below_a_block += item.prompt.size() < config_.block_tokens ? 1 : 0;
      single += item.prompt.size() == 1 ? 1 : 0;
      EXPECT_GE(item.expected.outputs.size(), 1u);
      EXPECT_EQ(item.expected.logits.size(), item.expected.outputs.size() * config_.vocabulary);
    }
  }
  EXPECT_GE(whole_blocks, 4u);
  EXPECT_GE(below_a_block, 2u);
  EXPECT_GE(single, 1u);
  EXPECT_GT(recorder_.size(), 20u);
}

TEST_F(WorkloadTest, ALaterTurnBeginsWithTheEarlierOneAndItsAnswer) {
  const Workload workload = make(1);
  const WorkItem& first = workload.waves[0][0];
  std::vector<TokenId> history = first.prompt;
  history.insert(history.end(), first.expected.outputs.begin(), first.expected.outputs.end());
  const std::vector<TokenId>& second = workload.waves[1][0].prompt;
  ASSERT_GT(second.size(), history.size());
  EXPECT_TRUE(std::equal(history.begin(), history.end(), second.begin()));
}

TEST_F(WorkloadTest, TheFirstPromptsAreTheSameForAnyWeightsAndTheAnswersAreNot) {
  const Workload a = make(1), b = make(2);
  uint32_t equal_answers = 0;
  for (size_t i = 0; i < a.waves[0].size(); ++i) {
    EXPECT_EQ(a.waves[0][i].prompt, b.waves[0][i].prompt);
    equal_answers += a.waves[0][i].expected.same_logits(b.waves[0][i].expected) ? 1 : 0;
  }
  EXPECT_EQ(equal_answers, 0u);
}

TEST_F(WorkloadTest, MoreRequestsComeInEveryWaveAndFollowTheSeed) {
  const Workload few = make(1), more = make(1, {1, 5}), again = make(1, {1, 5}),
                 other = make(1, {2, 5});
  for (size_t wave = 0; wave < few.waves.size(); ++wave) {
    ASSERT_EQ(more.waves[wave].size(), few.waves[wave].size() + 5);
    EXPECT_EQ(more.waves[wave].back().prompt, again.waves[wave].back().prompt);
    EXPECT_NE(more.waves[wave].back().prompt, other.waves[wave].back().prompt);
  }
}

}  // namespace
}  // namespace tiercel::tiny
