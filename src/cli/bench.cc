// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <array>

#include <fmt/core.h>

#include "base/quantity.h"

namespace tiercel {
namespace {

Status nothing_to_check(const BenchOptions&, const BenchContext&) { return {}; }

}  // namespace

std::span<const BenchSubject> bench_subjects() {
  static constexpr std::array kSubjects = {
      BenchSubject{"key", nothing_to_check, bench_key},
      BenchSubject{"checksum", check_bench_checksum, bench_checksum},
      BenchSubject{"index", check_bench_index, bench_index},
      BenchSubject{"host", check_bench_host, bench_host},
      BenchSubject{"copy", check_bench_copy, bench_copy},
      BenchSubject{"ring", nothing_to_check, bench_ring},
      BenchSubject{"cache", check_bench_cache, bench_cache},
      BenchSubject{"engine", nothing_to_check, bench_engine},
      BenchSubject{"disk", check_bench_disk, bench_disk},
      BenchSubject{"mooncake", check_bench_mooncake, bench_mooncake},
  };
  return kSubjects;
}

Result<BenchFigures> run_bench_subject(const BenchSubject& subject, const BenchOptions& options,
                                       const BenchContext& context) {
  TIERCEL_TRY_ASSIGN(BenchFigures figures, subject.run(options, context));
  std::erase_if(figures, [](const BenchFigure& figure) { return figure.value_count == 0; });
  return figures;
}

Status BenchContext::check_blocks_fit(std::string_view option, uint64_t blocks,
                                      uint64_t bytes_per_block) const {
  const uint64_t needed = bytes_per_block * blocks;
  if (needed <= memory.bytes) return {};
  return Error(Code::kNoSpace,
               fmt::format("{} is {}, which takes about {}; allowed: up to {} ({})", option, blocks,
                           format_bytes(needed), format_bytes(memory.bytes), memory.source));
}

Status BenchContext::check_bytes_fit(std::string_view option, uint64_t bytes,
                                     uint64_t needed) const {
  if (needed <= memory.bytes) return {};
  return Error(Code::kNoSpace,
               fmt::format("{} is {}, which takes {} in all; allowed: up to {} of memory ({})",
                           option, format_bytes(bytes), format_bytes(needed),
                           format_bytes(memory.bytes), memory.source));
}

}  // namespace tiercel
