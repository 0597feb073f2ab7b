// SPDX-License-Identifier: Apache-2.0
//
// RunLattice: equal runs of bytes at places that a few strides describe, and whether two of them
// have a byte in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tiercel {

struct RunLattice {
  struct Step {
    uint64_t count = 1;
    uint64_t stride = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };

  int64_t begin = 0;  // address of the first run
  uint64_t run_bytes = 0;
  // The longest stride first; each at least as long as all that the later ones span.
  std::vector<Step> steps;

  // From the first byte to behind the last one, with only the steps from `level` on.
  int64_t span(size_t level = 0) const;
};

enum class Overlap : uint8_t { kNone, kSome, kUnknown };

// Exact; kUnknown once `budget` comparisons, which it counts down, are spent. Few are needed
// however many runs there are, as long as the strides of the two are equal.
Overlap compare(const RunLattice& a, const RunLattice& b, uint64_t& budget);

}  // namespace tiercel
