// SPDX-License-Identifier: Apache-2.0
#include "transfer/metadata_data_plane.h"

#include <vector>

#include <gtest/gtest.h>

#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using testing::make_op;

std::vector<Completion> poll_all(DataPlane& plane) {
  std::vector<Completion> all(1000);
  all.resize(plane.poll(all));
  return all;
}

Code run_op(DataPlane& plane, const BlockOp& op) {
  EXPECT_TRUE(plane.submit({&op, 1}));
  const auto completions = poll_all(plane);
  EXPECT_EQ(completions.size(), plane.rank_count());
  return completions.empty() ? Code::kInternal : completions[0].code;
}

TEST(MetadataDataPlane, ASetOfKeysAndGroupsStandsForTheStore) {
  auto plane = make_metadata_data_plane({.rank_count = 2, .with_store = true});
  EXPECT_EQ(plane->completion_fd(), -1);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreExists, 1)), Code::kNotFound);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreGet, 1)), Code::kNotFound);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStorePut, 1)), Code::kOk);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreExists, 1)), Code::kOk);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreGet, 1)), Code::kOk);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreGet, 1, SlotId(0), 0, GroupId(1))),
            Code::kNotFound);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreGet, 2)), Code::kNotFound);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreRemove, 1)), Code::kOk);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kStoreExists, 1)), Code::kNotFound);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kLoad, 1)), Code::kOk);
  EXPECT_EQ(run_op(*plane, make_op(OpKind::kSave, 1)), Code::kOk);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(plane->stats(rank).path(OpKind::kStoreGet).ops, 4u);
    EXPECT_EQ(plane->stats(rank).path(OpKind::kLoad).ops, 1u);
    EXPECT_EQ(plane->stats(rank).path(OpKind::kLoad).bytes, 0u);
  }
}

TEST(MetadataDataPlane, WithoutAStoreItsOpsAreUnavailable) {
  auto plane = make_metadata_data_plane({});
  for (const OpKind kind :
       {OpKind::kStoreGet, OpKind::kStorePut, OpKind::kStoreExists, OpKind::kStoreRemove}) {
    EXPECT_EQ(run_op(*plane, make_op(kind, 1)), Code::kUnavailable);
  }
  EXPECT_EQ(run_op(*plane, make_op(static_cast<OpKind>(9), 1)), Code::kInvalid);
}

TEST(MetadataDataPlane, EveryRankCompletesEachOpOnceHoweverSmallThePolls) {
  auto plane = make_metadata_data_plane({.rank_count = 3});
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 5; ++i) {
    ops.push_back(make_op(OpKind::kSave, i));
    ops.back().item = i;
  }
  ASSERT_TRUE(plane->submit(ops));
  for (uint32_t n = 0; n < 15; ++n) {
    std::vector<Completion> out(1);
    ASSERT_EQ(plane->poll(out), 1u);
    EXPECT_EQ(out[0].item, n / 3);
    EXPECT_EQ(out[0].rank, n % 3);
  }
  EXPECT_TRUE(poll_all(*plane).empty());
}

TEST(MetadataDataPlane, TakesAllOrNothingWithinItsBound) {
  auto plane = make_metadata_data_plane({.rank_count = 2, .ops_in_flight_max = 4});
  const std::vector<BlockOp> three(3, make_op(OpKind::kSave, 1));
  ASSERT_TRUE(plane->submit(three));
  EXPECT_EQ(plane->submit_capacity(), 1u);
  EXPECT_FALSE(plane->submit(three));
  EXPECT_EQ(poll_all(*plane).size(), 6u);
  EXPECT_TRUE(plane->submit(three));
  EXPECT_EQ(plane->stats(0).path(OpKind::kSave).ops, 6u);
}

TEST(MetadataDataPlane, AfterCloseNothingIsTakenAndCompletionsCanStillBePolled) {
  auto plane = make_metadata_data_plane({});
  const BlockOp op = make_op(OpKind::kSave, 1);
  ASSERT_TRUE(plane->submit({&op, 1}));
  ASSERT_TRUE(plane->close(kNoDeadline));
  EXPECT_EQ(plane->submit_capacity(), 0u);
  EXPECT_FALSE(plane->submit({&op, 1}));
  EXPECT_EQ(poll_all(*plane).size(), 1u);
}

}  // namespace
}  // namespace tiercel
