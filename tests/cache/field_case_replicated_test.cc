// SPDX-License-Identifier: Apache-2.0
//
// F04: for models whose KV is equal on every rank, each rank stored its own copy; capacity and
// write traffic were multiplied by the number of ranks.
#include <algorithm>
#include <set>
#include <string>

#include "tiercel/local_cache.h"

#include "base/arena.h"
#include "cache/cache_fixture.h"
#include "cache/local_cache_run.h"

namespace tiercel {
namespace {

constexpr uint32_t kRanks = 8;
constexpr uint32_t kBlocks = 16;
constexpr uint64_t kBytes = 4096;

CacheConfig replicated_config(uint32_t host_blocks, bool with_store) {
  CacheConfig config = test_config(host_blocks, kRanks, with_store);
  config.replicated_slices = true;
  return config;
}

using FieldCaseF04 = CacheFixture;

// What the whole way down does with real bytes: the device memory of eight ranks, all equal.
class FieldCaseF04Hosts : public CacheFixture, public ::testing::WithParamInterface<RankHost> {
 protected:
  LocalCacheConfig local_config(RankHost host) {
    LocalCacheConfig config;
    config.cache = replicated_config(64, true);
    config_ = config.cache;  // for device()
    config.cache.payload_bytes = {std::vector<uint64_t>(kRanks, kBytes)};
    config.store_url = "memory:replicated?bytes=64MiB";
    config.rank_host = host;
    ArenaOptions arena;
    arena.kind = ArenaKind::kMemfd;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      auto created = Arena::create(2 * kBlocks * kBytes, arena);
      EXPECT_TRUE(created) << created.error().message();
      device_.push_back(*std::move(created));
      const std::span<std::byte> memory = memory_of(rank);
      for (size_t i = 0; i < kBlocks * kBytes; ++i) {
        memory[i] = static_cast<std::byte>(i * 7 + i / kBytes);
      }
      config.device_memory.push_back({memory});
      config.device_fds.push_back(device_.back()->fd());
    }
    return config;
  }
  std::span<std::byte> memory_of(uint32_t rank) {
    return device_[rank]->memory().first(2 * kBlocks * kBytes);
  }

  // Of all ranks together.
  static uint64_t moved(LocalCache& local, OpKind kind) {
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      bytes += local.data_plane().stats(rank).path(kind).bytes;
    }
    return bytes;
  }

  // Loads all blocks into the second half of the device memory and compares.
  void expect_loads(LocalCache& local, const std::vector<BlockKey>& keys) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const auto target = memory_of(rank).subspan(kBlocks * kBytes);
      std::fill(target.begin(), target.end(), std::byte{0});
    }
    ASSERT_TRUE(local.cache().load(RequestId(9), keys, 0, device(kBlocks, kBlocks), kNoDeadline));
    EXPECT_EQ(run_until_idle(local), kBlocks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const auto memory = memory_of(rank);
      EXPECT_TRUE(
          std::ranges::equal(memory.first(kBlocks * kBytes), memory.subspan(kBlocks * kBytes)))
          << "rank " << rank;
    }
    EXPECT_TRUE(local.cache().finish(RequestId(9)));
  }

  std::vector<std::unique_ptr<Arena>> device_;
  const SystemClock system_clock_;
};

TEST_P(FieldCaseF04Hosts, OneCopyIsWrittenAndEveryRankLoadsIt) {
  auto local = LocalCache::open(local_config(GetParam()), system_clock_);
  ASSERT_TRUE(local) << local.error().message();
  Cache& used = (*local)->cache();
  const auto keys = test_keys(kBlocks);
  ASSERT_TRUE(used.save(RequestId(1), keys, 0, device(kBlocks)));
  ASSERT_TRUE(used.commit(RequestId(1), kBlocks * 4));
  run_until_idle(**local);
  ASSERT_TRUE(used.finish(RequestId(1)));
  EXPECT_EQ(moved(**local, OpKind::kSave), kBlocks * kBytes) << "one copy in the host tier";
  EXPECT_EQ(moved(**local, OpKind::kStorePut), kBlocks * kBytes) << "one copy in the store";
  expect_loads(**local, keys);

  // And back from the store, which has nothing else.
  used.clear();
  run_until_idle(**local);
  ASSERT_EQ(used.prefetch(RequestId(2), keys, 0, kNoDeadline), true);
  run_until_idle(**local);
  EXPECT_EQ(moved(**local, OpKind::kStoreGet), kBlocks * kBytes);
  ASSERT_TRUE(used.finish(RequestId(2)));
  expect_loads(**local, keys);
}

INSTANTIATE_TEST_SUITE_P(All, FieldCaseF04Hosts,
                         ::testing::Values(RankHost::kThread, RankHost::kProcess),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param));
                         });

TEST_F(FieldCaseF04, EachBlockHasOneWriterAndTheWorkIsSpread) {
  open(replicated_config(64, false));
  store(1, test_keys(kBlocks));
  std::set<uint16_t> writers;
  for (const BlockOp& op : plane->all) {
    ASSERT_EQ(op.kind, OpKind::kSave);
    ASSERT_LT(op.only_rank, kRanks);
    writers.insert(op.only_rank);
  }
  EXPECT_EQ(plane->all.size(), kBlocks);
  EXPECT_GT(writers.size(), 2u);
  EXPECT_EQ(ready(test_keys(kBlocks)), kBlocks);
}

// A writer that never answers costs the deadline of what it was given, not a hang, and not the
// blocks that come after.
TEST_F(FieldCaseF04, AWriterThatIsLostIsReplaced) {
  CacheConfig config = replicated_config(64, false);
  open(config);
  const auto keys = test_keys(kBlocks);
  ASSERT_TRUE(cache->save(RequestId(1), keys, 0, device(kBlocks)));
  ASSERT_TRUE(cache->commit(RequestId(1), kBlocks * 4));
  poll();
  const uint16_t lost = plane->all.front().only_rank;
  const auto complete_but_lost = [&] {
    for (size_t i = plane->open.size(); i-- > 0;) {
      if (plane->open[i].rank != lost) plane->complete(i);
    }
    poll();
  };
  complete_but_lost();
  clock.advance(config.save_deadline);
  poll();
  ASSERT_TRUE(cache->finish(RequestId(1)));
  EXPECT_LT(ready(keys), kBlocks);

  const size_t before = plane->all.size();
  ASSERT_TRUE(cache->save(RequestId(2), keys, 0, device(kBlocks)));
  ASSERT_TRUE(cache->commit(RequestId(2), kBlocks * 4));
  poll();
  for (size_t i = before; i < plane->all.size(); ++i) EXPECT_NE(plane->all[i].only_rank, lost);
  complete_but_lost();
  EXPECT_EQ(ready(keys), kBlocks);
  ASSERT_TRUE(cache->finish(RequestId(2)));
}

TEST_F(FieldCaseF04, SlicesThatCannotBeEqualAreRefused) {
  CacheConfig config = replicated_config(64, false);
  config.payload_bytes.front().back() += 8;
  const Status status = config.validate();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message().find("replicated_slices"), std::string::npos)
      << status.error().message();
}

}  // namespace
}  // namespace tiercel
