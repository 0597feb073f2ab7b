// SPDX-License-Identifier: Apache-2.0
#include "cli/patience.h"

#include <gtest/gtest.h>

namespace tiercel {
namespace {

ReplayOptions options() {
  ReplayOptions options;
  options.patience = std::chrono::seconds(2);
  return options;
}

RankStatus rank(RankState state, int64_t pid, uint32_t ops, bool is_stopped = false) {
  RankStatus status;
  status.state = state;
  status.pid = pid;
  status.ops = ops;
  status.is_stopped = is_stopped;
  return status;
}

TEST(Patience, AStoppedRankIsNamedAndNothingElseIsBlamed) {
  ReplayOptions with_store = options();
  with_store.store = "memory:";
  const std::vector<RankStatus> ranks = {rank(RankState::kUp, 70, 0),
                                         rank(RankState::kUp, 71, 5, true)};
  EXPECT_EQ(out_of_patience(3, "the save", with_store, ranks).message(),
            "request of line 3: no end of the save within 2 s; rank 1 (process 71) is stopped with "
            "5 operations under way: let it go on (kill -CONT 71), or end it (kill -KILL 71), and "
            "it is started again");
}

TEST(Patience, AStoreIsBlamedOnlyWhereThereIsOne) {
  ReplayOptions with_store = options();
  with_store.store = "memory:";
  EXPECT_EQ(out_of_patience(3, "the load", with_store, {}).message(),
            "request of line 3: no end of the load within 2 s; a store that never answers needs a "
            "deadline");
  EXPECT_EQ(out_of_patience(3, "the load", options(), {}).message(),
            "request of line 3: no end of the load within 2 s; give it more patience if the "
            "machine is slow");
}

TEST(Patience, WithoutAStoreTheRanksThatStillHaveSomethingAreNamed) {
  const std::vector<RankStatus> ranks = {rank(RankState::kUp, 70, 1), rank(RankState::kUp, 71, 0),
                                         rank(RankState::kLost, 72, 9)};
  EXPECT_EQ(out_of_patience(1, "the load", options(), ranks).message(),
            "request of line 1: no end of the load within 2 s; rank 0 (process 70, up) has 1 "
            "operation under way; rank 2 (process 72, lost) has 9 operations under way");
}

TEST(Patience, ADeadlineIsHeldAgainstIt) {
  ReplayOptions with_deadline = options();
  with_deadline.deadline = std::chrono::seconds(3);
  EXPECT_EQ(out_of_patience(3, "the load", with_deadline, {}).message(),
            "request of line 3: no end of the load within 2 s; patience must be longer than the "
            "deadline, 3 s");
  with_deadline.deadline = std::chrono::seconds(1);
  EXPECT_EQ(out_of_patience(3, "its transfers", with_deadline, {}).message(),
            "request of line 3: no end of its transfers within 2 s: it goes on behind its "
            "deadline, 1 s, and holds device blocks");
}

}  // namespace
}  // namespace tiercel
