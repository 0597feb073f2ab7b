// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <sys/stat.h>

#include "cli/replay_run.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

class ReplayDisk : public ::testing::Test {
 protected:
  ReplayOptions options(uint32_t host_blocks, uint64_t disk_bytes, uint32_t ranks = 1) const {
    ReplayOptions options = small_blocks(host_blocks, ranks);
    options.disk.config.path = folder_.path("disk");
    options.disk.config.bytes = disk_bytes;
    options.optimum = false;
    return options;
  }

  // Space that the files take, not their length.
  uint64_t allocated_bytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path("disk"))) {
      struct stat status {};
      if (entry.is_regular_file() && ::stat(entry.path().c_str(), &status) == 0) {
        bytes += static_cast<uint64_t>(status.st_blocks) * 512;
      }
    }
    return bytes;
  }

  const testing::TempFolder folder_;
  const Trace trace_ = head_of(whole_trace(), 600);
};

TEST_F(ReplayDisk, WhatTheHostTierHasNoRoomForComesFromDisk) {
  const ReplayReport without = run(trace_, small_blocks(500));
  const ReplayReport report = run(trace_, options(500, 256u << 20));
  EXPECT_EQ(report.mismatches, 0u);
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks) << "the disk has room for all of it";
  EXPECT_LT(without.hit_blocks, report.hit_blocks);
  EXPECT_EQ(report.loaded_blocks, report.hit_blocks);
  EXPECT_GT(report.cache.disk_get_blocks, 0u);
  EXPECT_EQ(report.cache.disk_put_failed, 0u);
}

TEST_F(ReplayDisk, TheSecondRunStartsWarm) {
  const ReplayReport cold = run(trace_, options(500, 256u << 20, 2));
  const ReplayReport warm = run(trace_, options(500, 256u << 20, 2));
  EXPECT_EQ(warm.mismatches, 0u);
  EXPECT_EQ(warm.cache.disk_recovered_blocks, cold.cache.disk_slots_used);
  EXPECT_EQ(warm.cache.disk_unreachable_blocks, 0u);
  EXPECT_EQ(warm.hit_blocks, warm.blocks) << "every block has been seen before";
  EXPECT_GT(warm.hit_blocks, cold.hit_blocks);
}

TEST_F(ReplayDisk, F37SmallerThanItsContentItNeverPassesItsBoundAlsoOverRuns) {
  constexpr uint64_t kBytes = 8u << 20;  // a third of what the trace brings
  for (int round = 0; round < 2; ++round) {
    const ReplayReport report = run(trace_, options(500, kBytes, 2));
    EXPECT_EQ(report.mismatches, 0u);
    EXPECT_GT(report.cache.disk_evicted_blocks, 0u);
    EXPECT_EQ(report.cache.disk_slots_used, report.cache.disk_slots_total);
    EXPECT_LE(allocated_bytes(), kBytes + 4096) << "the owner file comes on top while it is there";
  }
}

TEST_F(ReplayDisk, WrittenBackBlocksAreReachedAfterARestart) {
  ReplayOptions write_back = options(500, 256u << 20);
  write_back.disk.policy = WritePolicy::kWriteBack;
  const ReplayReport cold = run(trace_, write_back);
  EXPECT_EQ(cold.mismatches, 0u);
  EXPECT_GT(cold.cache.disk_put_blocks, 0u);
  const ReplayReport warm = run(trace_, write_back);
  EXPECT_EQ(warm.mismatches, 0u);
  EXPECT_EQ(warm.cache.disk_recovered_blocks, cold.cache.disk_slots_used);
  EXPECT_EQ(warm.cache.disk_unreachable_blocks, 0u);
}

TEST_F(ReplayDisk, RanksInProcessesThatAreKilledLoseNothingThatIsOnDisk) {
  ReplayOptions killed = options(500, 256u << 20, 2);
  run(trace_, killed);
  killed.rank_host = RankHost::kProcess;
  killed.kill_rank_every = 40;
  const ReplayReport report = run(trace_, killed);
  EXPECT_EQ(report.mismatches, 0u);
  EXPECT_GE(report.killed_ranks, 4u);
  EXPECT_GT(report.hit_blocks, report.blocks / 4) << "a rank that is away costs some";
}

TEST_F(ReplayDisk, WithAStoreBehindItBothServe) {
  ReplayOptions both = options(500, 8u << 20);
  both.store = "memory:";
  const ReplayReport report = run(trace_, both);
  EXPECT_EQ(report.mismatches, 0u);
  EXPECT_EQ(report.hit_blocks, report.ceiling_hit_blocks) << "the store keeps everything";
  EXPECT_GT(report.cache.disk_get_blocks, 0u);
  EXPECT_GT(report.cache.get_blocks, 0u);
}

}  // namespace
}  // namespace tiercel
