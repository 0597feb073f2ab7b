// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about a disk as one of several levels. Those about its files are in
// tests/tier/disk, those about slots and counts of one tier in tests/tier. F39 (entries of a
// folder) and F40 (long names) cannot happen here: a rank has two files, whatever is stored.
#include <algorithm>
#include <optional>

#include "cache/disk_cache_fixture.h"
#include "cache/field_case_fixture.h"
#include "tier/disk/rank_disk_rig.h"

namespace tiercel {
namespace {

class FieldCaseDiskLevel : public DiskCacheFixture {};

TEST_F(FieldCaseDiskLevel, FieldCaseF43LevelsThatHaveLongerOrShorterPartsOfAPrefix) {
  // The host tier has the first `in_host` blocks of five, the disk the first `on_disk`.
  for (uint32_t in_host = 0; in_host <= 4; ++in_host) {
    for (uint32_t on_disk = 0; on_disk <= 4; ++on_disk) {
      const auto keys = test_keys(5);
      open_disk(test_config(16), 32, contents_of({keys.begin(), keys.begin() + on_disk}));
      set_disk(0, StoreCondition::kOpen);  // while memory is being prepared
      poll();
      const std::vector<BlockKey> head(keys.begin(), keys.begin() + in_host);
      store(1, head);
      set_disk(0, StoreCondition::kUp);
      poll();
      ASSERT_EQ(count_on(Tier::kHost), in_host);
      ASSERT_EQ(count_on(Tier::kDisk), on_disk);
      plane->all.clear();

      store(2, keys);
      EXPECT_EQ(plane->count(OpKind::kSave), 5u - in_host) << in_host << " " << on_disk;
      EXPECT_EQ(count_on(Tier::kHost), 5u) << in_host << " " << on_disk;
      // What only memory has goes to disk at the next hit.
      start_load(3, keys, 5);
      settle();
      ASSERT_TRUE(cache->finish(RequestId(3)));
      settle();
      EXPECT_EQ(plane->count(OpKind::kDiskPut), 5u - on_disk) << in_host << " " << on_disk;
      EXPECT_EQ(count_on(Tier::kDisk), 5u) << in_host << " " << on_disk;
      EXPECT_EQ(cache->check(true), "");
    }
  }
}

TEST_F(FieldCaseDiskLevel, FieldCaseF37WhatARestartFindsCountsAgainstTheLimit) {
  CacheConfig config = test_config(16);
  const auto old_path = test_keys(90);
  open_disk(config, 100, contents_of(old_path));
  EXPECT_EQ(cache->stats().disk_slots_used, 90u);
  for (uint32_t i = 0; i < 50; ++i) {
    store(1 + i, test_keys(1, 10000 + i * 4));
    const CacheStats stats = cache->stats();
    EXPECT_LE(stats.disk_slots_used, 100u);
    EXPECT_EQ(stats.disk_slots_used, std::min(100u, 91 + i));
    // Oldest first, tail first: what is left of the old path is of use.
    EXPECT_EQ(ready(old_path), std::min(90u, 99 - i));
  }
}

TEST_F(FieldCaseDiskLevel, FieldCaseF14ABlockOfTheSameRequestIsNotThrownOutForTheOthers) {
  for (const char* policy : {"lru", "s3fifo"}) {
    // Every subset of four blocks is on disk already, as the oldest; the tier is of their size.
    for (uint32_t subset = 0; subset < 16; ++subset) {
      CacheConfig config = test_config(8);
      config.eviction_policy = policy;
      const auto keys = test_keys(4);
      DiskContents contents;
      for (uint32_t i = 0; i < 4; ++i) {
        DiskContents one = contents_of(test_keys(1, 5000 + i * 4), i);
        if ((subset >> i & 1) != 0) {
          one.blocks[0] = contents_of(keys).blocks[i];
          if (i > 0 && (subset >> (i - 1) & 1) == 0) continue;  // unreachable
        }
        contents.blocks.push_back(one.blocks[0]);
      }
      open_disk(config, 4, contents);
      store(1, keys);
      EXPECT_EQ(ready(keys), 4u) << policy << " " << subset;
      // In the host tier in any case; on disk all four, or fewer that are of use.
      plane->memory_epochs = {1};
      poll();
      const uint32_t on_disk = ready(keys);
      start_load(2, keys, on_disk);
      const auto events = settle();
      if (on_disk > 0) {
        ASSERT_EQ(events.size(), 1u);
        EXPECT_EQ(events[0].blocks, on_disk);
      }
      EXPECT_EQ(on_disk, 4u) << policy << " " << subset;
    }
  }
}

// A cache with one rank that moves real bytes, to and from files in memory.
class FieldCaseDiskBytes : public FieldCase {
 protected:
  ~FieldCaseDiskBytes() override { workers.clear(); }  // before the disk that they write to

  static CacheConfig two_parts(uint32_t host_blocks) {
    CacheConfig config = test_config(host_blocks);
    config.spec = test_spec(2);
    config.payload_bytes = {{testing::RankDiskRig::kPayloadBytes},
                            {testing::RankDiskRig::kSmallPayloadBytes}};
    return config;
  }

  // A start of the process over the files as they stand.
  void start(const CacheConfig& config) {
    config_ = config;
    cache.reset();
    workers.clear();
    ranks.clear();
    rig.stop();
    rig.open();
    ranks.push_back(std::make_unique<testing::TestRank>(host_geometry(config).value(), 0, 128));
    RankWorkerOptions options = ranks[0]->options();
    options.name_space = *make_namespace(config.spec);
    workers.push_back(ranks[0]->make_worker(nullptr, clock, options, std::move(rig.rank_disk)));
    plane = std::make_unique<FakeDataPlane>();
    const DiskParts parts{*rig.geometry, contents()};
    Protections protections;
    protections.put_bound = false;  // a small tier's queue is too short for what is put at once
    cache = CacheFactory::create(protections, config, *plane, clock, &parts).value();
    forget_counters();
  }

  DiskContents contents() const {
    std::vector<DiskRecord> records;
    for (const auto& [slot, record] : rig.records()) records.push_back(record);
    std::ranges::sort(records, {}, &DiskRecord::sequence);
    DiskContents contents;
    for (const DiskRecord& record : records) {
      contents.blocks.push_back({.slot = record.slot,
                                 .group = record.group,
                                 .has_parent = record.parent.has_value(),
                                 .key = record.key,
                                 .parent = record.parent.value_or(BlockKey{}),
                                 .sequence = record.sequence});
    }
    return contents;
  }

  // As settle_bytes(); a disk answers only when it is asked again.
  std::vector<CacheEvent> settle_all() {
    std::vector<CacheEvent> events;
    for (int round = 0; round < 1000; ++round) {
      while (!plane->open.empty()) {
        BlockOp op = plane->open[0].op;
        op.deadline_ns = INT64_MAX;
        workers[0]->submit({&op, 1});
        for (int i = 0; i < 16; ++i) workers[0]->progress(1);
        Completion completion;
        EXPECT_EQ(workers[0]->take({&completion, 1}), 1u) << to_string(op.kind);
        plane->complete(0, completion.code);
      }
      const auto some = poll();
      events.insert(events.end(), some.begin(), some.end());
      if (plane->open.empty() && cache->idle()) return events;
    }
    ADD_FAILURE() << "never came to rest";
    return events;
  }
  void store_all(uint64_t request, const std::vector<BlockKey>& keys) {
    write_kv(keys, 0);
    declare(request, keys, 0);
    settle_all();
    EXPECT_TRUE(cache->finish(RequestId(request)));
    settle_all();
  }
  // How many blocks a load brings, all of them the right ones; into other device blocks.
  uint32_t load_all(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    const auto started = cache->load(RequestId(request), keys, 0, device(count, 64), kNoDeadline);
    EXPECT_TRUE(started);
    const auto events = settle_all();
    EXPECT_EQ(events.size(), *started > 0 ? 1u : 0u);
    const uint32_t blocks = events.empty() ? 0 : events[0].blocks;
    for (uint32_t i = 0; i < blocks; ++i) {
      for (uint8_t group = 0; group < 2; ++group) {
        EXPECT_TRUE(holds_block(keys[i], GroupId(group), 64 + group * count + i)) << i;
      }
    }
    EXPECT_TRUE(cache->finish(RequestId(request)));
    settle_all();
    return blocks;
  }

  testing::RankDiskRig rig;
};

TEST_F(FieldCaseDiskBytes, FieldCaseF46EveryPartOfABlockComesBackFromDisk) {
  const CacheConfig config = two_parts(4);
  start(config);
  const auto keys = salted_keys(config.spec, 4, 1);
  store_all(1, keys);
  store_all(2, salted_keys(config.spec, 4, 2));
  ASSERT_EQ(cache->stats().disk_get_blocks, 0u);
  EXPECT_EQ(load_all(3, keys), 4u);
  EXPECT_EQ(cache->stats().disk_get_blocks, 8u);
}

TEST_F(FieldCaseDiskBytes, FieldCaseF46WithoutOneOfItsPartsABlockIsAMiss) {
  const CacheConfig config = two_parts(4);
  start(config);
  const auto keys = salted_keys(config.spec, 4, 1);
  store_all(1, keys);
  store_all(2, salted_keys(config.spec, 4, 2));
  // The small part of block 3 goes bad on disk.
  for (const auto& [slot, record] : rig.records()) {
    if (record.key != keys[3] || record.group != GroupId(1)) continue;
    const std::byte wrong{0x55};
    rig.disk.put(DiskFile::kData,
                 disk_slot_offset(rig.geometry->offset(record.slot, record.group, 0).value()) + 50,
                 {&wrong, 1});
  }
  EXPECT_EQ(load_all(3, keys), 3u);
  EXPECT_EQ(cache->stats().disk_get_corrupt, 1u);
  EXPECT_EQ(ready(keys), 3u);
  store_all(4, keys);
  store_all(5, salted_keys(config.spec, 4, 3));
  EXPECT_EQ(load_all(6, keys), 4u) << "it was stored again";
}

TEST_F(FieldCaseDiskBytes, FieldCaseF46EveryPartComesBackAfterARestart) {
  const CacheConfig config = two_parts(4);
  start(config);
  const auto keys = salted_keys(config.spec, 4, 1);
  store_all(1, keys);
  start(config);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 8u);
  EXPECT_EQ(load_all(2, keys), 4u);
  cache->clear();
  settle_all();
  start(config);
  EXPECT_EQ(cache->stats().disk_recovered_blocks, 0u);
  EXPECT_EQ(load_all(3, keys), 0u);
}

TEST_F(FieldCaseDiskBytes, FieldCaseF10BlocksThatSwapBetweenTheLevelsAllTheTimeStayThemselves) {
  for (const uint32_t host_blocks : {4u, 8u, 16u}) {
    for (const WritePolicy policy : {WritePolicy::kWriteThrough, WritePolicy::kWriteBack}) {
      CacheConfig config = two_parts(host_blocks);
      config.host_to_disk = policy;
      start(config);
      Random random(host_blocks);
      uint64_t hits = 0;
      for (uint64_t request = 1; request <= 60; ++request) {
        auto keys = salted_keys(config.spec, 6, static_cast<uint32_t>(random.below(5)));
        keys.resize(1 + random.below(keys.size()));
        hits += load_all(2 * request, keys);
        store_all(2 * request + 1, keys);
      }
      EXPECT_GT(hits, 20u);
      EXPECT_GT(cache->stats().disk_put_blocks, 0u);
      EXPECT_EQ(cache->stats().disk_get_corrupt + cache->stats().load_corrupt, 0u);
      EXPECT_EQ(cache->check(true), "");
    }
  }
}

}  // namespace
}  // namespace tiercel
