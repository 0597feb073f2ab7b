// SPDX-License-Identifier: Apache-2.0
//
// A rank's disk over real files, as the folder opens them, by every way of I/O.
#include <unistd.h>

#include "support/child_process.h"
#include "support/temp_folder.h"
#include "support/wait_readable.h"
#include "tier/disk/disk_folder.h"
#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::key_of_block;
using testing::PageBuffer;

constexpr uint64_t kPayloadBytes = 20'000;
constexpr uint32_t kBlocks = 16;

// One life of the process: folder, files and disk, opened together and gone together.
class Life {
 public:
  Life(const std::string& path, DiskIoWay way, DiskSync sync) {
    DiskFolderOptions options;
    options.path = path;
    options.bytes = 8 << 20;
    options.payload_bytes = {{kPayloadBytes}};
    Result<std::unique_ptr<DiskFolder>> opened = DiskFolder::open(options);
    if (!opened) {
      wrong = opened.error().to_string();
      return;
    }
    folder = *std::move(opened);
    contents = folder->read_contents(testing::digest_of<Namespace>("namespace"), false).value();
    files = folder->files(0).value();
    Result<std::unique_ptr<DiskIo>> io =
        make_disk_io(files.data.get(), files.metadata.get(), {.way = way, .queue_depth = 8});
    if (!io) {
      is_missing = io.code() == Code::kUnavailable;
      wrong = io.error().to_string();
      return;
    }
    auto faulty_io = std::make_unique<testing::FaultyDiskIo>(*std::move(io));
    faulty = faulty_io.get();
    RankDiskOptions disk_options;
    disk_options.sync = sync;
    disk = RankDisk::create(disk_options, folder->geometry(), files.header, files.next_sequence,
                            std::move(faulty_io), clock)
               .value();
  }

  // Ends all that was started, asleep in between; what did not end ok is what went wrong.
  void finish() {
    disk->flush();
    while (wrong.empty()) {
      DiskDone done[4];
      const size_t count = disk->poll(done);
      for (size_t i = 0; i < count; ++i) {
        if (done[i].code != Code::kOk) {
          wrong = std::to_string(done[i].token) + ": " + std::string(to_string(done[i].code));
        }
      }
      if (disk->in_flight() == 0) return;
      if (count == 0 && !testing::readable(disk->completion_fd(), testing::kHangMs)) {
        wrong = "no completion is announced";
      }
    }
  }

  void put_all(uint64_t first_id) {
    std::vector<PageBuffer> buffers(kBlocks, PageBuffer(slot_stride_bytes(kPayloadBytes)));
    for (uint32_t slot = 0; slot < kBlocks; ++slot) {
      const std::span<std::byte> memory = buffers[slot].span();
      testing::fill_slot(first_id + slot, GroupId(0), kPayloadBytes, memory);
      const DiskPut put{first_id + slot, SlotId(slot), GroupId(0), memory, {}};
      if (disk->start(put) != Code::kOk) wrong = "a put was refused";
    }
    finish();
  }

  void check_all(uint64_t first_id) {
    if (contents.blocks.size() != kBlocks) {
      wrong = "the folder finds " + std::to_string(contents.blocks.size()) + " blocks";
      return;
    }
    std::vector<PageBuffer> buffers(kBlocks, PageBuffer(slot_stride_bytes(kPayloadBytes)));
    for (const DiskBlock& block : contents.blocks) {
      const uint32_t slot = block.slot.value();
      if (block.key != key_of_block(first_id + slot)) wrong = "another key";
      if (disk->start(DiskGet{1, block.slot, block.group, buffers[slot].span()}) != Code::kOk) {
        wrong = "a get was refused";
      }
    }
    finish();
    PageBuffer expected(slot_stride_bytes(kPayloadBytes));
    for (uint32_t slot = 0; slot < kBlocks; ++slot) {
      testing::fill_slot(first_id + slot, GroupId(0), kPayloadBytes, expected.span());
      if (!testing::same_bytes(buffers[slot].span(), expected.span())) wrong = "other bytes";
    }
  }

  SystemClock clock;
  std::string wrong;
  bool is_missing = false;
  std::unique_ptr<DiskFolder> folder;
  DiskContents contents;
  DiskRankFiles files;
  testing::FaultyDiskIo* faulty = nullptr;
  std::unique_ptr<RankDisk> disk;
};

class RankDiskFiles : public ::testing::TestWithParam<DiskIoWay> {
 protected:
  void SetUp() override {
    const Life life(path(), GetParam(), DiskSync::kNone);
    if (life.is_missing) GTEST_SKIP() << life.wrong;
    ASSERT_EQ(life.wrong, "");
  }
  std::string path() const { return folder_.path("tier"); }

  testing::TempFolder folder_;
};

TEST_P(RankDiskFiles, AreFoundAgainByTheFolderAndReadBack) {
  uint64_t first_id = 100;
  for (const DiskSync sync : {DiskSync::kNone, DiskSync::kData, DiskSync::kInterval}) {
    first_id += 100;
    {
      Life life(path(), GetParam(), sync);
      life.put_all(first_id);
      EXPECT_TRUE(life.disk->close(life.clock.now() + seconds(60)));
      EXPECT_EQ(life.wrong, "");
    }
    Life life(path(), GetParam(), sync);
    life.check_all(first_id);
    EXPECT_EQ(life.wrong, "");
  }
}

TEST_P(RankDiskFiles, AreFoundAgainAfterTheProcessWasKilled) {
  const std::string wrong = testing::run_in_child([&] {
    // Gone without any clean-up, like everything of a process that is killed.
    auto* life = new Life(path(), GetParam(), DiskSync::kNone);  // NOLINT
    life->put_all(100);
    return life->wrong;
  });
  ASSERT_EQ(wrong, "");
  Life life(path(), GetParam(), DiskSync::kNone);
  life.check_all(100);
  EXPECT_EQ(life.wrong, "");
}

TEST_P(RankDiskFiles, AreEmptyAfterAClearAndHoldWhatWasPutSince) {
  {
    Life life(path(), GetParam(), DiskSync::kNone);
    life.put_all(100);
    EXPECT_EQ(life.disk->start_clear(1), Code::kOk);
    life.finish();
    EXPECT_EQ(life.wrong, "");
  }
  {
    Life life(path(), GetParam(), DiskSync::kNone);
    EXPECT_TRUE(life.contents.blocks.empty());
    EXPECT_EQ(life.contents.cleared, kBlocks);
    EXPECT_EQ(life.disk->start_clear(1), Code::kOk);
    life.put_all(200);
    EXPECT_EQ(life.wrong, "");
  }
  Life life(path(), GetParam(), DiskSync::kNone);
  life.check_all(200);
  EXPECT_EQ(life.wrong, "");
}

TEST_P(RankDiskFiles, CloseWaitsAsleepAndGivesUpAtItsDeadline) {
  Life life(path(), GetParam(), DiskSync::kNone);
  PageBuffer buffer(slot_stride_bytes(kPayloadBytes));
  life.faulty->add({.action = testing::DiskFaultAction::kHang});
  EXPECT_EQ(life.disk->start(DiskGet{1, SlotId(0), GroupId(0), buffer.span()}), Code::kOk);
  EXPECT_EQ(life.disk->close(life.clock.now() + milliseconds(50)).code(), Code::kTimeout);
  life.faulty->release();
  EXPECT_TRUE(life.disk->close(life.clock.now() + seconds(60)));
}

INSTANTIATE_TEST_SUITE_P(ByWay, RankDiskFiles,
                         ::testing::Values(DiskIoWay::kUring, DiskIoWay::kThreads),
                         [](const auto& way) { return std::string(to_string(way.param)); });

}  // namespace
}  // namespace tiercel
