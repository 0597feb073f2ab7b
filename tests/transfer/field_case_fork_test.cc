// SPDX-License-Identifier: Apache-2.0
//
// F29: a process was forked after threads, sockets and mapped memory had been set up. The child's
// copy of the data plane has no threads, and its descriptors are the parent's.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/child_process.h"
#include "support/wait_readable.h"
#include "transfer/fake_store.h"
#include "transfer/in_process_data_plane.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class FieldCaseF29 : public ::testing::Test {
 protected:
  std::unique_ptr<DataPlane> make_plane() {
    std::vector<std::unique_ptr<RankWorker>> workers;
    workers.push_back(rank_.make_worker(store_.make(), clock_));
    return make_in_process_data_plane(std::move(workers), clock_, {.ring_ops = 16}).value();
  }

  // The code of one op, asleep on the descriptor meanwhile.
  static Code run(DataPlane& plane, const BlockOp& op) {
    std::array<Completion, 1> out;
    if (!plane.submit({&op, 1})) return Code::kBusy;
    do {
      if (!readable(plane.completion_fd(), kHangMs)) return Code::kTimeout;
    } while (plane.poll(out) == 0);
    return out[0].code;
  }

  SlotGeometry geometry_ = SlotGeometry::for_blocks({{100}}, 8, 4).value();
  const SystemClock clock_;
  FakeStoreHandle store_;
  TestRank rank_{geometry_, 0, 2};
};

TEST_F(FieldCaseF29, AChildIsRefusedClearlyAndTheParentGoesOnUndamaged) {
  auto plane = make_plane();
  const SlotId slot = nth_slot(geometry_, GroupId(0), 0);
  ASSERT_EQ(run(*plane, make_op(OpKind::kSave, 1, slot)), Code::kOk);
  // An answer waits to be taken: the child must not take it, nor its announcement.
  const BlockOp load = make_op(OpKind::kLoad, 1, slot, 1);
  ASSERT_TRUE(plane->submit({&load, 1}));
  ASSERT_TRUE(readable(plane->completion_fd(), kHangMs));

  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              std::array<Completion, 4> out;
              if (plane->poll(out) != 0) return "poll returned something";
              if (plane->submit_capacity() != 0) return "there is room";
              if (plane->submit({&load, 1})) return "submit took something";
              const Status closed = plane->close(kNoDeadline);
              if (closed.code() != Code::kUnavailable) return "close: another code";
              if (plane->usable().code() != Code::kUnavailable) return "usable: another code";
              plane.reset();
              return closed.error().message().find("forked off") == std::string::npos
                         ? closed.error().message()
                         : "";
            }),
            "");

  ASSERT_TRUE(readable(plane->completion_fd(), 0)) << "the child took the announcement";
  std::array<Completion, 1> out;
  ASSERT_EQ(plane->poll(out), 1u);
  EXPECT_EQ(out[0].code, Code::kOk);
  EXPECT_TRUE(plane->usable());
  EXPECT_EQ(run(*plane, make_op(OpKind::kStorePut, 1, slot)), Code::kOk);
  EXPECT_EQ(run(*plane, make_op(OpKind::kLoad, 1, slot, 1)), Code::kOk);
  const auto from = rank_.device_block(GroupId(0), 0);
  EXPECT_TRUE(std::equal(from.begin(), from.end(), rank_.device_block(GroupId(0), 1).begin()));
  EXPECT_TRUE(plane->close(kNoDeadline));
}

// Thread sanitizers end a process that starts threads after such a fork.
#ifndef __SANITIZE_THREAD__
TEST_F(FieldCaseF29, AChildMayHaveAPlaneOfItsOwn) {
  auto plane = make_plane();
  const SlotId slot = nth_slot(geometry_, GroupId(0), 0);
  ASSERT_EQ(run(*plane, make_op(OpKind::kSave, 1, slot)), Code::kOk);
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              store_ = FakeStoreHandle();
              auto own = make_plane();
              if (!own->usable()) return "its own is taken for inherited";
              if (run(*own, make_op(OpKind::kSave, 2, slot)) != Code::kOk) return "save";
              if (run(*own, make_op(OpKind::kStorePut, 2, slot)) != Code::kOk) return "put";
              if (run(*own, make_op(OpKind::kLoad, 2, slot, 1)) != Code::kOk) return "load";
              return own->close(kNoDeadline) ? "" : "close";
            }),
            "");
  // What the child wrote into the slot is the child's alone.
  EXPECT_EQ(run(*plane, make_op(OpKind::kLoad, 1, slot, 1)), Code::kOk);
  EXPECT_TRUE(store_.state->objects().empty());
  EXPECT_TRUE(plane->close(kNoDeadline));
}
#endif

}  // namespace
}  // namespace tiercel
