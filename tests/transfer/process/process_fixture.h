// SPDX-License-Identifier: Apache-2.0
//
// Planes whose ranks are real processes. Nothing here is timed: a test waits for events, with a
// limit that only a hang meets, and moves the plane's clock itself.
#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/manual_clock.h"
#include "base/memfd.h"
#include "support/paths.h"
#include "support/wait_readable.h"
#include "transfer/process/process_data_plane.h"
#include "transfer/rank_fixture.h"

namespace tiercel::testing {

// Whether a process is in the table of processes, also as a zombie.
inline bool exists(int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0; }

class ProcessPlaneTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kDeviceBlocks = 4;
  static constexpr uint32_t kSlots = 64;

  // Slices of every rank and group differ in size.
  static SlotGeometry make_geometry(uint32_t rank_count, uint32_t group_count = 2) {
    PayloadBytes payload_bytes(group_count, std::vector<uint64_t>(rank_count));
    for (uint32_t g = 0; g < group_count; ++g) {
      for (uint32_t r = 0; r < rank_count; ++r) payload_bytes[g][r] = 300 + 71 * r + 1000 * g;
    }
    return SlotGeometry::for_blocks(payload_bytes, kSlots, 4).value();
  }

  // To be changed before open().
  ProcessPlaneTest() {
    options_.ring_ops = 64;
    options_.program = binary_path("tiercel-rank");
  }

  // Whatever a test does, its ranks are gone in the end, and none is a zombie.
  void TearDown() override {
    plane_.reset();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }

  // Makes the rank's host one of the helper's, with a part to play (rank_helper.cc).
  // It has device memory of its own, for geometries of one group.
  void play(const std::string& part) {
    options_.program = binary_path("tiercel-test-rank");
    options_.arguments = {"--part", part};
    with_device_ = false;
  }

  Status create(SlotGeometry geometry) {
    plane_.reset();
    taken_.clear();
    geometry_.emplace(std::move(geometry));
    std::vector<ProcessRank> ranks;
    devices_.clear();
    for (uint32_t r = 0; r < geometry_->rank_count(); ++r) {
      ProcessRank rank;
      rank.worker.rank = r;
      rank.worker.slice = {static_cast<uint16_t>(r),
                           static_cast<uint16_t>(geometry_->rank_count())};
      rank.worker.name_space = test_namespace();
      rank.joins = joins_;
      uint64_t bytes = 0;
      for (uint32_t g = 0; g < geometry_->group_count(); ++g) {
        rank.device_groups.push_back({bytes, kDeviceBlocks});
        bytes += kDeviceBlocks * geometry_->payload_bytes(group(g), r);
      }
      ArenaOptions arena;
      arena.kind = ArenaKind::kMemfd;
      arena.huge_pages = false;
      devices_.push_back(Arena::create(bytes, arena).value());
      fill_random(devices_.back()->memory(), 7 + r);
      if (with_device_ && !joins_) {
        rank.device_fd = devices_.back()->fd();
        rank.device_bytes = bytes;
      } else {
        rank.device_groups.clear();
      }
      ranks.push_back(std::move(rank));
    }
    auto plane = ProcessDataPlane::create(*geometry_, std::move(ranks), clock_, options_);
    if (!plane) return plane.error();
    plane_ = std::move(*plane);
    return {};
  }

  void open(SlotGeometry geometry) {
    const Status created = create(std::move(geometry));
    ASSERT_TRUE(created) << created.error().to_string();
  }
  void open_and_wait(SlotGeometry geometry) {
    open(std::move(geometry));
    ASSERT_NE(plane_, nullptr);
    const Status up = plane_->wait_until_up(kNoDeadline);
    ASSERT_TRUE(up) << up.error().to_string();
  }

  static GroupId group(uint32_t number) { return GroupId(static_cast<uint8_t>(number)); }

  std::span<std::byte> device_block(uint32_t rank, GroupId g, uint32_t block) {
    uint64_t offset = 0;
    for (uint32_t before = 0; before < g.value(); ++before) {
      offset += kDeviceBlocks * geometry_->payload_bytes(group(before), rank);
    }
    const uint64_t bytes = geometry_->payload_bytes(g, rank);
    return devices_[rank]->memory().subspan(offset + block * bytes, bytes);
  }

  // Polls, asleep in between, until `is_done`.
  ::testing::AssertionResult wait_until(const std::function<bool()>& is_done) {
    while (true) {
      std::array<Completion, 64> out;
      const size_t count = plane_->poll(out);
      taken_.insert(taken_.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
      if (is_done()) return ::testing::AssertionSuccess();
      if (!readable(plane_->completion_fd(), kHangMs)) {
        return ::testing::AssertionFailure()
               << "nothing happens any more; " << taken_.size() << " completions have come";
      }
    }
  }
  ::testing::AssertionResult wait_for_state(uint32_t rank, RankState state) {
    return wait_until([&] { return plane_->rank_status(rank).state == state; });
  }

  // Everything that has come since the last call, at least `count`.
  std::vector<Completion> wait_for(size_t count) {
    EXPECT_TRUE(wait_until([&] { return taken_.size() >= count; }));
    return std::exchange(taken_, {});
  }

  // The code of one op; it must be the same on all ranks.
  Code run(const BlockOp& op) {
    EXPECT_TRUE(plane_->submit({&op, 1}));
    const auto completions = wait_for(plane_->rank_count());
    EXPECT_EQ(completions.size(), plane_->rank_count());
    for (const Completion& completion : completions) {
      EXPECT_EQ(completion.code, completions[0].code) << "rank " << completion.rank;
    }
    return completions.empty() ? Code::kInternal : completions[0].code;
  }
  // The code of one op on each rank, by rank.
  std::vector<Code> run_each(const BlockOp& op) {
    EXPECT_TRUE(plane_->submit({&op, 1}));
    return codes_of(wait_for(plane_->rank_count()));
  }
  std::vector<Code> codes_of(const std::vector<Completion>& completions) {
    std::vector<Code> codes(plane_->rank_count(), Code::kInternal);
    for (const Completion& completion : completions) codes[completion.rank] = completion.code;
    return codes;
  }

  int64_t pid_of(uint32_t rank) { return plane_->rank_status(rank).pid; }

  // Until the rank's process has stopped, and goes on with the plane meanwhile, on which the rank
  // may wait. That a child has stopped is told by no descriptor, so it is asked for again and
  // again.
  ::testing::AssertionResult wait_stopped(uint32_t rank) {
    for (int ms = 0; ms < kHangMs; ++ms) {
      std::array<Completion, 64> out;
      const size_t count = plane_->poll(out);
      taken_.insert(taken_.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
      siginfo_t info{};
      if (pid_of(rank) != 0 &&
          ::waitid(P_PID, static_cast<id_t>(pid_of(rank)), &info, WSTOPPED | WNOWAIT | WNOHANG) ==
              0 &&
          info.si_code == CLD_STOPPED) {
        return ::testing::AssertionSuccess();
      }
      readable(plane_->completion_fd(), 1);
    }
    return ::testing::AssertionFailure() << "rank " << rank << " has not stopped";
  }
  void kill_rank(uint32_t rank, int signal = SIGKILL) {
    ASSERT_NE(pid_of(rank), 0);
    ASSERT_EQ(::kill(static_cast<pid_t>(pid_of(rank)), signal), 0);
  }
  // Without a look at the plane, which has not noticed when this returns.
  void kill_and_wait(uint32_t rank) {
    const auto pid = static_cast<id_t>(pid_of(rank));
    kill_rank(rank);
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  }
  void stop_rank(uint32_t rank) {
    kill_rank(rank, SIGSTOP);
    ASSERT_TRUE(wait_stopped(rank));
  }

  BlockOp op(OpKind kind, uint64_t block, uint32_t nth = 0, uint32_t device_block = 0) {
    BlockOp made = make_op(kind, block, nth_slot(*geometry_, GroupId(0), nth), device_block);
    made.job = JobId(++last_job_);
    return made;
  }

  ManualClock clock_;
  ProcessPlaneOptions options_;
  bool joins_ = false;
  bool with_device_ = true;
  std::optional<SlotGeometry> geometry_;
  std::vector<std::unique_ptr<Arena>> devices_;
  std::unique_ptr<ProcessDataPlane> plane_;
  std::vector<Completion> taken_;
  uint64_t last_job_ = 0;
};

}  // namespace tiercel::testing
