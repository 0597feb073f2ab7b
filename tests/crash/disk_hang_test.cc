// SPDX-License-Identifier: Apache-2.0
//
// A disk that stops to answer: every call ends by its deadline, what may still be written to is in
// quarantine, the disk is left alone and the cache goes on with the host tier; and when the disk
// comes back, so do its blocks.
#include <array>
#include <mutex>

#include <poll.h>

#include "base/arena.h"
#include "cache/disk_parts.h"
#include "cache/host_geometry.h"
#include "cache/protections.h"
#include "crash/disk_rig.h"
#include "support/faulty_disk_io.h"
#include "support/temp_folder.h"
#include "tier/disk/disk_folder.h"
#include "transfer/device_copier.h"
#include "transfer/in_process_data_plane.h"

namespace tiercel::testing {
namespace {

// A FaultyDiskIo that the test reaches while a rank's thread uses it.
class SharedFaultyDisk final : public DiskIo {
 public:
  explicit SharedFaultyDisk(std::unique_ptr<DiskIo> inner) : faulty_(std::move(inner)) {}

  void hang() {
    const std::lock_guard lock(mutex_);
    faulty_.add({.action = DiskFaultAction::kHang, .count = kDiskFaultForEver});
  }
  void come_back() {
    const std::lock_guard lock(mutex_);
    faulty_.clear();
    faulty_.release();
  }

  size_t capacity() const override {
    const std::lock_guard lock(mutex_);
    return faulty_.capacity();
  }
  void submit(std::span<const DiskIoRequest> requests) override {
    const std::lock_guard lock(mutex_);
    faulty_.submit(requests);
  }
  size_t poll(std::span<DiskIoCompletion> out) override {
    const std::lock_guard lock(mutex_);
    return faulty_.poll(out);
  }
  int completion_fd() const override { return faulty_.completion_fd(); }
  std::string describe() const override { return faulty_.describe(); }

 private:
  mutable std::mutex mutex_;
  FaultyDiskIo faulty_;
};

constexpr uint32_t kBlocks = 4;  // of a prompt

// What LocalCache puts together, with another DiskIo at the bottom.
class DiskHang : public ::testing::TestWithParam<uint32_t> {
 protected:
  DiskHang() {
    options_.ranks = GetParam();
    options_.host_blocks = 64;
    options_.load_limit = std::chrono::milliseconds(200);
    rig_ = DiskRig::make(options_);
  }
  ~DiskHang() override {
    cache_.reset();
    plane_.reset();
  }

  void SetUp() override {
    config_ = rig_config(options_).cache;
    config_.save_deadline = std::chrono::milliseconds(300);
    const Result<SlotGeometry> host = host_geometry(config_);
    ASSERT_TRUE(host);
    DiskFolderOptions folder;
    folder.path = temp_.path("tier");
    folder.bytes = (uint64_t{4} << 20) * options_.ranks;
    folder.payload_bytes = config_.payload_bytes;
    folder.direct = false;
    auto opened = DiskFolder::open(folder);
    ASSERT_TRUE(opened) << opened.error().to_string();
    folder_ = *std::move(opened);
    const Namespace name_space = *make_namespace(config_.spec);
    auto contents = folder_->read_contents(name_space, false);
    ASSERT_TRUE(contents);

    std::vector<std::unique_ptr<RankWorker>> workers;
    const auto device = rig_->device_memory();
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      auto arena = Arena::create(host->tier_bytes(rank), {.huge_pages = false});
      ASSERT_TRUE(arena);
      arenas_.push_back(*std::move(arena));
      auto files = folder_->files(rank);
      ASSERT_TRUE(files);
      files_.push_back(*std::move(files));
      auto copier = ContiguousCopier::create({{device[rank][0], config_.payload_bytes[0][rank]}});
      ASSERT_TRUE(copier);
      copiers_.push_back(std::make_unique<ContiguousCopier>(*std::move(copier)));
      auto worker = RankWorker::create(
          {.rank = rank,
           .slice = {static_cast<uint16_t>(rank), static_cast<uint16_t>(options_.ranks)},
           .name_space = name_space},
          *host, arenas_.back()->memory().first(host->tier_bytes(rank)), copiers_.back().get(),
          nullptr, clock_, make_disk(rank));
      ASSERT_TRUE(worker) << worker.error().to_string();
      workers.push_back(*std::move(worker));
    }
    auto plane = make_in_process_data_plane(std::move(workers), clock_);
    ASSERT_TRUE(plane);
    plane_ = *std::move(plane);
    const DiskParts parts{folder_->geometry(), *std::move(contents)};
    auto cache = CacheFactory::create(Protections{}, config_, *plane_, clock_, &parts);
    ASSERT_TRUE(cache) << cache.error().to_string();
    cache_ = *std::move(cache);
    rig_->use(*cache_, [this](Duration) {
      pollfd descriptor{plane_->completion_fd(), POLLIN, 0};
      ::poll(&descriptor, 1, 1);
    });
  }

  // The last rank's disk is the one that hangs.
  std::unique_ptr<RankDisk> make_disk(uint32_t rank) {
    auto io = make_disk_io(files_[rank].data.get(), files_[rank].metadata.get(),
                           {.way = DiskIoWay::kThreads});
    EXPECT_TRUE(io);
    auto faulty = std::make_unique<SharedFaultyDisk>(*std::move(io));
    disk_io_ = faulty.get();
    RankDiskOptions options;
    options.rank = rank;
    options.stuck_after = std::chrono::milliseconds(100);
    // Each load that finds out costs a host slot until the disk answers.
    options.breaker.backoff = options.breaker.backoff_max = std::chrono::seconds(1);
    auto disk = RankDisk::create(options, folder_->geometry(), files_[rank].header,
                                 files_[rank].next_sequence, std::move(faulty), clock_);
    EXPECT_TRUE(disk);
    return *std::move(disk);
  }

  RigRead read(uint64_t prompt) {
    const Result<RigRead> read = rig_->read(prompt, kBlocks);
    EXPECT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read ? read->wrong : 0, 0u);
    return read ? *read : RigRead{};
  }

  static std::string text(const CacheStats& stats) {
    return "it does not come: disk " + to_string(stats.disk) + ", quarantined " +
           std::to_string(stats.host_slots_quarantined) + " on the host, " +
           std::to_string(stats.disk_slots_quarantined) + " on disk, jobs " +
           std::to_string(stats.jobs_in_flight) + " opened " + std::to_string(stats.disk.opened) +
           " refused " + std::to_string(stats.disk.refused);
  }

  // Polls until it is so; false if that does not come within a minute.
  ::testing::AssertionResult comes(const std::function<bool(const CacheStats&)>& is_so) {
    const TimePoint give_up = clock_.now() + std::chrono::seconds(20);
    while (!is_so(cache_->stats())) {
      if (clock_.now() > give_up) return ::testing::AssertionFailure() << text(cache_->stats());
      rig_->poll(std::chrono::milliseconds(1));
    }
    return ::testing::AssertionSuccess();
  }

  // Prompt 1 is on disk only; so much has been saved since that its host copies have gone.
  void fill() {
    for (uint64_t prompt = 1; prompt <= 20; ++prompt) {
      ASSERT_TRUE(rig_->save(prompt, kBlocks));
      ASSERT_TRUE(rig_->settle());
    }
    ASSERT_EQ(rig_->on_disk(1, kBlocks), kBlocks);
    std::array<BlockPlace, kBlocks> places;
    cache_->match(rig_->keys(1, kBlocks), 0, places);
    ASSERT_EQ(places[0], BlockPlace::kDisk);
  }

  void hang_and_go_on() {
    disk_io_->hang();
    // From the disk: given up at its deadline. To the disk: likewise, and what was saved is there.
    const RigRead hung = read(1);
    EXPECT_EQ(hung.offered, kBlocks);
    EXPECT_EQ(hung.loaded, 0u);
    ASSERT_TRUE(rig_->save(100, kBlocks));
    EXPECT_TRUE(comes([](const CacheStats& stats) {
      return stats.host_slots_quarantined > 0 && stats.disk.opened > 0;
    }));
    EXPECT_GT(cache_->stats().disk_get_timeout, 0u);

    // Left alone, but for the load that finds out now and then whether it is back: its blocks are
    // not offered, and nothing waits for it.
    EXPECT_TRUE(comes([this](const CacheStats&) { return read(1).offered == 0; }));
    for (uint64_t prompt = 101; prompt < 105; ++prompt) {
      ASSERT_TRUE(rig_->save(prompt, kBlocks));
      EXPECT_EQ(read(prompt).loaded, kBlocks) << "prompt " << prompt;
    }
    EXPECT_EQ(cache_->check(false), "");
  }

  TempFolder temp_;
  const SystemClock clock_;
  RigOptions options_;
  CacheConfig config_;
  std::unique_ptr<DiskRig> rig_;
  std::unique_ptr<DiskFolder> folder_;
  std::vector<DiskRankFiles> files_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<ContiguousCopier>> copiers_;
  SharedFaultyDisk* disk_io_ = nullptr;  // of the last rank's disk
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<Cache> cache_;
};

TEST_P(DiskHang, TheCacheGoesOnWithoutTheDiskAndWithItWhenItComesBack) {
  ASSERT_NO_FATAL_FAILURE(fill());
  ASSERT_NO_FATAL_FAILURE(hang_and_go_on());
  const TimePoint until = clock_.now() + std::chrono::seconds(2);
  while (clock_.now() < until) rig_->poll(std::chrono::milliseconds(5));
  disk_io_->come_back();
  // Some load is the one that finds out.
  EXPECT_TRUE(comes([this](const CacheStats&) { return read(1).loaded == kBlocks; }));
  ASSERT_TRUE(rig_->settle());
  const CacheStats stats = cache_->stats();
  EXPECT_EQ(stats.disk.condition, StoreCondition::kUp);
  EXPECT_EQ(stats.host_slots_quarantined + stats.disk_slots_quarantined, 0u);
  ASSERT_TRUE(rig_->save(200, kBlocks));
  ASSERT_TRUE(rig_->settle());
  EXPECT_EQ(rig_->on_disk(200, kBlocks), kBlocks);
  EXPECT_EQ(cache_->check(true), "");
  EXPECT_TRUE(plane_->close(clock_.now() + std::chrono::seconds(10)));
}

TEST_P(DiskHang, ADiskThatNeverComesBackDoesNotKeepTheCacheFromEnding) {
  ASSERT_NO_FATAL_FAILURE(fill());
  ASSERT_NO_FATAL_FAILURE(hang_and_go_on());
  cache_->close(clock_.now() + std::chrono::milliseconds(200));
  EXPECT_TRUE(comes([this](const CacheStats&) { return cache_->closed(); }));
  EXPECT_EQ(plane_->close(clock_.now() + std::chrono::milliseconds(200)).code(), Code::kTimeout);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DiskHang, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace tiercel::testing
