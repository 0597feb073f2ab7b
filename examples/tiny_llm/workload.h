// SPDX-License-Identifier: Apache-2.0
//
// Workload: requests whose prompts share what prompts share in practice, and the answer to each as
// the model gives it alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tiercel/key.h"
#include "tiercel/status.h"

#include "tiny_llm/reference.h"
#include "tiny_llm/tiny_engine.h"

namespace tiercel::tiny {

struct WorkItem {
  std::string name;
  std::vector<TokenId> prompt;
  uint32_t output_tokens_max = 1;
  Answer expected;
};

// Requests of one wave run beside each other; a wave begins when the one before has ended, because
// the later turns of a conversation contain the answers to its earlier ones.
struct Workload {
  std::vector<std::vector<WorkItem>> waves;
};

struct WorkloadOptions {
  uint64_t seed = 1;
  uint32_t more_requests = 0;  // random ones, in each wave, beside those that are always there
};

// Answers every request by the model alone, which also fills the recorder of the weights. The same
// seed gives the same first prompts for any weights.
Result<Workload> make_workload(const WorkloadOptions& options, const TinyWeightsRevision& weights);

}  // namespace tiercel::tiny
