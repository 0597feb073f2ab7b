// SPDX-License-Identifier: Apache-2.0
//
// For cases from the field: a cache over a FakeDataPlane whose operations a test may also carry out
// for real, one by one and in any order, on rank workers with small memory. So every barrier is a
// line of the test, and every byte can be compared with what the block's key says it must be.
//
// A race case is written as a function that returns what went wrong: it is run once as it is, and
// once more with the protection removed, where something must go wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tiercel/local_cache.h"

#include "cache/cache_fixture.h"
#include "cache/host_geometry.h"
#include "cache/protections.h"
#include "cache/request_table.h"
#include "store/registry.h"
#include "transfer/rank_fixture.h"

namespace tiercel {

inline constexpr uint64_t kPartBytes = 160;

inline CacheConfig field_config(uint32_t host_blocks, uint32_t ranks = 1, bool with_store = false) {
  CacheConfig config = test_config(host_blocks, ranks, with_store);
  config.payload_bytes = {std::vector<uint64_t>(ranks, kPartBytes)};
  return config;
}

inline Protections without(bool Protections::*protection) {
  Protections protections;
  protections.*protection = false;
  return protections;
}

// Keys of a sequence that no other salt shares anything with.
inline std::vector<BlockKey> salted_keys(const KvSpec& spec, uint32_t blocks, uint32_t salt) {
  Sequence sequence(make_root(*make_namespace(spec), Scope{}), spec.block_tokens);
  std::vector<TokenId> tokens(size_t{blocks} * spec.block_tokens, 7);
  if (!tokens.empty()) tokens.front() = salt;
  sequence.append(tokens);
  return {sequence.keys().begin(), sequence.keys().end()};
}

// Oracle bytes: they begin and end with the block's key, so that a foreign, old, mixed or cut block
// differs from them.
inline void fill_oracle(std::span<std::byte> out, const BlockKey& key, GroupId group,
                        uint32_t rank) {
  uint64_t seed = 0;
  std::memcpy(&seed, key.bytes.data(), sizeof(seed));
  testing::fill_random(out, seed ^ (uint64_t{group.value()} << 32) ^ rank);
  std::copy(key.bytes.begin(), key.bytes.end(), out.begin());
  std::copy(key.bytes.begin(), key.bytes.end(), out.end() - sizeof(key.bytes));
}

class FieldCase : public CacheFixture {
 protected:
  void open(const CacheConfig& config, size_t capacity = 4096) {
    counters_ = {};
    checked_ = true;
    CacheFixture::open(config, capacity);
  }
  void open_bytes(const CacheConfig& config, uint32_t device_blocks,
                  const Protections& protections = {}, bool verify = true) {
    const SlotGeometry geometry = host_geometry(config).value();
    config_ = config;
    checked_ = protections.all_ranks && protections.commit_gate && protections.device_release &&
               protections.load_holds && protections.publish_when_done && protections.quarantine;
    counters_ = {};
    cache.reset();
    workers.clear();
    ranks.clear();
    registry = make_store_registry();
    for (uint32_t rank = 0; rank < geometry.rank_count(); ++rank) {
      ranks.push_back(std::make_unique<testing::TestRank>(geometry, rank, device_blocks));
      RankWorkerOptions options = ranks.back()->options();
      options.name_space = *make_namespace(config.spec);
      options.verify = verify;
      std::unique_ptr<Store> store;
      if (config.with_store) store = registry->open("memory:", StoreContext{clock}).value();
      workers.push_back(ranks.back()->make_worker(std::move(store), clock, options));
    }
    plane = std::make_unique<FakeDataPlane>(geometry.rank_count());
    cache = CacheFactory::create(protections, config, *plane, clock).value();
  }

  // What is counted from now on is another cache's.
  void forget_counters() { counters_ = {}; }

  // A poll; with all protections on also the invariants, and that no counter falls.
  std::vector<CacheEvent> poll() {
    std::vector<CacheEvent> events(256);
    events.resize(cache->poll(events));
    if (!checked_) return events;
    EXPECT_EQ(cache->check(false), "");
    const CacheStats stats = cache->stats();
    std::array<uint64_t, kCounterCount> counters;
    std::memcpy(counters.data(), &stats, sizeof(counters));
    for (size_t i = 0; i < kCounterCount; ++i) EXPECT_GE(counters[i], counters_[i]) << i;
    counters_ = counters;
    return events;
  }

  // Carries out one open operation, as one that had begun in time, and says how it ended.
  void carry_out(size_t index) {
    BlockOp op = plane->open[index].op;
    op.deadline_ns = INT64_MAX;
    plane->complete(index, testing::run_op(*workers[plane->open[index].rank], op));
  }
  void carry_out_all(OpKind kind) {
    for (size_t i = 0; i < plane->open.size();) {
      if (plane->open[i].op.kind == kind) {
        carry_out(i);
      } else {
        ++i;
      }
    }
  }
  // Everything, until nothing moves.
  std::vector<CacheEvent> settle_bytes() {
    std::vector<CacheEvent> events;
    for (int round = 0; round < 1000; ++round) {
      while (!plane->open.empty()) carry_out(0);
      const auto some = poll();
      events.insert(events.end(), some.begin(), some.end());
      if (plane->open.empty() && cache->idle()) return events;
    }
    ADD_FAILURE() << "never came to rest";
    return events;
  }

  // Position i of group g stands in device block first + g × count + i, as device(count, first)
  // says.
  void write_kv(std::span<const BlockKey> keys, uint32_t first) {
    for_each_part(keys, first, [&](const BlockKey& key, GroupId group, uint32_t block) {
      write_block(key, group, block);
    });
  }
  void write_block(const BlockKey& key, GroupId group, uint32_t block) {
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      fill_oracle(ranks[rank]->device_block(group, block), key, group, rank);
    }
  }
  std::string wrong_bytes(std::span<const BlockKey> keys, uint32_t first) {
    std::string wrong;
    for_each_part(keys, first, [&](const BlockKey& key, GroupId group, uint32_t block) {
      if (wrong.empty() && !holds_block(key, group, block)) {
        wrong = "device block " + std::to_string(block) + " of group " +
                std::to_string(group.value()) + " does not hold its block";
      }
    });
    return wrong;
  }
  bool holds_block(const BlockKey& key, GroupId group, uint32_t block) {
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      const auto actual = ranks[rank]->device_block(group, block);
      std::vector<std::byte> expected(actual.size());
      fill_oracle(expected, key, group, rank);
      if (!std::equal(actual.begin(), actual.end(), expected.begin())) return false;
    }
    return true;
  }

  // One request computes the blocks and stores them.
  void store_bytes(uint64_t request, const std::vector<BlockKey>& keys, uint32_t first) {
    write_kv(keys, first);
    declare(request, keys, first);
    settle_bytes();
    EXPECT_TRUE(cache->finish(RequestId(request)));
    settle_bytes();
  }
  // Says that the device blocks from `first` on hold these blocks.
  void declare(uint64_t request, const std::vector<BlockKey>& keys, uint32_t first) {
    const auto count = static_cast<uint32_t>(keys.size());
    EXPECT_TRUE(cache->save(RequestId(request), keys, 0, device(count, first)));
    EXPECT_TRUE(cache->commit(RequestId(request), uint64_t{count} * config_.spec.block_tokens));
  }
  // A request of its own loads all of the blocks; what is wrong with what arrived.
  std::string wrong_after_load(uint64_t request, const std::vector<BlockKey>& keys,
                               uint32_t first) {
    const auto count = static_cast<uint32_t>(keys.size());
    const auto started =
        cache->load(RequestId(request), keys, 0, device(count, first), kNoDeadline);
    if (!started || *started != count) return "not all blocks can be loaded";
    const auto events = settle_bytes();
    EXPECT_TRUE(cache->finish(RequestId(request)));
    if (events.size() != 1 || events[0].blocks != count || events[0].code != Code::kOk) {
      return "the load did not end well";
    }
    return wrong_bytes(keys, first);
  }

  // Removes one part of a block from the store, behind the cache's back.
  void remove_object(const BlockKey& key, GroupId group, uint32_t rank) {
    auto store = registry->open("memory:", StoreContext{clock}).value();
    const Slice slice{static_cast<uint16_t>(rank), static_cast<uint16_t>(ranks.size())};
    const ObjectKey object(*make_namespace(config_.spec), group, slice, key);
    ASSERT_TRUE(store->submit_remove({&object, 1}, kNoDeadline));
    std::vector<StoreCompletion> completions;
    ASSERT_EQ(store->poll(&completions), 1u);
    ASSERT_EQ(completions[0].codes[0], Code::kOk);
  }

  std::shared_ptr<StoreRegistry> registry;
  std::vector<std::unique_ptr<testing::TestRank>> ranks;
  std::vector<std::unique_ptr<RankWorker>> workers;
  bool checked_ = true;

 private:
  // CacheStats begins with its counters; `requests` is the first gauge.
  static constexpr size_t kCounterCount = offsetof(CacheStats, requests) / sizeof(uint64_t);

  template <typename Visit>
  void for_each_part(std::span<const BlockKey> keys, uint32_t first, Visit&& visit) {
    uint32_t block = first;
    for (uint8_t group = 0; group < config_.spec.groups.size(); ++group) {
      for (const BlockKey& key : keys) visit(key, GroupId(group), block++);
    }
  }

  std::array<uint64_t, kCounterCount> counters_{};
};

}  // namespace tiercel
