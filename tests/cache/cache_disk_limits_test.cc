// SPDX-License-Identifier: Apache-2.0
//
// Parts of a disk that cannot be used: places that fail again and again, and a file system that is
// full before the tier is.
#include <functional>
#include <set>

#include "cache/disk_cache_fixture.h"
#include "index/block_index.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

class CacheDiskLimits : public DiskCacheFixture {
 protected:
  using CodeOf = std::function<Code(const BlockOp&)>;

  // Saves a path of its own; its puts end as `code_of` says.
  void put(uint32_t blocks, const CodeOf& code_of) {
    const uint64_t request = ++requests_;
    save(request, keys_of_request(request, blocks));
    end_puts(code_of);
    ASSERT_TRUE(cache->finish(RequestId(request)));
    settle();
  }
  void save(uint64_t request, const std::vector<BlockKey>& keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    ASSERT_TRUE(cache->save(RequestId(request), keys, 0, device(count)));
    ASSERT_TRUE(cache->commit(RequestId(request), uint64_t{count} * 4));
    plane->complete_all(OpKind::kSave);
    poll();
  }
  void end_puts(const CodeOf& code_of) {
    plane->complete_all(OpKind::kDiskPut,
                        [&](const BlockOp& op, uint32_t /*rank*/) { return code_of(op); });
    poll();
  }
  // Loads a path whose blocks are on disk alone; its gets end as `code_of` says.
  void get(const std::vector<BlockKey>& keys, const CodeOf& code_of) {
    const uint64_t request = ++requests_;
    start_load(request, keys, static_cast<uint32_t>(keys.size()));
    plane->complete_all(OpKind::kDiskGet,
                        [&](const BlockOp& op, uint32_t /*rank*/) { return code_of(op); });
    poll();
    settle();
    ASSERT_TRUE(cache->finish(RequestId(request)));
  }
  static std::vector<BlockKey> keys_of_request(uint64_t request, uint32_t blocks) {
    return test_keys(blocks, static_cast<uint32_t>(request) * 1000);
  }
  std::vector<BlockKey> last_keys(uint32_t blocks) const {
    return keys_of_request(requests_, blocks);
  }
  bool is_on_disk(const BlockKey& key) const {
    const NodeId node = cache->index().find(key, GroupId(0));
    return node != kNoNode && cache->index().is_in(node, Tier::kDisk);
  }

  uint64_t requests_ = 0;
};

CacheConfig config_of(uint32_t host_blocks) {
  CacheConfig config = test_config(host_blocks);
  config.why_requests = 64;
  return config;
}

Code bad_slot_0(const BlockOp& op) {
  return op.disk_slot == SlotId(0) ? Code::kUnavailable : Code::kOk;
}

TEST_F(CacheDiskLimits, ASlotThatFailsAgainAndAgainIsNotUsedAnyMore) {
  open_disk(config_of(16), 8);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cache->stats().disk_slots_withdrawn, 0u);
    put(2, bad_slot_0);
  }
  EXPECT_EQ(first_why(requests_),
            (WhySpan{0, 1, WhyReason::kDiskSlotWithdrawn, Code::kUnavailable}));
  for (int i = 0; i < 20; ++i) put(2, bad_slot_0);
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.disk_put_failed, 3u);
  EXPECT_EQ(stats.disk_slots_withdrawn, 1u);
  EXPECT_EQ(stats.disk_slots_quarantined, 0u);
  EXPECT_EQ(stats.disk_slots_used, 7u);
  EXPECT_EQ(stats.disk_slots_free, 0u);
  EXPECT_EQ(stats.disk_slots_total, 8u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheDiskLimits, WithdrawnSlotsDoNotCountAsTransfersThatHang) {
  open_disk(config_of(16), 8);
  const auto bad = [](const BlockOp& op) {
    return op.disk_slot < SlotId(4) ? Code::kUnavailable : Code::kOk;
  };
  for (int i = 0; i < 20; ++i) put(5, bad);
  EXPECT_EQ(cache->stats().disk_slots_withdrawn, 4u);
  put(1, bad);
  EXPECT_TRUE(is_on_disk(last_keys(1)[0]));
}

TEST_F(CacheDiskLimits, ADiskThatFailsAsAWholeLosesNoSlots) {
  open_disk(config_of(16), 8);
  const auto none = [](const BlockOp&) { return Code::kUnavailable; };
  const auto all = [](const BlockOp&) { return Code::kOk; };
  for (int i = 0; i < 20; ++i) put(2, none);
  EXPECT_EQ(cache->stats().disk_slots_withdrawn, 0u);
  put(8, all);
  EXPECT_EQ(count_on(Tier::kDisk), 8u);
}

TEST_F(CacheDiskLimits, AFullDiskOrALateAnswerIsNoFaultOfTheSlot) {
  open_disk(config_of(16), 8);
  for (const Code code : {Code::kNoSpace, Code::kCancelled, Code::kNoSpace, Code::kCancelled,
                          Code::kNoSpace, Code::kCancelled}) {
    put(2, [&](const BlockOp& op) { return op.disk_slot == SlotId(0) ? code : Code::kOk; });
    clock.advance(1min);
  }
  EXPECT_EQ(cache->stats().disk_slots_withdrawn, 0u);
}

TEST_F(CacheDiskLimits, ABlockThatCannotBeReadAgainAndAgainIsForgotten) {
  const auto keys = test_keys(1);
  const auto others = test_keys(1, 500);
  DiskContents contents = contents_of(keys);
  const DiskContents more = contents_of(others, 1);
  contents.blocks.insert(contents.blocks.end(), more.blocks.begin(), more.blocks.end());
  CacheConfig config = config_of(4);
  config.host_to_disk = WritePolicy::kNone;
  open_disk(config, 8, std::move(contents));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ready(keys), 1u);
    get(keys, bad_slot_0);
    EXPECT_EQ(cache->stats().disk_get_failed, static_cast<uint64_t>(i) + 1);
    fill_host(++requests_, 10000 * static_cast<uint32_t>(i + 1));
    get(others, bad_slot_0);
    fill_host(++requests_, 10000 * static_cast<uint32_t>(i + 1) + 5000);
  }
  EXPECT_EQ(ready(keys), 0u);
  EXPECT_EQ(ready(others), 1u);
  EXPECT_EQ(cache->stats().disk_slots_withdrawn, 1u);
}

TEST_F(CacheDiskLimits, AReadThatGoesWellForgivesWhatWasBefore) {
  const auto keys = test_keys(1);
  open_disk(config_of(4), 8, contents_of(keys));
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(ready(keys), 1u);
    get(keys, [&](const BlockOp&) { return i % 2 == 0 ? Code::kUnavailable : Code::kOk; });
    fill_host(++requests_, 10000 * static_cast<uint32_t>(i + 1));
  }
  EXPECT_EQ(cache->stats().disk_slots_withdrawn, 0u);
  EXPECT_TRUE(is_on_disk(keys[0]));
}

// A sparse file takes space when a slot is written for the first time.
class CacheFullDisk : public CacheDiskLimits {
 protected:
  // So many slots have their space.
  CodeOf file_system(uint32_t slots) {
    return [this, slots](const BlockOp& op) {
      if (written_.size() < slots) written_.insert(op.disk_slot.value());
      return written_.contains(op.disk_slot.value()) ? Code::kOk : Code::kNoSpace;
    };
  }
  std::set<uint32_t> written_;
};

TEST_F(CacheFullDisk, NewBlocksTakeThePlaceOfTheOldestOfThoseThatHaveTheirSpace) {
  open_disk(config_of(16), 16);
  const CodeOf disk = file_system(6);
  for (int i = 0; i < 6; ++i) put(1, disk);
  put(1, disk);
  EXPECT_EQ(cache->stats().disk_put_no_space, 1u);
  EXPECT_FALSE(is_on_disk(last_keys(1)[0]));
  for (int i = 0; i < 30; ++i) {
    put(1, disk);
    ASSERT_TRUE(is_on_disk(last_keys(1)[0])) << i;
    ASSERT_EQ(count_on(Tier::kDisk), 6u) << i;
  }
  EXPECT_EQ(cache->stats().disk_put_no_space, 1u);
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(CacheFullDisk, FreeSlotsAreTriedAgainAfterAWhile) {
  open_disk(config_of(16), 16);
  for (int i = 0; i < 10; ++i) put(1, file_system(6));
  ASSERT_EQ(count_on(Tier::kDisk), 6u);
  clock.advance(1min);
  put(1, file_system(6));
  EXPECT_EQ(cache->stats().disk_put_no_space, 2u) << "still full";
  put(1, file_system(6));
  EXPECT_TRUE(is_on_disk(last_keys(1)[0]));
  clock.advance(1min);
  for (int i = 0; i < 10; ++i) put(1, file_system(16));
  EXPECT_EQ(cache->stats().disk_put_no_space, 2u);
  EXPECT_EQ(count_on(Tier::kDisk), 16u);
}

// A file system that copies on write has no room for writing over either; then blocks must not go
// one after the other for nothing.
TEST_F(CacheFullDisk, WhereWritingOverFailsTooNothingMoreGoesForIt) {
  open_disk(config_of(16), 16);
  for (int i = 0; i < 8; ++i) put(1, file_system(16));
  const auto none = [](const BlockOp&) { return Code::kNoSpace; };
  for (int i = 0; i < 20; ++i) put(1, none);
  EXPECT_EQ(count_on(Tier::kDisk), 7u);
  EXPECT_EQ(cache->stats().disk_put_failed, 2u);
  EXPECT_EQ(first_why(requests_), (WhySpan{0, 1, WhyReason::kDiskPutDropped, Code::kNoSpace}));
  clock.advance(1min);
  for (int i = 0; i < 4; ++i) put(1, file_system(16));
  EXPECT_EQ(count_on(Tier::kDisk), 11u);
}

TEST_F(CacheFullDisk, PlacesOfAnotherGroupAreNotLost) {
  CacheConfig config = config_of(32);
  config.spec.groups.resize(2);
  config.payload_bytes = {{64}, {8000}};
  open_disk(config, 8);
  const CodeOf disk = file_system(10);
  for (int i = 0; i < 40; ++i) put(1, disk);
  EXPECT_TRUE(is_on_disk(last_keys(1)[0]));
  EXPECT_EQ(count_on(Tier::kDisk), 10u);
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
