// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/outstanding_ops.h"

#include <map>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

BlockOp op_of(uint64_t job, uint32_t item, OpKind kind = OpKind::kLoad) {
  BlockOp op;
  op.job = JobId(job);
  op.item = item;
  op.kind = kind;
  return op;
}

TimePoint at(int64_t ns) { return TimePoint(Duration(ns)); }

TEST(OutstandingOps, AnOpIsTakenOutAsOftenAsItWasGiven) {
  OutstandingOps ops(4);
  EXPECT_EQ(ops.remove(JobId(1), 0), std::nullopt);
  ops.add(op_of(1, 0, OpKind::kSave), at(5));
  ops.add(op_of(1, 0, OpKind::kSave), at(6));
  EXPECT_EQ(ops.remove(JobId(1), 1), std::nullopt);
  EXPECT_EQ(ops.remove(JobId(2), 0), std::nullopt);
  EXPECT_EQ(ops.remove(JobId(1), 0), OpKind::kSave);
  EXPECT_EQ(ops.remove(JobId(1), 0), OpKind::kSave);
  EXPECT_EQ(ops.remove(JobId(1), 0), std::nullopt);
  EXPECT_EQ(ops.size(), 0u);
}

TEST(OutstandingOps, OldestIsTheOldestThatIsLeft) {
  OutstandingOps ops(4);
  EXPECT_EQ(ops.oldest(), kNoDeadline);
  ops.add(op_of(1, 0), at(5));
  ops.add(op_of(2, 0), at(7));
  ops.add(op_of(3, 0), at(9));
  EXPECT_EQ(ops.oldest(), at(5));
  ops.remove(JobId(1), 0);
  EXPECT_EQ(ops.oldest(), at(7));
}

TEST(OutstandingOps, AgreesWithAMapAtEveryFill) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    constexpr uint32_t kCapacity = 64;
    OutstandingOps ops(kCapacity);
    std::multimap<std::pair<uint64_t, uint32_t>, OpKind> model;
    Random random(seed);
    for (int step = 0; step < 5000; ++step) {
      const uint64_t job = random.below(4);
      const auto item = static_cast<uint32_t>(random.below(40));
      if (random.chance(0.5) && model.size() < kCapacity) {
        const BlockOp op = op_of(job, item, static_cast<OpKind>(item % kOpKindCount));
        ops.add(op, at(step));
        model.emplace(std::pair(job, item), op.kind);
      } else {
        const auto found = model.find({job, item});
        const auto removed = ops.remove(JobId(job), item);
        ASSERT_EQ(removed.has_value(), found != model.end());
        if (found == model.end()) continue;
        ASSERT_EQ(*removed, found->second);
        model.erase(found);
      }
      ASSERT_EQ(ops.size(), model.size());
    }
    for (const auto& [name, kind] : model) {
      ASSERT_EQ(ops.remove(JobId(name.first), name.second), kind);
    }
    ASSERT_EQ(ops.size(), 0u);
  }
}

TEST(OutstandingOps, TakeAllGivesThemInTheOrderInWhichTheyWereGiven) {
  OutstandingOps ops(64);
  for (uint32_t i = 0; i < 50; ++i) ops.add(op_of(i * 7919 % 13, i), at(i));
  ops.remove(JobId(7919 % 13), 1);
  const auto all = ops.take_all();
  ASSERT_EQ(all.size(), 49u);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1].item, all[i].item);
  EXPECT_EQ(ops.size(), 0u);
  EXPECT_TRUE(ops.take_all().empty());
  ops.add(op_of(1, 1), at(1));
  EXPECT_EQ(ops.size(), 1u);
}

}  // namespace
}  // namespace tiercel
