// SPDX-License-Identifier: Apache-2.0
//
// A trace of requests in memory: for each request its time, its lengths and the ids of its
// 512-token blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tiercel {

// Tokens that one id of a trace stands for.
inline constexpr uint32_t kTokensPerId = 512;

struct TraceRequest {
  uint64_t timestamp_ms = 0;   // since the start of the trace; never falls from request to request
  uint64_t line = 0;           // in the file, from 1
  uint32_t input_length = 0;   // tokens
  uint32_t output_length = 0;  // tokens
  size_t first_id = 0;         // in Trace::ids
  uint32_t id_count = 0;       // ceil(input_length / kTokensPerId)
};

struct Trace {
  std::vector<TraceRequest> requests;
  std::vector<uint64_t> ids;  // of all requests, one behind the other
  uint64_t skipped_lines = 0;
  std::string first_skipped;  // why the first of them was skipped; empty if none

  std::span<const uint64_t> ids_of(const TraceRequest& request) const {
    return std::span(ids).subspan(request.first_id, request.id_count);
  }
};

}  // namespace tiercel
