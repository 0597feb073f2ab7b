// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/workload.h"

#include <span>
#include <utility>

#include "base/random.h"

namespace tiercel::tiny {
namespace {

constexpr uint32_t kOutputTokensMax = 20;

class Maker {
 public:
  Maker(const WorkloadOptions& options, const TinyWeightsRevision& weights)
      : weights_(weights),
        root_(make_root(weights.name_space, Scope{})),
        random_(options.seed),
        more_requests_(options.more_requests) {}

  Result<Workload> make() {
    const uint32_t block = weights_.model->config().block_tokens;
    const std::vector<TokenId> system = random_tokens(size_t{5} * block);
    // Drawn before any answer, so that they are the same for any weights.
    std::vector<std::vector<TokenId>> turns;
    for (uint32_t i = 0; i < 8; ++i) turns.push_back(random_tokens(block + 3 * i));
    const std::vector<TokenId> one = random_tokens(1), block_only = random_tokens(block);

    begin_wave();
    TIERCEL_TRY(add("first turn", joined(system, turns[0])));
    TIERCEL_TRY(add("same system prompt", joined(system, turns[1])));
    TIERCEL_TRY(add("system prompt alone, whole blocks", system));
    TIERCEL_TRY(add("one token", one));
    TIERCEL_TRY(add("one block", block_only));
    TIERCEL_TRY(add("less than a block",
                    std::vector<TokenId>(turns[2].begin(), turns[2].begin() + block - 3)));
    TIERCEL_TRY(add_more());

    begin_wave();
    TIERCEL_TRY(add("second turn", joined(transcript(0, 0), turns[3])));
    TIERCEL_TRY(add("the same once more", workload_.waves[0][1].prompt));
    TIERCEL_TRY(add("whole blocks once more", system));
    TIERCEL_TRY(add("another second turn", joined(transcript(0, 1), turns[4])));
    TIERCEL_TRY(add("after one block", joined(transcript(0, 4), turns[5])));
    TIERCEL_TRY(add_more());

    begin_wave();
    TIERCEL_TRY(add("third turn", joined(transcript(1, 0), turns[6])));
    TIERCEL_TRY(add("the second turn again", workload_.waves[1][0].prompt));
    TIERCEL_TRY(add("a fork of it", joined(transcript(0, 0), turns[7])));
    TIERCEL_TRY(add("one block once more", block_only));
    TIERCEL_TRY(add("another third turn", joined(transcript(1, 3), turns[6])));
    TIERCEL_TRY(add_more());
    return std::move(workload_);
  }

 private:
  std::vector<TokenId> random_tokens(size_t count) {
    std::vector<TokenId> tokens(count);
    const uint32_t vocabulary = weights_.model->config().vocabulary;
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_.below(vocabulary));
    return tokens;
  }

  static std::vector<TokenId> joined(std::vector<TokenId> head, std::span<const TokenId> tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }

  std::vector<TokenId> transcript(size_t wave, size_t item) const {
    const WorkItem& turn = workload_.waves[wave][item];
    return joined(turn.prompt, turn.expected.outputs);
  }

  void begin_wave() { workload_.waves.emplace_back(); }

  Status add(std::string name, std::vector<TokenId> prompt) {
    WorkItem item{std::move(name), std::move(prompt), kOutputTokensMax, {}};
    TIERCEL_TRY_ASSIGN(item.expected, answer_alone(*weights_.model, root_, item.prompt,
                                                   item.output_tokens_max, *weights_.recorder));
    workload_.waves.back().push_back(std::move(item));
    return {};
  }

  // Prefixes of any length of what there was, and new tokens behind.
  Status add_more() {
    for (uint32_t i = 0; i < more_requests_; ++i) {
      const auto& wave = workload_.waves[random_.below(workload_.waves.size())];
      std::vector<TokenId> head = wave[random_.below(wave.size())].prompt;
      head.resize(random_.between(0, head.size()));
      const size_t tail = random_.between(1, 30);
      TIERCEL_TRY(add("random " + std::to_string(i), joined(std::move(head), random_tokens(tail))));
    }
    return {};
  }

  const TinyWeightsRevision weights_;
  const RootKey root_;
  Random random_;
  const uint32_t more_requests_;
  Workload workload_;
};

}  // namespace

Result<Workload> make_workload(const WorkloadOptions& options, const TinyWeightsRevision& weights) {
  return Maker(options, weights).make();
}

}  // namespace tiercel::tiny
