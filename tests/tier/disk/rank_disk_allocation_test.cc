// SPDX-License-Identifier: Apache-2.0
//
// A rank's disk allocates when it is made and never again, as a global operator new that counts
// sees it.
#include "support/allocation_count.h"
#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

// Does nothing, says that all went well, and allocates nothing.
class IdleDiskIo final : public DiskIo {
 public:
  IdleDiskIo() { pending_.reserve(kDepth); }
  size_t capacity() const override { return kDepth - pending_.size(); }
  void submit(std::span<const DiskIoRequest> requests) override {
    pending_.insert(pending_.end(), requests.begin(), requests.end());
  }
  size_t poll(std::span<DiskIoCompletion> out) override {
    const size_t count = std::min(out.size(), pending_.size());
    for (size_t i = 0; i < count; ++i) {
      const DiskIoRequest& request = pending_[pending_.size() - 1 - i];
      out[i] = {request.token, static_cast<int64_t>(request.memory.size())};
    }
    pending_.resize(pending_.size() - count);
    return count;
  }
  int completion_fd() const override { return -1; }
  std::string describe() const override { return "idle"; }

 private:
  static constexpr size_t kDepth = 8;
  std::vector<DiskIoRequest> pending_;
};

TEST(RankDiskAllocation, NothingAfterTheStart) {
  for (const DiskSync sync : {DiskSync::kNone, DiskSync::kData, DiskSync::kInterval}) {
    testing::RankDiskRig rig;
    rig.options.sync = sync;
    rig.options.operations_max = 16;
    const std::unique_ptr<RankDisk> disk =
        RankDisk::create(rig.options, *rig.geometry, rig.read_header().value(), 1,
                         std::make_unique<IdleDiskIo>(), rig.clock)
            .value();
    testing::PageBuffer buffer(rig.stride());
    testing::fill_slot(1, GroupId(0), testing::RankDiskRig::kPayloadBytes, buffer.span());
    const size_t before = allocation_count;
    uint64_t ended = 0;
    for (uint64_t token = 0; token < 10'000; ++token) {
      // Every other one, so that no two records are written together.
      const SlotId slot(static_cast<uint32_t>(token * 2 % testing::RankDiskRig::kSlots));
      static_cast<void>(disk->start(DiskPut{token, slot, GroupId(0), buffer.span(), {}}));
      static_cast<void>(disk->start(DiskGet{token, slot, GroupId(0), buffer.span()}));
      if (token % 5 != 0) continue;
      disk->flush();
      rig.clock.advance(std::chrono::milliseconds(100));
      std::array<DiskDone, 8> done;
      ended += disk->poll(done);
    }
    EXPECT_EQ(allocation_count - before, 0u);
    EXPECT_GT(ended, 2000u);
    EXPECT_GT(disk->stats().puts, 500u);
    EXPECT_EQ(disk->stats().syncs > 0, sync != DiskSync::kNone);
  }
  EXPECT_GT(allocation_count, 0u) << "this test cannot fail";
}

}  // namespace
}  // namespace tiercel
