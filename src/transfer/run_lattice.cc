// SPDX-License-Identifier: Apache-2.0
#include "transfer/run_lattice.h"

#include <algorithm>
#include <vector>

namespace tiercel {
namespace {

// Rounded down, for positive divisors.
int64_t divide_down(int64_t value, int64_t divisor) {
  const int64_t quotient = value / divisor;
  return value % divisor < 0 ? quotient - 1 : quotient;
}

// A lattice cut down to the steps from `level` on, at another place.
struct Part {
  const RunLattice& lattice;
  size_t level = 0;
  int64_t begin = 0;

  int64_t span() const { return lattice.span(level); }
  bool is_run() const { return level == lattice.steps.size(); }
  const RunLattice::Step& step() const { return lattice.steps[level]; }
  Part at(int64_t index) const {
    return {lattice, level + 1, begin + index * static_cast<int64_t>(step().stride)};
  }
};

// The indexes i, from `low` to `high`, at which [begin + i × stride, + span) meets [other, +
// other_span).
struct Indexes {
  int64_t low, high;
};
Indexes meeting(int64_t begin, int64_t stride, int64_t span, int64_t other, int64_t other_span,
                Indexes limits) {
  return {std::max(limits.low, divide_down(other - begin - span, stride) + 1),
          std::min(limits.high, divide_down(other + other_span - 1 - begin, stride))};
}

Overlap compare_parts(const Part& a, const Part& b, uint64_t& budget) {
  if (a.begin + a.span() <= b.begin || b.begin + b.span() <= a.begin) return Overlap::kNone;
  if (a.is_run() && b.is_run()) return Overlap::kSome;
  if (budget == 0) return Overlap::kUnknown;
  --budget;
  if (!a.is_run() && !b.is_run() && a.step() == b.step()) {
    // Only the difference of the two indexes counts.
    const auto stride = static_cast<int64_t>(a.step().stride);
    const auto last = static_cast<int64_t>(a.step().count) - 1;
    const Part b_first = b.at(0);
    const Indexes indexes = meeting(a.begin, stride, a.lattice.span(a.level + 1), b.begin,
                                    b_first.span(), {-last, last});
    for (int64_t i = indexes.low; i <= indexes.high; ++i) {
      const Overlap overlap = compare_parts(a.at(i), b_first, budget);
      if (overlap != Overlap::kNone) return overlap;
    }
    return Overlap::kNone;
  }
  const bool split_a = b.is_run() || (!a.is_run() && a.span() >= b.span());
  const Part& split = split_a ? a : b;
  const Part& whole = split_a ? b : a;
  const Indexes indexes = meeting(split.begin, static_cast<int64_t>(split.step().stride),
                                  split.lattice.span(split.level + 1), whole.begin, whole.span(),
                                  {0, static_cast<int64_t>(split.step().count) - 1});
  for (int64_t i = indexes.low; i <= indexes.high; ++i) {
    const Overlap overlap = compare_parts(split.at(i), whole, budget);
    if (overlap != Overlap::kNone) return overlap;
  }
  return Overlap::kNone;
}

}  // namespace

int64_t RunLattice::span(size_t level) const {
  uint64_t span = run_bytes;
  for (size_t i = level; i < steps.size(); ++i) span += (steps[i].count - 1) * steps[i].stride;
  return static_cast<int64_t>(span);
}

Overlap compare(const RunLattice& a, const RunLattice& b, uint64_t& budget) {
  return compare_parts({a, 0, a.begin}, {b, 0, b.begin}, budget);
}

}  // namespace tiercel
