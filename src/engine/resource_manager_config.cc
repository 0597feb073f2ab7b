// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "base/check_value.h"
#include "base/quantity.h"
#include "engine/resource_manager.h"

namespace tiercel {
namespace {

// Far from where a sum with the present time would overflow.
constexpr Duration kDeadlineMax = std::chrono::hours(24);

Status is_deadline(std::string_view name, Duration value) {
  if (value > Duration::zero() && value <= kDeadlineMax) return {};
  return Error(Code::kInvalid, fmt::format("{} is {}; allowed: more than 0, at most {}", name,
                                           format_duration(value), format_duration(kDeadlineMax)));
}

}  // namespace

Status ResourceManagerConfig::validate() const {
  TIERCEL_TRY(in_range("running_max", running_max, 1, 65536));
  // Each running request can always decode.
  TIERCEL_TRY(in_range("step_tokens_max", step_tokens_max, running_max, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("prefill_chunk_tokens_max", prefill_chunk_tokens_max, 1, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("waiting_max", waiting_max, 1, uint64_t{1} << 20));
  TIERCEL_TRY(in_range("context_tokens_max", context_tokens_max, 2, uint64_t{1} << 32));
  TIERCEL_TRY(in_range("prefetching_max", prefetching_max, 0, uint64_t{1} << 20));
  TIERCEL_TRY(in_range("looks_per_step_max", looks_per_step_max, 1, uint64_t{1} << 20));
  TIERCEL_TRY(in_range("look_blocks_per_step_max", look_blocks_per_step_max, 1, uint64_t{1} << 30));
  TIERCEL_TRY(in_range("await_tokens_min", await_tokens_min, 0, uint64_t{1} << 24));
  TIERCEL_TRY(is_deadline("load_deadline", load_deadline));
  TIERCEL_TRY(is_deadline("prefetch_deadline", prefetch_deadline));
  TIERCEL_TRY(is_deadline("hand_over_deadline", hand_over_deadline));
  return {};
}

std::string_view to_string(EngineRole role) {
  switch (role) {
    case EngineRole::kMixed:
      return "mixed";
    case EngineRole::kPrefill:
      return "prefill";
    case EngineRole::kDecode:
      return "decode";
  }
  return "unknown";
}

std::string_view to_string(RequestState state) {
  switch (state) {
    case RequestState::kWaiting:
      return "waiting";
    case RequestState::kPrefetching:
      return "prefetching";
    case RequestState::kLoading:
      return "loading";
    case RequestState::kRunning:
      return "running";
    case RequestState::kHandingOver:
      return "handing_over";
  }
  return "unknown";
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfSequence:
      return "end_of_sequence";
    case FinishReason::kOutputLimit:
      return "output_limit";
    case FinishReason::kContextLimit:
      return "context_limit";
    case FinishReason::kHandedOver:
      return "handed_over";
  }
  return "unknown";
}

}  // namespace tiercel
