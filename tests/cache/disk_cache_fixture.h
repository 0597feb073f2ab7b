// SPDX-License-Identifier: Apache-2.0
//
// A Cache with a disk tier over a FakeDataPlane: a test says when each disk operation ends and how.
// What the fake disk is asked to do is looked at in `plane->all`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cache/cache_fixture.h"
#include "cache/protections.h"

namespace tiercel {

class DiskCacheFixture : public CacheFixture {
 protected:
  void open_disk(const CacheConfig& config, uint32_t disk_blocks, DiskContents contents = {},
                 size_t capacity = 4096) {
    cache.reset();
    config_ = config;
    plane = std::make_unique<FakeDataPlane>(
        static_cast<uint32_t>(config.payload_bytes.front().size()), capacity);
    const DiskParts parts{SlotGeometry::for_blocks(config.payload_bytes, disk_blocks, 2).value(),
                          std::move(contents)};
    disk_geometry.emplace(parts.geometry);
    Protections protections;
    protections.put_bound = bounds_puts;
    auto created = CacheFactory::create(protections, config, *plane, clock, &parts);
    ASSERT_TRUE(created) << created.error().to_string();
    cache = *std::move(created);
  }

  // What a restart finds: the keys as one path, each behind the one before it, in slots from
  // `first_slot` on.
  DiskContents contents_of(const std::vector<BlockKey>& keys, uint32_t first_slot = 0) const {
    DiskContents contents;
    for (uint32_t i = 0; i < keys.size(); ++i) {
      DiskBlock block;
      block.slot = SlotId(first_slot + i);
      block.key = keys[i];
      block.sequence = i + 1;
      if (i > 0) {
        block.has_parent = true;
        block.parent = keys[i - 1];
      }
      contents.blocks.push_back(block);
    }
    return contents;
  }

  // A cache of config_ with a path that is on disk alone but for its first `in_host` blocks, which
  // are in the host tier too.
  void put_on_disk(const std::vector<BlockKey>& keys, uint32_t in_host = 0) {
    const CacheConfig config = config_;
    open_disk(config, path_disk_blocks, contents_of(keys), path_room);
    ASSERT_EQ(ready(keys), keys.size());
    if (in_host == 0) return;
    start_load(99, {keys.begin(), keys.begin() + in_host}, in_host);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(99)));
    ASSERT_EQ(count_on(Tier::kHost), in_host);
    plane->all.clear();
  }

  std::vector<BlockPlace> places(const std::vector<BlockKey>& keys) {
    std::vector<BlockPlace> places(keys.size());
    cache->match(keys, 0, places);
    return places;
  }
  uint32_t count_on(Tier tier) const {
    return static_cast<uint32_t>(cache->stats().tier_blocks[static_cast<size_t>(tier)]);
  }

  std::vector<BlockOp> ops(OpKind kind) const {
    std::vector<BlockOp> found;
    for (const BlockOp& op : plane->all) {
      if (op.kind == kind) found.push_back(op);
    }
    return found;
  }
  std::vector<BlockKey> keys_of(OpKind kind) const {
    std::vector<BlockKey> found;
    for (const BlockOp& op : ops(kind)) found.push_back(op.key);
    return found;
  }

  // The rank's disk has been given up, or is back.
  void set_disk(uint32_t rank, StoreCondition condition) {
    plane->rank_stats.resize(plane->rank_count());
    plane->rank_stats[rank].disk.condition = condition;
  }

  // Another path takes the host tier, so that what was there is on disk only.
  void fill_host(uint64_t request, uint32_t first_token = 100000) {
    store(request, test_keys(config_.host_blocks, first_token));
  }

  // A load that is started and expected to be of so many blocks.
  void start_load(uint64_t request, const std::vector<BlockKey>& keys, uint32_t blocks,
                  TimePoint deadline = kNoDeadline, uint32_t first_device_block = 0) {
    const auto started =
        cache->load(RequestId(request), keys, 0,
                    device(static_cast<uint32_t>(keys.size()), first_device_block), deadline);
    ASSERT_TRUE(started) << started.error().to_string();
    ASSERT_EQ(*started, blocks);
  }

  std::vector<WhySpan> why(uint64_t request) const {
    const WhyRecord* record = cache->why(RequestId(request));
    if (record == nullptr) return {};
    return {record->spans().begin(), record->spans().end()};
  }

  WhySpan first_why(uint64_t request) const {
    const auto spans = why(request);
    return spans.empty() ? WhySpan{} : spans.front();
  }
  WhySpan last_why(uint64_t request) const {
    const auto spans = why(request);
    return spans.empty() ? WhySpan{} : spans.back();
  }

  uint32_t path_disk_blocks = 64;  // of put_on_disk()
  size_t path_room = 4096;         // likewise, of the plane
  std::optional<SlotGeometry> disk_geometry;
  // The queue of a host tier as small as in tests is very short: off for tests of other things.
  bool bounds_puts = false;
};

}  // namespace tiercel
