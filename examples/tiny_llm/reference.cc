// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/reference.h"

#include <cstring>

#include "base/assert.h"

namespace tiercel::tiny {

bool Answer::same_logits(const Answer& other) const {
  return logits.size() == other.logits.size() &&
         std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0;
}

Answer Answer::first(size_t output_count) const {
  const size_t vocabulary = logits.size() / outputs.size();
  return {{outputs.begin(), outputs.begin() + static_cast<ptrdiff_t>(output_count)},
          {logits.begin(), logits.begin() + static_cast<ptrdiff_t>(output_count * vocabulary)}};
}

Result<Answer> answer_alone(const TinyModel& model, const RootKey& root,
                            std::span<const TokenId> prompt, uint32_t output_tokens_max,
                            KvRecorder& recorder) {
  const TinyConfig& config = model.config();
  const uint32_t block_tokens = config.block_tokens;
  const auto blocks = static_cast<uint32_t>((prompt.size() + output_tokens_max) / block_tokens + 1);
  std::vector<RankKv> ranks;
  for (uint32_t rank = 0; rank < config.rank_count; ++rank) {
    TIERCEL_TRY_ASSIGN(RankKv kv, RankKv::create(config, blocks));
    ranks.push_back(std::move(kv));
  }
  std::vector<DeviceBlockId> table;
  for (uint32_t block = 0; block < blocks; ++block) table.emplace_back(block);

  const auto record = [&](const BlockKey& key, uint32_t tokens, DeviceBlockId block) {
    for (uint32_t group = 0; group < config.group_count(); ++group) {
      const bool differs = recorder.record(key, group, tokens, ranks, block).has_value();
      TIERCEL_ASSERT(!differs, "the model computes the same bytes each time");
    }
  };

  Answer answer;
  Sequence sequence(root, block_tokens);
  std::vector<TokenId> next(prompt.begin(), prompt.end());
  while (answer.outputs.size() < output_tokens_max) {
    const size_t known = answer.logits.size();
    answer.logits.resize(known + config.vocabulary);
    const std::span<float> logits = std::span(answer.logits).subspan(known);
    const TinyChunk chunk{next, sequence.token_count(), {table, table}, true};
    model.forward(ranks, std::span(&chunk, 1), logits);
    sequence.append(next);
    // The prompt's last block, if it is not full: what a prefill instance hands over.
    const auto partial = answer.outputs.empty() ? sequence.partial_key() : std::nullopt;
    if (partial) {
      const auto tokens = static_cast<uint32_t>(sequence.token_count() % block_tokens);
      record(*partial, tokens, table[sequence.keys().size()]);
    }
    next = {sample_greedily(logits)};
    answer.outputs.push_back(next.front());
    if (next.front() == kEndOfSequence) break;
  }
  for (size_t block = 0; block < sequence.keys().size(); ++block) {
    record(sequence.keys()[block], block_tokens, table[block]);
  }
  return answer;
}

}  // namespace tiercel::tiny
