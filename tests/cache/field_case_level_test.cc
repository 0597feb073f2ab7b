// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about levels, ranks and parts that do not all have the same.
#include <set>

#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

class FieldCaseLevel : public FieldCase {
 protected:
  // Objects of single ranks vanish from the store; all ranks must use the same leading blocks.
  std::string remove_at_random(uint32_t rounds, const Protections& protections = {}) {
    constexpr uint32_t kBlocks = 8;
    open_bytes(field_config(32, 4, true), 32, protections);
    checked_ = false;  // once a round is enough
    Random random(31);
    for (uint32_t round = 0; round < rounds; ++round) {
      const auto keys = salted_keys(config_.spec, kBlocks, round);
      store_bytes(1 + 3 * round, keys, 0);
      cache->clear();
      settle_bytes();
      uint32_t usable = kBlocks;
      // The first round is the case as it was told: block 5 of rank 2.
      for (uint64_t i = round == 0 ? 1 : random.below(4); i > 0; --i) {
        const auto block = round == 0 ? 5 : static_cast<uint32_t>(random.below(kBlocks));
        const auto rank = round == 0 ? 2 : static_cast<uint32_t>(random.below(4));
        remove_object(keys[block], GroupId(0), rank);
        usable = std::min(usable, block);
      }
      const RequestId id(2 + 3 * round);
      const auto started = cache->prefetch(id, keys, 0, kNoDeadline);
      if (!started || !*started) return "no prefetch";
      if (settle_bytes().at(0).blocks != usable) return "not the minimum over the ranks";
      const std::vector<BlockKey> head(keys.begin(), keys.begin() + usable);
      if (cache->load(id, keys, 0, device(kBlocks, 16), kNoDeadline) != usable) return "no load";
      settle_bytes();
      if (const auto wrong = wrong_bytes(head, 16); !wrong.empty()) return wrong;
      if (!cache->finish(id)) return "a lost request";
      settle_bytes();
      if (cache->stats().host_blocks != usable) return "parts without the others stay";
      if (const auto wrong = cache->check(true); !wrong.empty()) return wrong;
    }
    return "";
  }

  // Memory has `in_memory` blocks of a prompt of five, the store `in_store`.
  void put_onto(uint32_t in_memory, uint32_t in_store) {
    open(test_config(64, 1, true));
    const auto keys = test_keys(5);
    std::set<BlockKey> stored(keys.begin(), keys.begin() + in_store);
    bool full = true;  // while memory is being prepared
    size_t written = 0;
    const auto answer = [&] {
      for (int round = 0; round < 100; ++round) {
        const auto there = [&](const BlockOp& op, uint32_t) {
          return stored.contains(op.key) ? Code::kOk : Code::kNotFound;
        };
        plane->complete_all(OpKind::kStoreExists, there);
        plane->complete_all(OpKind::kStoreGet, there);
        plane->complete_all(OpKind::kStorePut, [&](const BlockOp& op, uint32_t) {
          if (stored.contains(op.key)) return Code::kOk;
          if (full) return Code::kNoSpace;
          stored.insert(op.key);
          ++written;
          return Code::kOk;
        });
        plane->complete_all(OpKind::kLoad);
        plane->complete_all(OpKind::kSave);
        poll();
        if (plane->open.empty() && cache->idle()) return;
      }
      FAIL() << "never came to rest";
    };
    const std::vector<BlockKey> head(keys.begin(), keys.begin() + in_memory);
    ASSERT_TRUE(cache->save(RequestId(1), head, 0, device(in_memory)));
    ASSERT_TRUE(cache->commit(RequestId(1), in_memory * 4));
    answer();
    ASSERT_TRUE(cache->finish(RequestId(1)));
    full = false;
    ASSERT_EQ(ready(keys), in_memory);
    plane->all.clear();
    ASSERT_TRUE(cache->prefetch(RequestId(2), keys, 0, kNoDeadline));
    answer();
    ASSERT_TRUE(cache->load(RequestId(2), keys, 0, device(5), kNoDeadline));
    answer();
    ASSERT_TRUE(cache->save(RequestId(2), keys, 0, device(5)));
    ASSERT_TRUE(cache->commit(RequestId(2), 20));
    answer();
    ASSERT_TRUE(cache->finish(RequestId(2)));
    answer();
    EXPECT_EQ(ready(keys), 5u);
    EXPECT_EQ(plane->count(OpKind::kSave), 5 - std::max(in_memory, in_store));
    EXPECT_EQ(stored.size(), 5u);
    EXPECT_EQ(written, 5 - in_store);
    EXPECT_EQ(cache->check(true), "");
  }

  // Parts of a block: main, index, scales, draft.
  static CacheConfig config_with_parts() {
    CacheConfig config = field_config(64, 1, true);
    config.spec.groups.resize(4);
    config.payload_bytes = {{500}, {160}, {64}, {300}};
    return config;
  }
};

// F31: the scheduler looked at rank 0 only; other ranks' parts had been removed.
TEST_F(FieldCaseLevel, F31AllRanksUseTheMinimum) { EXPECT_EQ(remove_at_random(1000), ""); }

TEST_F(FieldCaseLevel, F31WithoutAllRanksTheyDoNot) {
  EXPECT_NE(remove_at_random(1, without(&Protections::all_ranks)), "");
}

// F43: storing failed where memory had a longer part of the prefix than the level below.
TEST_F(FieldCaseLevel, F43BothLevelsEndWithEverythingAndNothingIsWrittenTwice) {
  for (uint32_t in_memory = 0; in_memory <= 4; ++in_memory) {
    for (uint32_t in_store = 0; in_store <= 4; ++in_store) {
      SCOPED_TRACE(::testing::Message() << in_memory << " in memory, " << in_store << " in store");
      ASSERT_NO_FATAL_FAILURE(put_onto(in_memory, in_store));
    }
  }
}

// F46: a side buffer was not restored and kept its old content.
TEST_F(FieldCaseLevel, F46EveryPartIsRestoredThroughEachLevel) {
  open_bytes(config_with_parts(), 64);
  const auto keys = test_keys(4);
  store_bytes(1, keys, 0);
  write_kv(test_keys(4, 1000), 16);  // what stood there before
  EXPECT_EQ(wrong_after_load(2, keys, 16), "");
  cache->clear();
  settle_bytes();
  write_kv(test_keys(4, 1000), 16);
  ASSERT_EQ(cache->prefetch(RequestId(3), keys, 0, kNoDeadline), true);
  EXPECT_EQ(settle_bytes().at(0).blocks, 4u);
  EXPECT_EQ(wrong_after_load(3, keys, 16), "");
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(FieldCaseLevel, F46AMissingPartIsAMissOfTheBlock) {
  for (uint8_t part = 0; part < 4; ++part) {
    for (uint32_t position = 0; position < 4; ++position) {
      SCOPED_TRACE(::testing::Message() << "part " << int{part} << " of block " << position);
      open_bytes(config_with_parts(), 64);
      const auto keys = test_keys(4);
      const std::vector<BlockKey> head(keys.begin(), keys.begin() + position);
      // Left out by the engine.
      write_kv(keys, 0);
      auto blocks = device(4);
      blocks[part * 4u + position] = kNoDeviceBlock;
      ASSERT_TRUE(cache->save(RequestId(1), keys, 0, blocks));
      ASSERT_TRUE(cache->commit(RequestId(1), 16));
      settle_bytes();
      ASSERT_TRUE(cache->finish(RequestId(1)));
      EXPECT_EQ(ready(keys), position);
      // All there, then left out by the store.
      store_bytes(2, keys, 0);
      EXPECT_EQ(ready(keys), 4u);
      cache->clear();
      settle_bytes();
      remove_object(keys[position], GroupId(part), 0);
      ASSERT_EQ(cache->prefetch(RequestId(3), keys, 0, kNoDeadline), true);
      EXPECT_EQ(settle_bytes().at(0).blocks, position);
      ASSERT_TRUE(cache->finish(RequestId(3)));
      settle_bytes();
      if (position > 0) {
        EXPECT_EQ(wrong_after_load(4, head, 16), "");
      }
      EXPECT_EQ(cache->check(true), "");
    }
  }
}

// F47: hits were promised that one kind of layer could not restore. Full attention, a window of
// three blocks, and a running state that is saved at some borders only (which is a window of one
// block).
TEST_F(FieldCaseLevel, F47ThePromisedCutCanBeRestoredInEveryGroup) {
  constexpr uint32_t kBlocks = 10;
  constexpr uint32_t kWindows[] = {kBlocks, 3, 1};  // blocks before a cut that it needs
  Random random(47);
  std::set<uint32_t> cuts;
  CacheConfig config = field_config(64);
  config.spec.groups.resize(3);
  config.spec.groups[1].attention = config.spec.groups[2].attention = AttentionKind::kWindow;
  config.spec.groups[1].window_tokens = 12;
  config.spec.groups[2].window_tokens = 5;
  config.payload_bytes = {{160}, {96}, {200}};
  open_bytes(config, 64);
  checked_ = false;  // once a round is enough
  const auto keys = test_keys(kBlocks);
  for (int round = 0; round < 300; ++round) {
    cache->clear();
    settle_bytes();
    bool saved[3][kBlocks] = {};
    const uint64_t full = random.below(kBlocks + 1);
    auto blocks = device(kBlocks);
    for (uint32_t group = 0; group < 3; ++group) {
      for (uint32_t i = 0; i < kBlocks; ++i) {
        saved[group][i] = group == 0 ? i < full : random.chance(group == 1 ? 0.8 : 0.4);
        if (!saved[group][i]) blocks[group * kBlocks + i] = kNoDeviceBlock;
      }
    }
    write_kv(keys, 0);
    ASSERT_TRUE(cache->save(RequestId(1), keys, 0, blocks));
    ASSERT_TRUE(cache->commit(RequestId(1), kBlocks * 4));
    settle_bytes();
    ASSERT_TRUE(cache->finish(RequestId(1)));
    poll();
    for (uint32_t length = 0; length <= kBlocks; ++length) {
      uint32_t deepest = 0;
      for (uint32_t cut = 1; cut <= length; ++cut) {
        bool usable = true;
        for (uint32_t group = 0; group < 3; ++group) {
          for (uint32_t i = cut - std::min(cut, kWindows[group]); i < cut; ++i) {
            usable = usable && saved[group][i];
          }
        }
        if (usable) deepest = cut;
      }
      const std::vector<BlockKey> head(keys.begin(), keys.begin() + length);
      ASSERT_EQ(ready(head), deepest) << "round " << round << " length " << length;
      cuts.insert(deepest);
      const RequestId id(10 + length);
      ASSERT_EQ(cache->load(id, head, 0, device(length, 32), kNoDeadline), deepest);
      const auto events = settle_bytes();
      ASSERT_EQ(events.size(), deepest > 0 ? 1u : 0u);
      ASSERT_TRUE(cache->finish(id));
      for (uint32_t group = 0; group < 3; ++group) {
        for (uint32_t i = deepest - std::min(deepest, kWindows[group]); i < deepest; ++i) {
          ASSERT_TRUE(
              holds_block(head[i], GroupId(static_cast<uint8_t>(group)), 32 + group * length + i));
        }
      }
    }
  }
  EXPECT_EQ(cuts.size(), kBlocks + 1) << "every depth was met";
}

// F48: a load began at the border below and wrote over blocks that the device already had, which
// others were reading; and a chunk that was not full was used.
TEST_F(FieldCaseLevel, F48ALoadWritesOnlyBehindWhatTheDeviceHas) {
  constexpr uint32_t kBlocks = 38;  // of 620 tokens at 16 a block
  CacheConfig config = field_config(64);
  config.spec.block_tokens = 16;
  open_bytes(config, 128);
  Sequence sequence(make_root(*make_namespace(config.spec), Scope{}), 16);
  sequence.append(std::vector<TokenId>(620, 3));
  const std::vector<BlockKey> keys(sequence.keys().begin(), sequence.keys().end());
  ASSERT_EQ(keys.size(), kBlocks);
  store_bytes(1, keys, 0);  // device blocks 0 to 37, which others read from now on
  for (uint32_t on_device = 0; on_device <= 37; ++on_device) {
    const uint32_t own = kBlocks - on_device;
    const RequestId id(2 + on_device);
    ASSERT_EQ(cache->match(keys, on_device).ready_blocks, kBlocks);
    ASSERT_EQ(cache->load(id, keys, on_device, device(own, 64), kNoDeadline), own);
    ranks[0]->take_picture();
    std::vector<testing::Range> allowed;
    while (!plane->open.empty()) {
      const uint32_t block = plane->open[0].op.device_block.value();
      ASSERT_GE(block, 64u);
      ASSERT_LT(block, 64 + own);
      allowed.push_back(ranks[0]->device_range(GroupId(0), block));
      carry_out(0);
    }
    ASSERT_EQ(allowed.size(), own);
    ASSERT_TRUE(ranks[0]->only_changed(allowed));
    ASSERT_EQ(poll().at(0).blocks, kBlocks);
    ASSERT_EQ(wrong_bytes(std::span(keys).subspan(on_device), 64), "");
    ASSERT_TRUE(cache->finish(id));
  }
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
