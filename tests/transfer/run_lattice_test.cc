// SPDX-License-Identifier: Apache-2.0
#include "transfer/run_lattice.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

constexpr uint64_t kPlenty = 1'000'000;

void mark(const RunLattice& lattice, size_t level, int64_t begin, std::vector<bool>& bytes) {
  if (level == lattice.steps.size()) {
    for (uint64_t i = 0; i < lattice.run_bytes; ++i) bytes[static_cast<size_t>(begin) + i] = true;
    return;
  }
  for (uint64_t i = 0; i < lattice.steps[level].count; ++i) {
    mark(lattice, level + 1, begin + static_cast<int64_t>(i * lattice.steps[level].stride), bytes);
  }
}

bool meet_by_marking(const RunLattice& a, const RunLattice& b) {
  std::vector<bool> in_a(800), in_b(800);
  mark(a, 0, a.begin, in_a);
  mark(b, 0, b.begin, in_b);
  for (size_t i = 0; i < in_a.size(); ++i) {
    if (in_a[i] && in_b[i]) return true;
  }
  return false;
}

RunLattice random_lattice(Random& random) {
  RunLattice lattice;
  lattice.begin = static_cast<int64_t>(random.below(60));
  lattice.run_bytes = random.between(1, 4);
  uint64_t span = lattice.run_bytes;
  for (uint64_t steps = random.below(4); steps > 0; --steps) {
    const RunLattice::Step step{random.between(2, 4), span + random.below(8)};
    lattice.steps.insert(lattice.steps.begin(), step);
    span += (step.count - 1) * step.stride;
  }
  return lattice;
}

TEST(RunLattice, SpanIsFromTheFirstByteToBehindTheLast) {
  const RunLattice lattice{100, 8, {{3, 50}, {2, 10}}};
  EXPECT_EQ(lattice.span(), 2 * 50 + 10 + 8);
  EXPECT_EQ(lattice.span(1), 10 + 8);
  EXPECT_EQ(lattice.span(2), 8);
}

TEST(RunLattice, ComparesAsMarkingEveryByteWould) {
  Random random(1);
  size_t apart = 0;
  size_t together = 0;
  for (int i = 0; i < 5000; ++i) {
    const RunLattice a = random_lattice(random);
    RunLattice b = random_lattice(random);
    // Half of them with the same strides, as the layers of an engine have them.
    if (random.chance(0.5)) b.steps = a.steps;
    if (b.steps == a.steps) b.run_bytes = a.run_bytes;
    const bool meet = meet_by_marking(a, b);
    uint64_t budget = kPlenty;
    ASSERT_EQ(compare(a, b, budget), meet ? Overlap::kSome : Overlap::kNone) << "case " << i;
    budget = kPlenty;
    ASSERT_EQ(compare(b, a, budget), meet ? Overlap::kSome : Overlap::kNone) << "case " << i;
    ++(meet ? together : apart);
  }
  EXPECT_GT(apart, 500u);
  EXPECT_GT(together, 500u);
}

TEST(RunLattice, EqualStridesNeedFewComparisonsHoweverManyRuns) {
  // Two layers of a cross-layer tensor: a million blocks, eight heads.
  const std::vector<RunLattice::Step> steps = {{1'000'000, 8 * 2 * 4096}, {8, 2 * 4096}};
  const RunLattice a{0, 4096, steps};
  RunLattice b{4096, 4096, steps};
  uint64_t budget = 100;
  EXPECT_EQ(compare(a, b, budget), Overlap::kNone);
  b.begin = 4095;
  budget = 100;
  EXPECT_EQ(compare(a, b, budget), Overlap::kSome);
}

TEST(RunLattice, SaysWhenItGaveUp) {
  const RunLattice a{0, 1, {{1'000'000, 4}}};
  const RunLattice b{1, 1, {{1'000'000, 6}}};  // odd places; `a` has even ones
  uint64_t budget = 1000;
  EXPECT_EQ(compare(a, b, budget), Overlap::kUnknown);
  EXPECT_EQ(budget, 0u);
  budget = 10 * kPlenty;
  EXPECT_EQ(compare(a, b, budget), Overlap::kNone);
}

}  // namespace
}  // namespace tiercel
