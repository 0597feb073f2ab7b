// SPDX-License-Identifier: Apache-2.0
#include "transfer/op_queue.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

BlockOp op_until(int64_t deadline_ns, uint32_t item) {
  BlockOp op;
  op.deadline_ns = deadline_ns;
  op.item = item;
  return op;
}

TEST(OpQueue, ExpiresExactlyWhatIsDueAndKeepsTheOrderOfTheRest) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    OpQueue queue;
    std::vector<BlockOp> model;
    int64_t now_ns = 0;
    for (uint32_t step = 0; step < 100; ++step) {
      const int64_t deadline_ns =
          random.chance(0.3) ? INT64_MAX : now_ns + static_cast<int64_t>(random.below(50));
      queue.push(op_until(deadline_ns, step));
      model.push_back(op_until(deadline_ns, step));
      if (random.chance(0.3)) {
        queue.pop(1);
        model.erase(model.begin());
      }
      now_ns += static_cast<int64_t>(random.below(20));
      std::vector<uint32_t> expired;
      std::vector<uint32_t> expected;
      const bool any = queue.expire(now_ns, [&](const BlockOp& op) { expired.push_back(op.item); });
      std::erase_if(model, [&](const BlockOp& op) {
        if (op.deadline_ns > now_ns) return false;
        expected.push_back(op.item);
        return true;
      });
      ASSERT_EQ(expired, expected);
      ASSERT_EQ(any, !expected.empty());
      ASSERT_EQ(queue.size(), model.size());
      for (size_t i = 0; i < model.size(); ++i) {
        ASSERT_EQ(queue[i].item, model[i].item);
        ASSERT_LE(queue.earliest_ns(), model[i].deadline_ns);
      }
    }
  }
}

TEST(OpQueue, NoDeadlineNeverExpires) {
  OpQueue queue;
  queue.push(op_until(INT64_MAX, 0));
  EXPECT_FALSE(queue.expire(INT64_MAX, [](const BlockOp&) { FAIL(); }));
  EXPECT_EQ(queue.size(), 1u);
}

}  // namespace
}  // namespace tiercel
