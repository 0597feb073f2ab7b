// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about calls that make no sense.
#include <functional>

#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

class FieldCaseBadCall : public FieldCase {
 protected:
  // Two groups; request 1 has stored three blocks, request 2 has loaded and holds them.
  void SetUp() override {
    CacheConfig config = field_config(32, 1, true);
    config.spec.groups.resize(2);
    config.payload_bytes = {{160}, {96}};
    open_bytes(config, 32);
    store_bytes(1, keys_, 0);
    ASSERT_EQ(cache->load(RequestId(2), keys_, 0, device(3, 8), kNoDeadline), 3u);
    settle_bytes();
  }

  // Everything that can be read of the cache, but for what counts the calls themselves.
  std::vector<uint64_t> snapshot() const {
    CacheStats stats = cache->stats();
    stats.matches = stats.unknown_requests = 0;
    std::vector<uint64_t> words(offsetof(CacheStats, store) / sizeof(uint64_t));
    std::memcpy(words.data(), &stats, words.size() * sizeof(uint64_t));
    return words;
  }

  const std::vector<BlockKey> keys_ = test_keys(3);
  const RequestId nobody_{99};
};

// F42: now and then an empty list arrived, and an assertion stopped the engine.
TEST_F(FieldCaseBadCall, F42ListsThatDoNotAgreeAreRefusedBeforeAnythingChanges) {
  const struct {
    const char* what;
    std::function<Code()> call;
    Code code;
  } calls[] = {
      {"load, not a multiple of the groups",
       [&] {
         return cache->load(nobody_, keys_, 0, std::vector(5, DeviceBlockId(1)), kNoDeadline)
             .code();
       },
       Code::kInvalid},
      {"load, more computed than keys",
       [&] { return cache->load(nobody_, keys_, 4, device(1), kNoDeadline).code(); },
       Code::kInvalid},
      {"load, more computed than no keys",
       [&] { return cache->load(nobody_, {}, 1, {}, kNoDeadline).code(); }, Code::kInvalid},
      {"prefetch, more computed than keys",
       [&] { return cache->prefetch(nobody_, keys_, UINT32_MAX, kNoDeadline).code(); },
       Code::kInvalid},
      {"save, not a multiple of the groups",
       [&] { return cache->save(nobody_, keys_, 0, std::vector(5, DeviceBlockId(1))).code(); },
       Code::kInvalid},
      {"save, blocks behind the keys",
       [&] { return cache->save(nobody_, keys_, 2, device(2)).code(); }, Code::kInvalid},
      {"save, first block behind the keys",
       [&] { return cache->save(nobody_, keys_, 4, {}).code(); }, Code::kInvalid},
      {"save, first block far behind the keys",
       [&] { return cache->save(nobody_, keys_, UINT32_MAX, device(2)).code(); }, Code::kInvalid},
      {"save, blocks without keys", [&] { return cache->save(nobody_, {}, 0, device(1)).code(); },
       Code::kInvalid},
      {"commit of nobody", [&] { return cache->commit(nobody_, 4).code(); }, Code::kNotFound},
      {"finish of nobody", [&] { return cache->finish(nobody_).code(); }, Code::kNotFound},
      {"abort of nobody", [&] { return cache->abort(nobody_).code(); }, Code::kNotFound},
  };
  for (const auto& call : calls) {
    const auto before = snapshot();
    EXPECT_EQ(call.call(), call.code) << call.what;
    EXPECT_EQ(snapshot(), before) << call.what;
    EXPECT_TRUE(poll().empty()) << call.what;
  }
  EXPECT_EQ(cache->stats().unknown_requests, 3u);
  EXPECT_EQ(wrong_after_load(3, keys_, 16), "");
}

TEST_F(FieldCaseBadCall, F42EmptyListsAreNoWork) {
  EXPECT_EQ(cache->match({}, 0).possible_blocks, 0u);
  EXPECT_EQ(cache->match({}, 7).possible_blocks, 0u);
  const size_t submitted = plane->all.size();
  EXPECT_EQ(cache->prefetch(nobody_, {}, 0, kNoDeadline), false);
  EXPECT_EQ(cache->load(nobody_, {}, 0, {}, kNoDeadline), 0u);
  EXPECT_EQ(cache->load(nobody_, keys_, 0, {}, kNoDeadline), 0u);
  EXPECT_TRUE(cache->save(nobody_, {}, 0, {}));
  EXPECT_TRUE(cache->save(nobody_, keys_, 3, {}));
  EXPECT_TRUE(cache->commit(nobody_, 0));
  EXPECT_TRUE(cache->commit(nobody_, UINT64_MAX));
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(plane->all.size(), submitted);
  ASSERT_TRUE(cache->finish(nobody_));
  ASSERT_TRUE(cache->finish(RequestId(2)));
  EXPECT_EQ(cache->check(true), "");
}

// A key has everything before it in it, so a list with a key twice is no path of any request.
TEST_F(FieldCaseBadCall, F42RepeatedAndDisorderedKeysHarmNobody) {
  ASSERT_TRUE(cache->finish(RequestId(2)));
  const auto other = test_keys(3, 1000);
  const std::vector<std::vector<BlockKey>> lists = {
      {other[0], other[0]},           {other[0], other[1], other[0], other[1]},
      {other[2], other[1], other[0]}, {other[1], other[1], other[1]},
      {keys_[0], keys_[0], other[0]},
  };
  uint64_t id = 10;
  for (const auto& list : lists) {
    const auto count = static_cast<uint32_t>(list.size());
    for (const bool in_store : {false, true}) {
      (void)cache->match(list, 0);
      ASSERT_TRUE(cache->prefetch(RequestId(id), list, 0, kNoDeadline));
      settle_bytes();
      ASSERT_TRUE(cache->load(RequestId(id), list, 0, device(count, 8), kNoDeadline));
      settle_bytes();
      write_kv(list, 8);
      ASSERT_TRUE(cache->save(RequestId(id), list, 0, device(count, 8)));
      ASSERT_TRUE(cache->commit(RequestId(id), count * 4));
      settle_bytes();
      ASSERT_TRUE(cache->finish(RequestId(id++)));
      settle_bytes();
      ASSERT_EQ(cache->check(true), "");
      if (in_store) continue;
      cache->clear();  // next time the store alone has it
      settle_bytes();
    }
    cache->clear();
    settle_bytes();
  }
  store_bytes(id, other, 0);
  EXPECT_EQ(wrong_after_load(id + 1, other, 16), "");
}

// Such a request gets what it asked for, which nobody can use; all others are as before.
TEST_F(FieldCaseBadCall, F42DeviceBlocksNamedTwiceHarmNobodyElse) {
  const std::vector<DeviceBlockId> same(6, DeviceBlockId(20));
  ASSERT_EQ(cache->load(RequestId(3), keys_, 0, same, kNoDeadline), 3u);
  ranks[0]->take_picture();
  EXPECT_EQ(settle_bytes().at(0).blocks, 3u);
  EXPECT_TRUE(ranks[0]->only_changed(
      {ranks[0]->device_range(GroupId(0), 20), ranks[0]->device_range(GroupId(1), 20)}));
  ASSERT_TRUE(cache->save(RequestId(3), keys_, 0, same));
  ASSERT_TRUE(cache->commit(RequestId(3), 12));
  settle_bytes();
  ASSERT_TRUE(cache->finish(RequestId(3)));
  EXPECT_EQ(wrong_after_load(4, keys_, 8), "");
  ASSERT_TRUE(cache->finish(RequestId(2)));
  poll();
  EXPECT_EQ(cache->check(true), "");
}

TEST_F(FieldCaseBadCall, F42DeviceBlocksThatDoNotExistEndAsAShorterHitAndAreNotStored) {
  auto blocks = device(3, 16);
  blocks[1] = DeviceBlockId(1'000'000);  // group 0, position 1
  ASSERT_EQ(cache->load(RequestId(3), keys_, 0, blocks, kNoDeadline), 3u);
  ranks[0]->take_picture();
  const auto events = settle_bytes();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, 1u);
  EXPECT_EQ(events[0].code, Code::kInvalid);
  EXPECT_EQ(ready(keys_), 3u) << "the host's copy is as good as before";
  std::vector<testing::Range> allowed;
  for (uint8_t group = 0; group < 2; ++group) {
    for (uint32_t i = 0; i < 3; ++i) {
      if (group == 0 && i == 1) continue;
      allowed.push_back(ranks[0]->device_range(GroupId(group), 16 + group * 3 + i));
    }
  }
  EXPECT_TRUE(ranks[0]->only_changed(allowed));
  ASSERT_TRUE(cache->finish(RequestId(3)));
  const auto other = test_keys(3, 1000);
  ASSERT_TRUE(cache->save(RequestId(4), other, 0, blocks));
  ASSERT_TRUE(cache->commit(RequestId(4), 12));
  settle_bytes();
  EXPECT_EQ(ready(other), 1u);
  ASSERT_TRUE(cache->finish(RequestId(4)));
  ASSERT_TRUE(cache->finish(RequestId(2)));
  poll();
  EXPECT_EQ(cache->check(true), "");
}

}  // namespace
}  // namespace tiercel
