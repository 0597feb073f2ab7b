// SPDX-License-Identifier: Apache-2.0
//
// Objects of ours that somebody else has damaged in a Mooncake pool: never a wrong block, counted
// as corrupt, and replaced when the block is saved again, a bounded number of times.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/local_cache.h"

#include "cache/existence_table.h"
#include "cache/local_cache_run.h"
#include "support/mooncake_pool.h"

namespace tiercel {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kBlocks = 4;
constexpr uint32_t kHostBlocks = 32;
constexpr uint32_t kHostBlocksOfAll = 64;
constexpr uint32_t kDeviceBlocks = kHostBlocks;

// Python: what becomes of `values`, the objects of all keys.
constexpr struct {
  const char* name;
  const char* change;
} kDamages[] = {
    {"cut", "values = [value[:-100] for value in values]\n"},
    {"longer", "values = [value + b'x' for value in values]\n"},
    {"empty but for a byte", "values = [b'x' for value in values]\n"},
    {"zeroed", "values = [bytes(len(value)) for value in values]\n"},
    {"a bit of the payload", "values = [b'%c' % (value[0] ^ 1) + value[1:] for value in values]\n"},
    {"a bit of the frame",
     "values = [value[:-1] + b'%c' % (value[-1] ^ 128) for value in values]\n"},
    {"swapped", "values = values[1:] + values[:1]\n"},
};

// The size decides the way: small objects are copied, large ones are moved where they lie.
class MooncakeDamageTest : public ::testing::TestWithParam<size_t> {
 protected:
  std::unique_ptr<LocalCache> open(uint32_t host_blocks) {
    LocalCacheConfig config;
    config.cache.spec = byte_spec(kBlockTokens);
    config.cache.payload_bytes = {{block_bytes_}};
    config.cache.host_blocks = host_blocks;
    config.device_memory = {{std::span(device_)}};
    config.store_url = pool_->url();
    name_space_ = *make_namespace(config.cache.spec);
    Result<std::unique_ptr<LocalCache>> local = LocalCache::open(config, clock_);
    EXPECT_TRUE(local) << local.error().message();
    return local ? *std::move(local) : nullptr;
  }

  std::vector<BlockKey> keys(TokenId token, uint32_t count = kBlocks) const {
    Sequence sequence(make_root(name_space_, Scope{}), kBlockTokens);
    sequence.append(std::vector<TokenId>(count * kBlockTokens, token));
    return {sequence.keys().begin(), sequence.keys().end()};
  }

  std::span<std::byte> block(uint32_t index) {
    return std::span(device_).subspan(index * block_bytes_, block_bytes_);
  }
  std::vector<std::byte> content(TokenId token, uint32_t position) const {
    std::vector<std::byte> bytes(block_bytes_);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(token * 31 + position * 7 + i * 13);
    }
    return bytes;
  }

  static std::vector<DeviceBlockId> device_blocks(uint32_t first, uint32_t count) {
    std::vector<DeviceBlockId> blocks;
    for (uint32_t i = 0; i < count; ++i) blocks.emplace_back(first + i);
    return blocks;
  }

  // What an engine does that has computed them.
  void compute_and_save(LocalCache& local, TokenId token, uint32_t count = kBlocks) {
    const RequestId request(++last_request_);
    for (uint32_t i = 0; i < count; ++i) {
      std::ranges::copy(content(token, i), block(i).begin());
    }
    Cache& cache = local.cache();
    ASSERT_TRUE(cache.save(request, keys(token, count), 0, device_blocks(0, count)));
    ASSERT_TRUE(cache.commit(request, uint64_t{count} * kBlockTokens));
    run_until_idle(local);
    ASSERT_TRUE(cache.finish(request));
  }

  // Leading blocks that came from the pool, each with its own bytes.
  uint32_t fetch(LocalCache& local, TokenId token) {
    const RequestId request(++last_request_);
    Cache& cache = local.cache();
    const std::vector<BlockKey> keys = this->keys(token);
    EXPECT_TRUE(cache.prefetch(request, keys, 0, clock_.now() + std::chrono::seconds(30)));
    run_until_idle(local);
    const Result<uint32_t> started =
        cache.load(request, keys, 0, device_blocks(8, kBlocks), kNoDeadline);
    EXPECT_TRUE(started);
    const uint32_t loaded = started && *started > 0 ? run_until_idle(local) : 0;
    EXPECT_TRUE(cache.finish(request));
    for (uint32_t i = 0; i < loaded; ++i) {
      EXPECT_TRUE(std::ranges::equal(block(8 + i), content(token, i))) << "a wrong block " << i;
    }
    return loaded;
  }

  struct Damage {
    TokenId token = 0;
    std::string change;
  };
  void damage(const std::vector<Damage>& damages) {
    std::vector<std::string> names;
    std::string lines;
    for (const Damage& damage : damages) {
      lines += "some = keys[" + std::to_string(names.size()) + ":][:" + std::to_string(kBlocks) +
               "]\n"
               "values = [store.get(key) for key in some]\n"
               "assert all(values), 'nothing there'\n" +
               damage.change +
               "for key, value in zip(some, values):\n"
               "    assert store.remove(key, True) == 0\n"
               "    assert store.put_from(key, memory(value), len(value)) == 0\n";
      for (const BlockKey& key : keys(damage.token)) {
        names.emplace_back(ObjectKey(name_space_, GroupId(0), Slice{}, key).text());
      }
    }
    pool_->run_client(names, lines);
  }

  // So that what the host tier has does not hide what the pool has.
  void push_out_of_the_host_tier(LocalCache& local) {
    compute_and_save(local, ++last_filler_, kHostBlocks);
  }

  const SystemClock clock_;
  std::unique_ptr<testing::MooncakePool> pool_;
  const size_t block_bytes_ = GetParam();
  std::vector<std::byte> device_ = std::vector<std::byte>(kDeviceBlocks * block_bytes_);
  Namespace name_space_;
  uint64_t last_request_ = 0;
  TokenId last_filler_ = 1000;
};

INSTANTIATE_TEST_SUITE_P(Sizes, MooncakeDamageTest, ::testing::Values(5'000, 300'000));

TEST_P(MooncakeDamageTest, NoDamagedObjectIsEverABlockAndTheNextSaveReplacesIt) {
  TIERCEL_NEEDS_MOONCAKE();
  pool_ = testing::MooncakePool::start();
  if (pool_ == nullptr) return;
  const auto writer = open(kHostBlocksOfAll);
  ASSERT_NE(writer, nullptr);
  std::vector<Damage> damages;
  for (const auto& [name, change] : kDamages) {
    damages.push_back({static_cast<TokenId>(damages.size() + 1), change});
    compute_and_save(*writer, damages.back().token);
  }
  damage(damages);

  const auto reader = open(kHostBlocksOfAll);
  ASSERT_NE(reader, nullptr);
  std::vector<uint64_t> bad;
  for (const Damage& each : damages) {
    SCOPED_TRACE(kDamages[each.token - 1].name);
    const CacheStats before = reader->cache().stats();
    EXPECT_EQ(fetch(*reader, each.token), 0U);
    const CacheStats found = reader->cache().stats();
    bad.push_back(found.get_corrupt - before.get_corrupt);
    EXPECT_GT(bad.back(), 0U);
    EXPECT_EQ(found.get_failed - before.get_failed, bad.back());
    compute_and_save(*reader, each.token);
    const CacheStats saved = reader->cache().stats();
    EXPECT_EQ(saved.put_replaced - before.put_replaced, bad.back());
    EXPECT_EQ(saved.put_failed, 0U);
  }

  const auto next = open(kHostBlocksOfAll);
  ASSERT_NE(next, nullptr);
  for (size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(kDamages[i].name);
    EXPECT_EQ(fetch(*next, damages[i].token), bad[i]) << "what was found bad is whole again";
  }
}

// Whoever damages the same objects again and again is not fought for ever.
TEST_P(MooncakeDamageTest, AnObjectIsReplacedABoundedNumberOfTimes) {
  TIERCEL_NEEDS_MOONCAKE();
  pool_ = testing::MooncakePool::start();
  if (pool_ == nullptr) return;
  const auto local = open(kHostBlocks);
  ASSERT_NE(local, nullptr);
  constexpr TokenId kToken = 1;
  compute_and_save(*local, kToken);
  uint32_t rounds_with_replacement = 0;
  uint64_t replaced = 0;
  for (uint32_t round = 0; round < ExistenceTable::kReplacementsMax + 2U; ++round) {
    damage({{kToken, "values = [bytes(len(value)) for value in values]\n"}});
    push_out_of_the_host_tier(*local);
    EXPECT_EQ(fetch(*local, kToken), 0U);
    compute_and_save(*local, kToken);
    const uint64_t now = local->cache().stats().put_replaced;
    if (now > replaced) ++rounds_with_replacement;
    replaced = now;
  }
  EXPECT_EQ(rounds_with_replacement, ExistenceTable::kReplacementsMax);
}

}  // namespace
}  // namespace tiercel
