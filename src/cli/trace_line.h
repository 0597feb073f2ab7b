// SPDX-License-Identifier: Apache-2.0
//
// One line of a trace: a JSON object with `timestamp`, `input_length`, `output_length` and
// `hash_ids`. Further members are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tiercel/status.h"

namespace tiercel {

inline constexpr uint64_t kTimestampMsMax = 4'000'000'000'000;  // 126 years
inline constexpr uint64_t kInputLengthMax = 1u << 24;           // tokens
inline constexpr uint64_t kOutputLengthMax = 1u << 24;          // tokens
inline constexpr uint64_t kHashIdMax = INT64_MAX;
// Of one line, with what is ignored in it: bounds the memory that reading it takes.
inline constexpr size_t kLineValuesMax = 1'000'000;
inline constexpr size_t kLineDepthMax = 32;  // arrays and objects within each other

struct TraceLine {
  uint64_t timestamp_ms = 0;
  uint32_t input_length = 0;
  uint32_t output_length = 0;
  std::vector<uint64_t> hash_ids;
};

// Reads `text` into *line (whose memory is used again). kInvalid with the member, its value and
// what is allowed. Any input is safe. Memory that runs out is no fault of the line: std::bad_alloc.
Status parse_trace_line(std::string_view text, TraceLine* line);

}  // namespace tiercel
