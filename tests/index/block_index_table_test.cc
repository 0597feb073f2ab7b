// SPDX-License-Identifier: Apache-2.0
#include "index/block_index_table.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

constexpr uint32_t kCapacity = 200;

struct TestTable {
  std::vector<BlockIndexTable::Bucket> buckets =
      std::vector<BlockIndexTable::Bucket>(BlockIndexTable::bucket_count_for(kCapacity));
  BlockIndexTable table{buckets, 1};
};

TEST(BlockIndexTable, AgreesWithAMultimapAlsoWhereHashesAreEqual) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Random random(seed);
    TestTable t;
    // Few hashes: long runs through neighbouring buckets, round the end of the table too.
    std::vector<uint64_t> hashes = {0, UINT64_MAX, 0x100, UINT64_MAX - 0xff};
    for (uint32_t i = 0; i < 20; ++i) hashes.push_back(random.next());
    std::map<uint32_t, uint64_t> hash_of_node;
    for (uint32_t step = 0; step < 20'000; ++step) {
      const auto node = static_cast<uint32_t>(random.below(2 * kCapacity));
      const auto at = hash_of_node.find(node);
      if (at != hash_of_node.end()) {
        t.table.erase(at->second, node);
        hash_of_node.erase(at);
      } else if (hash_of_node.size() < kCapacity) {
        const uint64_t hash = hashes[random.below(hashes.size())];
        t.table.insert(hash, node);
        hash_of_node[node] = hash;
      }
      const auto probe = static_cast<uint32_t>(random.below(2 * kCapacity));
      const auto expected = hash_of_node.find(probe);
      const uint64_t hash =
          expected == hash_of_node.end() ? hashes[random.below(hashes.size())] : expected->second;
      ASSERT_EQ(t.table.find(hash, [&](uint32_t n) { return n == probe; }),
                expected == hash_of_node.end() ? BlockIndexTable::kNone : probe);
    }
    while (!hash_of_node.empty()) {
      t.table.erase(hash_of_node.begin()->second, hash_of_node.begin()->first);
      hash_of_node.erase(hash_of_node.begin());
    }
    for (const auto& bucket : t.buckets) {
      ASSERT_EQ(bucket.passed_count, 0u) << "an empty table is as good as new";
      ASSERT_EQ(bucket.entries_with_tag(0), 0xfffu);
    }
  }
}

TEST(BlockIndexTable, AMissThatNobodyPassedByIsFinalAtTheFirstLook) {
  TestTable t;
  t.table.insert(5, 1);
  EXPECT_EQ(t.table.first_look(5).candidate, 1u);
  EXPECT_EQ(t.table.first_look(6).candidate, BlockIndexTable::kNone);
  EXPECT_TRUE(t.table.first_look(6).final_miss);
  for (uint32_t node = 2; node <= 13; ++node) t.table.insert(5, node);
  EXPECT_FALSE(t.table.first_look(6).final_miss);
}

TEST(BlockIndexTable, TheHashDependsOnSeedAndGroup) {
  std::vector<BlockIndexTable::Bucket> buckets(4);
  const BlockIndexTable a(buckets, 1);
  const BlockIndexTable b(buckets, 2);
  BlockKey key;
  key.bytes[0] = std::byte{1};
  EXPECT_NE(a.hash(key, GroupId(0)), b.hash(key, GroupId(0)));
  EXPECT_NE(a.hash(key, GroupId(0)), a.hash(key, GroupId(1)));
}

TEST(BlockIndexTable, KeysThatDifferInOneBitSpreadOverTheBuckets) {
  std::vector<BlockIndexTable::Bucket> buckets(100);
  const BlockIndexTable table(buckets, 3);
  std::vector<uint32_t> filled(buckets.size(), 0);
  for (uint32_t i = 0; i < 10'000; ++i) {
    BlockKey key;
    key.bytes[0] = static_cast<std::byte>(i & 255);
    key.bytes[1] = static_cast<std::byte>(i >> 8);
    ++filled[table.home(table.hash(key, GroupId(0)))];
  }
  for (const uint32_t count : filled) {
    EXPECT_GT(count, 40u);
    EXPECT_LT(count, 180u);
  }
}

}  // namespace
}  // namespace tiercel
