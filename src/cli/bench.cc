// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <array>

#include <fmt/core.h>

#include "base/quantity.h"

namespace tiercel {

std::span<const BenchSubject> bench_subjects() {
  static constexpr std::array kSubjects = {
      BenchSubject{"key", bench_key},     BenchSubject{"checksum", bench_checksum},
      BenchSubject{"index", bench_index}, BenchSubject{"host", bench_host},
      BenchSubject{"copy", bench_copy},   BenchSubject{"ring", bench_ring},
      BenchSubject{"cache", bench_cache},
  };
  return kSubjects;
}

Status BenchContext::check_blocks_fit(std::string_view option, uint64_t blocks,
                                      uint64_t bytes_per_block) const {
  const uint64_t needed = bytes_per_block * blocks;
  if (needed <= memory.bytes) return {};
  return Error(Code::kNoSpace,
               fmt::format("{} is {}, which takes about {}; allowed: up to {} ({})", option, blocks,
                           format_bytes(needed), format_bytes(memory.bytes), memory.source));
}

}  // namespace tiercel
