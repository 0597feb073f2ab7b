// SPDX-License-Identifier: Apache-2.0
//
// Planes whose ranks are joined by the test itself, through the socket of an instance.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "support/temp_folder.h"
#include "transfer/process/fake_rank.h"
#include "transfer/process/process_fixture.h"

namespace tiercel::testing {

class JoinTest : public ProcessPlaneTest {
 protected:
  JoinTest() {
    joins_ = true;
    options_.socket_folder = folder_.path("ranks");
    options_.ring_ops = 8;
  }

  // Every step of the plane is one poll.
  size_t poll_plane() {
    std::array<Completion, 64> out;
    const size_t count = plane_->poll(out);
    taken_.insert(taken_.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  std::unique_ptr<FakeRank> connect() {
    auto rank = std::make_unique<FakeRank>(plane_->socket_path());
    poll_plane();
    return rank;
  }
  std::unique_ptr<FakeRank> join(uint32_t number) {
    auto rank = connect();
    EXPECT_TRUE(rank->say(encode_hello({number, {}})));
    poll_plane();
    rank->take_welcome();
    EXPECT_TRUE(rank->say(encode_ready()));
    poll_plane();
    EXPECT_EQ(plane_->rank_status(number).state, RankState::kUp)
        << plane_->rank_status(number).last_error;
    return rank;
  }

  TempFolder folder_;
};

}  // namespace tiercel::testing
