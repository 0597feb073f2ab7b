// SPDX-License-Identifier: Apache-2.0
//
// The bound on the files holds at every moment: while blocks come that have no room, over restarts,
// with slots of several sizes and on several ranks. What gives way is the oldest.
#include "crash/disk_rig.h"
#include "crash/folder_files.h"
#include "support/temp_folder.h"
#include "tier/disk/disk_format.h"
#include "tier/slot_geometry.h"

namespace tiercel::testing {
namespace {

constexpr uint32_t kBlocks = 5;  // of a prompt
// What a file system may count beside the contents (where a file's pieces lie), for each file.
constexpr uint64_t kFileSystemBytes = 8192;

struct Shape {
  uint32_t groups;
  uint32_t ranks;
  WritePolicy policy;
};

class DiskCapacity : public ::testing::TestWithParam<Shape> {
 protected:
  DiskCapacity() {
    options_.groups = GetParam().groups;
    options_.ranks = GetParam().ranks;
    options_.policy = GetParam().policy;
    options_.disk.path = temp_.path("tier");
    const PayloadBytes payloads = rig_config(options_).cache.payload_bytes;
    // For about a hundred blocks.
    uint64_t slots = 0;
    for (const auto& group : payloads) {
      for (const uint64_t bytes : group) slots += slot_stride_bytes(bytes) + kDiskRecordBytes;
    }
    options_.disk.bytes = 100 * slots + 3 * kDiskHeaderBytes * options_.ranks;
    // A quarter of it may wait for the disk at once: a whole prompt.
    options_.host_blocks = 4 * kBlocks * options_.groups;
  }

  std::unique_ptr<DiskRig> open() {
    auto rig = DiskRig::open(options_);
    EXPECT_TRUE(rig) << rig.error().to_string();
    if (!rig) return nullptr;
    (*rig)->on_poll([this] {
      most_ = std::max(most_, space_below(options_.disk.path));
      ++looks_;
    });
    return *std::move(rig);
  }

  TempFolder temp_;
  RigOptions options_;
  uint64_t most_ = 0, looks_ = 0;
};

TEST_P(DiskCapacity, F37ThreeTimesTheBoundOverThreeLivesNeverPassesIt) {
  const uint64_t bound = options_.disk.bytes + 2 * options_.ranks * kFileSystemBytes;
  uint64_t prompt = 0, evicted = 0;
  for (uint64_t life = 1; life <= 3; ++life) {
    const auto rig = open();
    ASSERT_TRUE(rig);
    const uint64_t slots = rig->cache().stats().disk_slots_total;
    if (life > 1) {
      EXPECT_GT(rig->cache().stats().disk_recovered_blocks, slots / 2);
    }
    // Each life brings as many blocks as there is room for in one group's share of the bound.
    for (uint64_t blocks = 0; blocks < 100; blocks += kBlocks) {
      ASSERT_TRUE(rig->save(prompt++, kBlocks));
      ASSERT_TRUE(rig->settle());
    }
    const CacheStats stats = rig->cache().stats();
    EXPECT_EQ(stats.disk_put_failed + stats.disk_put_dropped, 0u);
    evicted += stats.disk_evicted_blocks;
    // The newest that has been written is there and right.
    for (uint64_t back = 1; back <= 10; ++back) {
      const Result<RigRead> read = rig->read(prompt - back, kBlocks);
      ASSERT_TRUE(read) << read.error().to_string();
      EXPECT_EQ(read->wrong, 0u);
      EXPECT_EQ(read->loaded, kBlocks) << "prompt " << prompt - back;
    }
    EXPECT_EQ(rig->cache().check(false), "");
    EXPECT_TRUE(rig->close());
  }
  EXPECT_GT(evicted, 0u);
  EXPECT_GT(looks_, 3 * 100u / kBlocks);
  EXPECT_LE(most_, bound);
  // It has been full, or this has shown nothing.
  EXPECT_GT(most_, options_.disk.bytes / 2);
  EXPECT_EQ(files_below(options_.disk.path + "/main"), files_of_ranks(options_.ranks));
}

INSTANTIATE_TEST_SUITE_P(Shapes, DiskCapacity,
                         ::testing::Values(Shape{1, 1, WritePolicy::kWriteThrough},
                                           Shape{1, 2, WritePolicy::kWriteBack},
                                           Shape{3, 1, WritePolicy::kWriteThrough},
                                           Shape{3, 2, WritePolicy::kWriteThrough},
                                           Shape{2, 2, WritePolicy::kWriteBack}),
                         [](const ::testing::TestParamInfo<Shape>& shape) {
                           return std::to_string(shape.param.groups) + "_groups_" +
                                  std::to_string(shape.param.ranks) + "_ranks_" +
                                  std::string(to_string(shape.param.policy));
                         });

// The case as it was told: 100 blocks allowed, 90 there, and after a restart 50 more.
TEST(DiskCapacityCase, F37AfterARestartOldBlocksCountAndTheOldestGiveWay) {
  const TempFolder temp;
  RigOptions options;
  options.disk.path = temp.path("tier");
  options.disk.bytes =
      3 * kDiskHeaderBytes + 100 * (slot_stride_bytes(options.block_bytes) + kDiskRecordBytes);
  const auto save = [&](DiskRig& rig, uint64_t first, uint64_t last) {
    for (uint64_t prompt = first; prompt < last; ++prompt) {
      ASSERT_TRUE(rig.save(prompt, kBlocks));
      ASSERT_TRUE(rig.settle());
      ASSERT_LE(space_below(options.disk.path), options.disk.bytes + 2 * kFileSystemBytes);
    }
  };
  {
    const auto rig = DiskRig::open(options);
    ASSERT_TRUE(rig) << rig.error().to_string();
    ASSERT_EQ((*rig)->cache().stats().disk_slots_total, 100u);
    save(**rig, 0, 18);
    ASSERT_TRUE((*rig)->close());
  }
  {
    const auto rig = DiskRig::open(options);
    ASSERT_TRUE(rig) << rig.error().to_string();
    EXPECT_EQ((*rig)->cache().stats().disk_slots_used, 90u);
    save(**rig, 18, 28);
    EXPECT_EQ((*rig)->cache().stats().disk_evicted_blocks, 40u);
    ASSERT_TRUE((*rig)->close());
  }
  const auto rig = DiskRig::open(options);
  ASSERT_TRUE(rig) << rig.error().to_string();
  EXPECT_EQ((*rig)->cache().stats().disk_recovered_blocks, 100u);
  for (uint64_t prompt = 0; prompt < 28; ++prompt) {
    const Result<RigRead> read = (*rig)->read(prompt, kBlocks);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->wrong, 0u);
    EXPECT_EQ(read->loaded, prompt < 8 ? 0 : kBlocks) << "prompt " << prompt;
  }
  EXPECT_EQ((*rig)->cache().stats().disk_get_corrupt, 0u);
  ASSERT_TRUE((*rig)->close());
}

}  // namespace
}  // namespace tiercel::testing
