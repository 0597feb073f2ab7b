// SPDX-License-Identifier: Apache-2.0
//
// EngineRequest: what an engine is asked to do: continue a prompt. And how that ended.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel {

struct EngineRequest {
  RequestId id;                     // the caller's; free again once the request has ended
  std::vector<TokenId> prompt;      // at least one token
  std::vector<TokenId> outputs;     // sampled already, by a prefill instance that handed it over
  Scope scope;                      // adapter and tenant; see key.h
  std::vector<SequenceItem> items;  // multimodal items of the prompt; see key.h
  uint32_t output_tokens_max = 1;   // tokens to sample, `outputs` included; at least 1
  int32_t priority = 0;             // lower ones first; among equals the one that came first
};

enum class FinishReason : uint8_t {
  kEndOfSequence,  // the engine said so
  kOutputLimit,    // output_tokens_max
  kContextLimit,   // no more tokens fit into the context, or into the device pool
  kHandedOver,     // prefill role: the first token is sampled, a decode instance goes on
};
std::string_view to_string(FinishReason reason);

// A request that has ended by itself.
struct FinishedRequest {
  RequestId id;
  FinishReason reason = FinishReason::kEndOfSequence;
  std::vector<TokenId> outputs;  // every sampled token, in order
  uint64_t prompt_tokens = 0;
  // Of the prompt, at the first admission: tokens whose KV was on the device, and tokens whose KV
  // was brought there from a tier or store. The rest was computed.
  uint64_t device_hit_tokens = 0, loaded_tokens = 0;
  uint32_t preemptions = 0;  // times that it lost its device blocks and began anew
  // kHandedOver: leading tokens of the prompt whose KV the store is known to have.
  uint64_t stored_tokens = 0;
  TimePoint arrived, first_scheduled, ended;
  TimePoint first_token;  // of those that were sampled here, whatever it was handed over with
};

}  // namespace tiercel
