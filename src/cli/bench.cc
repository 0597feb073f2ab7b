// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <array>

namespace tiercel {

std::span<const BenchSubject> bench_subjects() {
  static constexpr std::array kSubjects = {
      BenchSubject{"key", bench_key},     BenchSubject{"checksum", bench_checksum},
      BenchSubject{"index", bench_index}, BenchSubject{"host", bench_host},
      BenchSubject{"cache", bench_cache},
  };
  return kSubjects;
}

}  // namespace tiercel
