// SPDX-License-Identifier: Apache-2.0
//
// A counter-based generator: number i of stream `seed` without the ones before it. Not for secrets.
#pragma once

#include <cstdint>

namespace tiercel {

// One to one on 64 bits; every bit of the input moves about half of the output (SplitMix64's
// finaliser).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline constexpr uint64_t kGoldenRatio64 = 0x9e3779b97f4a7c15u;

}  // namespace tiercel
