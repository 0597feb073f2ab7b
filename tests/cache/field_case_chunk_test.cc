// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about prompts that are computed in pieces: nothing is stored before it has
// been computed, and everything that has been computed is stored.
#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

class FieldCaseChunk : public FieldCase {
 protected:
  // The engine writes blocks in pieces while their save is declared already; the copies run at any
  // time between. What was stored is compared with what should have been computed.
  std::string store_while_computing(uint32_t rounds, const Protections& protections = {}) {
    constexpr uint32_t kBlocks = 2;
    open_bytes(field_config(16), 8, protections);
    Random random(9);
    for (uint32_t round = 0; round < rounds; ++round) {
      const RequestId id(1 + round % 7);
      const auto keys = salted_keys(config_.spec, kBlocks, round);
      if (!cache->save(id, keys, 0, device(kBlocks))) return "the save was refused";
      for (uint32_t block = 0; block < kBlocks; ++block) {
        std::vector<std::byte> kv(kPartBytes);
        fill_oracle(kv, keys[block], GroupId(0), 0);
        for (size_t piece = 0; piece < kPartBytes; piece += kPartBytes / 8) {
          std::copy_n(
              kv.begin() + static_cast<ptrdiff_t>(piece), kPartBytes / 8,
              ranks[0]->device_block(GroupId(0), block).begin() + static_cast<ptrdiff_t>(piece));
          if (random.chance(0.1)) (void)cache->commit(id, block * 4 + piece * 4 / kPartBytes);
          if (!plane->open.empty() && random.chance(0.3)) carry_out(0);
          if (random.chance(0.1)) (void)cache->poll({});
        }
      }
      if (!cache->commit(id, kBlocks * 4)) return "the commit was refused";
      drain();
      if (!cache->finish(id)) return "the request is not known";
      if (ready(keys) != kBlocks) return "a computed block is not stored";
      if (!cache->load(id, keys, 0, device(kBlocks, 4), kNoDeadline)) return "no load";
      drain();
      if (!cache->finish(id)) return "the request is not known";
      if (const auto wrong = wrong_bytes(keys, 4); !wrong.empty()) return wrong;
    }
    return cache->check(true);
  }

  // As settle_bytes(), without a look at every invariant.
  void drain() {
    CacheEvent events[8];
    do {
      while (!plane->open.empty()) carry_out(0);
      (void)cache->poll(events);
    } while (!plane->open.empty() || !cache->idle());
  }

  static constexpr size_t kTokenBytes = kPartBytes / 4;

  // KV of a token: of everything up to it.
  static void write_token(std::span<std::byte> out, std::span<const TokenId> tokens) {
    uint64_t state = tokens.size();
    for (const TokenId token : tokens) state = (state ^ token) * 0x9e3779b97f4a7c15u;
    testing::fill_random(out, state);
  }
  std::span<std::byte> token_slot(size_t token) {
    return ranks[0]
        ->device_block(GroupId(0), static_cast<uint32_t>(token / 4))
        .subspan(token % 4 * kTokenBytes, kTokenBytes);
  }

  // Speculative decoding: each step computes the newest token and some drafts, of which a random
  // number is accepted. A block's key is known before its last token has KV.
  std::string speculate(uint32_t drafts, uint64_t seed) {
    Random random(seed);
    const RequestId id(1);
    std::vector<TokenId> tokens;  // accepted; the newest has no KV
    Sequence sequence(make_root(*make_namespace(config_.spec), Scope{}), 4);
    const auto accept = [&](TokenId token) {
      tokens.push_back(token);
      sequence.append({&token, 1});
    };
    size_t computed = 0;
    const auto compute = [&](std::span<const TokenId> sequence_so_far) {
      write_token(token_slot(sequence_so_far.size() - 1), sequence_so_far);
    };
    for (size_t i = random.between(5, 40); i > 0; --i) {
      accept(static_cast<TokenId>(random.below(50000)));
    }
    for (; computed + 1 < tokens.size(); ++computed) compute(std::span(tokens).first(computed + 1));
    size_t declared = 0;
    while (tokens.size() < 100) {
      std::vector<TokenId> tried = tokens;
      compute(tried);
      for (uint32_t draft = 0; draft < drafts; ++draft) {
        tried.push_back(static_cast<TokenId>(random.below(50000)));
        compute(tried);
      }
      const size_t accepted = tokens.size() + random.below(drafts + 1);
      computed = accepted;
      for (size_t i = tokens.size(); i < accepted; ++i) accept(tried[i]);
      accept(static_cast<TokenId>(random.below(50000)));  // sampled behind the accepted ones
      const auto keys = sequence.keys();
      std::vector<DeviceBlockId> blocks;
      for (size_t i = declared; i < keys.size(); ++i) {
        blocks.emplace_back(static_cast<uint32_t>(i));
      }
      if (!cache->save(id, keys, static_cast<uint32_t>(declared), blocks)) return "no save";
      declared = keys.size();
      if (!plane->open.empty() && random.chance(0.5)) carry_out(0);
      if (!cache->commit(id, computed)) return "no commit";
      if (!plane->open.empty() && random.chance(0.5)) carry_out(0);
      if (random.chance(0.5)) poll();
    }
    settle_bytes();
    if (!cache->finish(id)) return "the request is not known";
    poll();
    const auto full = static_cast<uint32_t>(computed / 4);
    const auto keys = sequence.keys().first(full);
    if (cache->match(sequence.keys(), 0).ready_blocks != full) {
      return "not exactly the blocks with all their KV are stored";
    }
    const auto started = cache->load(RequestId(2), keys, 0, device(full, 32), kNoDeadline);
    if (!started || *started != full) return "no load";
    settle_bytes();
    for (size_t token = 0; token < full * 4; ++token) {
      std::vector<std::byte> kv(kTokenBytes);
      write_token(kv, std::span(tokens).first(token + 1));
      const auto loaded = token_slot(32 * 4 + token);
      if (!std::equal(kv.begin(), kv.end(), loaded.begin())) {
        return "token " + std::to_string(token) + " has foreign KV";
      }
    }
    if (!cache->finish(RequestId(2))) return "the request is not known";
    poll();
    return cache->check(true);
  }
};

// F09: the stored copy of a block was taken before the block was finished. (On a GPU the engine's
// commit has to wait for its stream as well; there is no such copier yet.)
TEST_F(FieldCaseChunk, F09AStoredBlockIsWholeWheneverTheCopyRuns) {
  EXPECT_EQ(store_while_computing(10'000), "");
}

TEST_F(FieldCaseChunk, F09WithoutTheCommitGateHalfABlockIsStored) {
  EXPECT_NE(store_while_computing(100, without(&Protections::commit_gate)), "");
}

// F09 with a rank thread that copies as fast as it can beside the thread that computes.
TEST(FieldCaseChunkThreads, F09AStoredBlockIsWholeBesideARealCopier) {
  constexpr uint32_t kBlocks = 2;
  const SystemClock clock;
  LocalCacheConfig config;
  config.cache = field_config(16);
  config.huge_pages = false;
  std::vector<std::byte> memory(8 * kPartBytes);
  config.device_memory = {{std::span(memory)}};
  auto local = LocalCache::open(config, clock);
  ASSERT_TRUE(local) << local.error().to_string();
  Cache& cache = (*local)->cache();
  const auto block_at = [&](uint32_t block) {
    return std::span(memory).subspan(block * kPartBytes, kPartBytes);
  };
  const auto settle = [&] {
    CacheEvent events[8];
    for (int i = 0; i < 10'000 && !cache.idle(); ++i) {
      if (cache.poll(events) == 0 && !cache.idle()) (*local)->wait(std::chrono::milliseconds(1));
    }
    (void)cache.poll(events);
  };
  const std::vector<DeviceBlockId> written = {DeviceBlockId(0), DeviceBlockId(1)};
  const std::vector<DeviceBlockId> loaded = {DeviceBlockId(4), DeviceBlockId(5)};
  for (uint32_t round = 0; round < 2000; ++round) {
    const RequestId id(round);
    const auto keys = salted_keys(config.cache.spec, kBlocks, round);
    ASSERT_TRUE(cache.save(id, keys, 0, written));
    std::vector<std::byte> kv(kPartBytes);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      fill_oracle(kv, keys[block], GroupId(0), 0);
      for (size_t piece = 0; piece < kPartBytes; ++piece) block_at(block)[piece] = kv[piece];
      ASSERT_TRUE(cache.commit(id, (block + 1) * 4));
    }
    settle();
    ASSERT_TRUE(cache.finish(id));
    ASSERT_EQ(cache.load(id, keys, 0, loaded, kNoDeadline), kBlocks);
    settle();
    ASSERT_TRUE(cache.finish(id));
    for (uint32_t block = 0; block < kBlocks; ++block) {
      fill_oracle(kv, keys[block], GroupId(0), 0);
      ASSERT_TRUE(std::equal(kv.begin(), kv.end(), block_at(4 + block).begin())) << round;
    }
  }
  EXPECT_EQ(cache.check(true), "");
  EXPECT_TRUE((*local)->close(std::chrono::seconds(5)));
}

// F44: with chunked prefill fewer blocks were stored than the prompts hold, by the token budget.
TEST_F(FieldCaseChunk, F44EveryStepBudgetStoresAllWholeBlocksOnce) {
  CacheConfig config = test_config(32);
  config.spec.block_tokens = 16;
  open(config);
  uint32_t salt = 0;
  for (uint32_t budget = 1; budget <= 64; ++budget) {
    for (uint32_t length = 1; length <= 200; ++length) {
      const uint32_t blocks = length / 16;
      const auto keys = salted_keys(config.spec, blocks, ++salt);
      const RequestId id(salt);
      const bool early = salt % 2 == 0;
      if (early) {
        ASSERT_TRUE(cache->save(id, keys, 0, device(blocks)));
      }
      uint32_t declared = 0;
      for (uint32_t done = 0; done < length;) {
        done = std::min(length, done + budget);
        if (!early) {
          const uint32_t full = done / 16;
          ASSERT_TRUE(cache->save(id, keys, declared, device(full - declared, declared)));
          declared = full;
        }
        ASSERT_TRUE(cache->commit(id, done));
        if (done % 3 == 0) {
          plane->complete_all(OpKind::kSave);
          (void)cache->poll({});
        }
      }
      plane->complete_all(OpKind::kSave);
      (void)cache->poll({});
      ASSERT_TRUE(cache->finish(id));
      ASSERT_EQ(cache->match(keys, 0).ready_blocks, blocks) << budget << " " << length;
      ASSERT_EQ(plane->count(OpKind::kSave), blocks) << budget << " " << length;
      plane->all.clear();
    }
    ASSERT_EQ(cache->check(true), "");
  }
}

// F45: with speculative decoding prefixes were almost never found again.
TEST_F(FieldCaseChunk, F45AcceptedTokensAreStoredWithoutHolesAndWithoutRejectedOnes) {
  open_bytes(field_config(64), 64);
  checked_ = false;  // once a run is enough
  for (const uint32_t drafts : {0u, 1u, 5u}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      ASSERT_EQ(speculate(drafts, 100 * drafts + seed), "") << drafts << " drafts, seed " << seed;
    }
  }
}

TEST_F(FieldCaseChunk, F45WithoutTheCommitGateTheNewestTokenIsStoredWithoutItsKv) {
  open_bytes(field_config(64), 64, without(&Protections::commit_gate));
  EXPECT_NE(speculate(1, 1), "");
}

// F49: what a request had left at its end was not stored; bytes were stored and never found.
TEST_F(FieldCaseChunk, F49EverythingComputedIsFoundAfterTheRequestHasEnded) {
  open(test_config(64), 8);  // the ring takes six blocks at a time
  for (uint32_t repeat = 0; repeat < 100; ++repeat) {
    const RequestId id(1 + 2 * repeat);
    const auto keys = salted_keys(config_.spec, 40, repeat);
    for (uint32_t done = 0; done < 163;) {  // forty blocks and three tokens
      const uint32_t first = done / 4;
      done = std::min(163u, done + 16);
      ASSERT_TRUE(cache->save(id, keys, first, device(done / 4 - first, first)));
      ASSERT_TRUE(cache->commit(id, done));
    }
    const auto farewell = cache->finish(id);
    ASSERT_TRUE(farewell);
    ASSERT_TRUE(farewell->device_busy);
    const auto events = settle();
    ASSERT_EQ(events.size(), 1u);
    ASSERT_EQ(events[0].kind, EventKind::kDeviceReleased);
    ASSERT_EQ(events[0].generation, farewell->generation);
    ASSERT_EQ(cache->stats().save_blocks, 40u * (repeat + 1));
    ASSERT_EQ(ready(keys), 40u) << "bytes are stored that no look-up finds";
    ASSERT_EQ(cache->load(RequestId(id.value() + 1), keys, 0, device(8), kNoDeadline), 8u);
    settle();
    ASSERT_TRUE(cache->finish(RequestId(id.value() + 1)));
    ASSERT_EQ(cache->stats().load_blocks, 8u * (repeat + 1)) << "hits grow with what is stored";
  }
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
