// SPDX-License-Identifier: Apache-2.0
//
// Injected randomness: the same seed gives the same choices on every platform (the standard
// library's distributions do not promise that, its engines do).
#pragma once

#include <cstdint>
#include <random>

#include "base/assert.h"

namespace tiercel {

// Threads: one. Copies continue with the same choices.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t next() { return engine_(); }

  // Uniform in [0, bound); bound > 0. Bias below 2^-32 for bounds below 2^32.
  uint64_t below(uint64_t bound) {
    TIERCEL_ASSERT(bound > 0, "there is a number below the bound");
    return static_cast<uint64_t>((static_cast<Wide>(engine_()) * bound) >> 64);
  }

  // Uniform in [low, high]; low <= high.
  uint64_t between(uint64_t low, uint64_t high) {
    TIERCEL_ASSERT(low <= high, "a range is not empty");
    // The full range has no bound of 64 bits.
    return high - low == UINT64_MAX ? next() : low + below(high - low + 1);
  }

  // Uniform in [0, 1).
  double real() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

  bool chance(double probability) { return real() < probability; }

 private:
  __extension__ using Wide = unsigned __int128;

  std::mt19937_64 engine_;
};

}  // namespace tiercel
