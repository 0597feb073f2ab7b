// SPDX-License-Identifier: Apache-2.0
//
// The answer without any cache: the request alone, its prompt in one piece, then token by token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/key.h"
#include "tiercel/status.h"

#include "tiny_llm/kv_recorder.h"
#include "tiny_llm/tiny_model.h"

namespace tiercel::tiny {

// Ends a sequence when it is sampled.
inline constexpr TokenId kEndOfSequence = 0;

struct Answer {
  std::vector<TokenId> outputs;
  std::vector<float> logits;  // `vocabulary` of them for each output

  // Bit by bit.
  bool same_logits(const Answer& other) const;
  // The answer as it is without all but its first outputs; at most as many as it has.
  Answer first(size_t output_count) const;
};

// Computes the answer with the model alone, and tells the recorder every block of it: the full
// ones, and the last, unfilled one of the prompt. kNoSpace as RankKv::create.
Result<Answer> answer_alone(const TinyModel& model, const RootKey& root,
                            std::span<const TokenId> prompt, uint32_t output_tokens_max,
                            KvRecorder& recorder);

}  // namespace tiercel::tiny
