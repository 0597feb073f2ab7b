// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as one rank worker and its store can show
// them: names that collide (F05), writes that fail (F07), damaged objects (F08), errors that arrive
// as a timeout (F24), slots of the wrong size (F51). Oracle bytes: what a block holds follows from
// its number, so any foreign or mixed block is seen.

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "store/faulty/faulty_store.h"
#include "store/memory/memory_pool.h"
#include "store/memory/memory_store.h"
#include "transfer/rank_fixture.h"
#include "transfer/rank_worker.h"

namespace tiercel {
namespace {

using namespace testing;

constexpr GroupId kGroup{0};
constexpr uint64_t kPayloadBytes = 100;
constexpr uint32_t kSlots = 24;

class FieldCaseOfOneRank : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() { return make_memory_store(pool_, clock_); }
  std::unique_ptr<RankWorker> worker_on(std::unique_ptr<Store> store) {
    return rank_.make_worker(std::move(store), clock_);
  }

  static std::vector<std::byte> oracle(uint64_t block) {
    std::vector<std::byte> bytes(kPayloadBytes);
    fill_random(bytes, 500'000 + block);
    return bytes;
  }
  SlotId slot(uint32_t n) const { return nth_slot(geometry_, kGroup, n); }

  // Puts the block into a slot by way of the device.
  void save(RankWorker& worker, uint64_t block, SlotId to) {
    const auto bytes = oracle(block);
    std::copy(bytes.begin(), bytes.end(), rank_.device_block(kGroup, 0).begin());
    ASSERT_EQ(run_op(worker, make_op(OpKind::kSave, block, to)), Code::kOk);
  }

  // Store → slot → device. Whatever arrives as ok must be the block's own bytes.
  Code fetch(RankWorker& worker, uint64_t block, SlotId by) {
    const Code code = run_op(worker, make_op(OpKind::kStoreGet, block, by));
    if (code != Code::kOk) return code;
    EXPECT_EQ(run_op(worker, make_op(OpKind::kLoad, block, by, 1)), Code::kOk);
    const auto loaded = rank_.device_block(kGroup, 1);
    const auto expected = oracle(block);
    EXPECT_TRUE(std::equal(loaded.begin(), loaded.end(), expected.begin())) << "block " << block;
    return code;
  }

  SlotGeometry geometry_ = SlotGeometry::for_blocks({{kPayloadBytes}}, kSlots, 4).value();
  ManualClock clock_;
  std::shared_ptr<MemoryPool> pool_ = std::make_shared<MemoryPool>(0);
  TestRank rank_{geometry_, 0, 2};
};

// A store that takes 12 bits of a block's key for the whole of it.
class ShortNameStore final : public Store {
 public:
  explicit ShortNameStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  static ObjectKey cut(const ObjectKey& key) {
    std::string text(key.text());
    constexpr size_t kDigits = 3;
    std::fill(text.end() - (64 - kDigits), text.end(), '0');
    return ObjectKey::parse(text).value();
  }

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return inner_->submit_exists(all_cut(keys), deadline);
  }
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                    TimePoint deadline) override {
    std::vector<StoreGetItem> cut_items(items.begin(), items.end());
    for (StoreGetItem& item : cut_items) item.key = cut(item.key);
    return inner_->submit_get(cut_items, deadline);
  }
  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                    TimePoint deadline) override {
    std::vector<StorePutItem> cut_items(items.begin(), items.end());
    for (StorePutItem& item : cut_items) item.key = cut(item.key);
    return inner_->submit_put(cut_items, deadline);
  }
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return inner_->submit_remove(all_cut(keys), deadline);
  }
  Result<StoreRequestId> submit_clear(std::string_view prefix, TimePoint deadline) override {
    return inner_->submit_clear(prefix, deadline);
  }
  size_t poll(std::vector<StoreCompletion>* completions) override {
    return inner_->poll(completions);
  }
  int completion_fd() const override { return inner_->completion_fd(); }
  Status register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }
  StoreStats stats() const override { return inner_->stats(); }
  Status close(TimePoint deadline) override { return inner_->close(deadline); }

 private:
  static std::vector<ObjectKey> all_cut(std::span<const ObjectKey> keys) {
    std::vector<ObjectKey> cut_keys;
    for (const ObjectKey& key : keys) cut_keys.push_back(cut(key));
    return cut_keys;
  }
  std::unique_ptr<Store> inner_;
};

// F05: a hit on a short hash was trusted, so that somebody could make another prompt's block
// answer.
TEST_F(FieldCaseOfOneRank, F05BlocksWhoseNamesCollideAreNeverTakenForEachOther) {
  constexpr uint64_t kBlocks = 5000;
  auto worker = worker_on(std::make_unique<ShortNameStore>(open()));
  std::map<std::string, uint64_t> first_of_name;
  for (uint64_t block = 0; block < kBlocks; ++block) {
    save(*worker, block, slot(0));
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, block, slot(0))), Code::kOk);
    const ObjectKey key(test_namespace(), kGroup, Slice{0, 1}, test_key(block));
    first_of_name.emplace(ShortNameStore::cut(key).text(), block);
  }
  const uint64_t collisions = kBlocks - first_of_name.size();
  ASSERT_GT(collisions, 1000u);
  uint64_t hits = 0;
  for (uint64_t block = 0; block < kBlocks; ++block) {
    const Code code = fetch(*worker, block, slot(1));
    ASSERT_TRUE(code == Code::kOk || code == Code::kCorrupt) << to_string(code);
    hits += code == Code::kOk ? 1 : 0;
  }
  EXPECT_EQ(hits, first_of_name.size());
  EXPECT_EQ(worker->stats().path(OpKind::kStoreGet).corrupt, collisions);
}

// F07: some stores failed with only a warning; later look-ups still found those keys, and the model
// talked nonsense.
TEST_F(FieldCaseOfOneRank, F07ABlockIsReadableOnlyIfItsWholeValueIsInPlaceAndARetrySucceeds) {
  constexpr uint32_t kBlocks = 20;
  std::map<Code, uint32_t> put_codes;
  std::map<Code, uint32_t> get_codes;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    pool_ = std::make_shared<MemoryPool>(0);
    FaultOptions faults;
    faults.seed = seed;
    faults.error = faults.no_space = 0.04;
    faults.truncate = 0.04;  // a head is stored, and the store says ok
    faults.lost_answer = 0.2;
    auto writer = worker_on(FaultyStore::create(open(), faults, clock_).value());
    auto reader = worker_on(open());
    std::vector<BlockOp> puts;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      save(*writer, block, slot(block));
      puts.push_back(make_op(OpKind::kStorePut, block, slot(block)));
      puts.back().item = block;
    }
    writer->submit(puts);
    std::array<Code, kBlocks> put{};
    for (const Completion& completion : run_worker(*writer)) {
      put[completion.item] = completion.code;
      ++put_codes[completion.code];
    }
    std::vector<uint32_t> missing;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const Code exists = run_op(*reader, make_op(OpKind::kStoreExists, block));
      const Code get = fetch(*reader, block, slot(kBlocks));
      ++get_codes[get];
      if (get != Code::kOk) missing.push_back(block);
      switch (put[block]) {
        case Code::kOk:
          ASSERT_TRUE(get == Code::kOk || get == Code::kCorrupt) << to_string(get);
          break;
        case Code::kTimeout:  // the answer was lost: it happened, or it was cut
          ASSERT_TRUE(get == Code::kOk || get == Code::kCorrupt || get == Code::kNotFound);
          break;
        default:
          ASSERT_EQ(get, Code::kNotFound) << to_string(put[block]);
          ASSERT_EQ(exists, Code::kNotFound);
      }
    }
    // What was found missing or bad is put again, as the control plane does, and is there then.
    for (const uint32_t block : missing) {
      BlockOp again = make_op(OpKind::kStorePut, block, slot(block));
      again.replace = 1;
      ASSERT_EQ(run_op(*reader, again), Code::kOk);
    }
    for (uint32_t block = 0; block < kBlocks; ++block) {
      ASSERT_EQ(fetch(*reader, block, slot(kBlocks)), Code::kOk) << block;
    }
    EXPECT_EQ(pool_->stats().objects, kBlocks);
    EXPECT_EQ(pool_->stats().bytes, kBlocks * (kPayloadBytes + kFrameBytes));
  }
  for (const Code code : {Code::kOk, Code::kNoSpace, Code::kUnavailable, Code::kTimeout}) {
    EXPECT_GT(put_codes[code], 0u) << to_string(code);
  }
  for (const Code code : {Code::kOk, Code::kCorrupt, Code::kNotFound}) {
    EXPECT_GT(get_codes[code], 0u) << to_string(code);
  }
}

// F08: a stored block of the right length with wrong bytes was loaded without any sign of trouble.
TEST_F(FieldCaseOfOneRank, F08DamagedAndSwappedObjectsAreCountedMisses) {
  constexpr uint32_t kBlocks = 20;
  constexpr uint64_t kFlips = 1000;
  auto worker = worker_on(open());
  for (uint32_t block = 0; block < kBlocks; ++block) {
    save(*worker, block, slot(0));
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, block, slot(0))), Code::kOk);
  }
  const auto object_key = [](uint32_t block) {
    return ObjectKey(test_namespace(), kGroup, Slice{0, 1}, test_key(block));
  };
  const auto read = [&](uint32_t block) {
    std::vector<std::byte> object(kPayloadBytes + kFrameBytes);
    EXPECT_EQ(pool_->get({object_key(block), {std::span(object)}}), Code::kOk);
    return object;
  };
  const auto write = [&](uint32_t block, const std::vector<std::byte>& object) {
    EXPECT_EQ(pool_->put({object_key(block), {std::span(object)}, true}), Code::kOk);
  };
  Random random(8);
  for (uint64_t flip = 0; flip < kFlips; ++flip) {
    const auto block = static_cast<uint32_t>(random.below(kBlocks));
    const std::vector<std::byte> object = read(block);
    std::vector<std::byte> damaged = object;
    damaged[random.below(damaged.size())] ^= std::byte{1} << random.below(8);
    write(block, damaged);
    ASSERT_EQ(fetch(*worker, block, slot(1)), Code::kCorrupt) << "flip " << flip;
    write(block, object);
  }
  EXPECT_EQ(worker->stats().path(OpKind::kStoreGet).corrupt, kFlips);

  const std::vector<std::byte> object_3 = read(3);
  write(3, read(4));
  write(4, object_3);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(fetch(*worker, block, slot(1)),
              block == 3 || block == 4 ? Code::kCorrupt : Code::kOk);
  }
  EXPECT_EQ(worker->stats().path(OpKind::kStoreGet).corrupt, kFlips + 2);
}

// F24: the client only saw a timeout where the server could not allocate. Nothing here has a
// deadline and the clock stands still: each cause arrives as itself, or never.
TEST_F(FieldCaseOfOneRank, F24EachCauseArrivesAsItsOwnError) {
  constexpr uint64_t kObjectBytes = kPayloadBytes + kFrameBytes;
  pool_ = std::make_shared<MemoryPool>(kObjectBytes - 1);
  auto worker = worker_on(open());
  save(*worker, 1, slot(0));
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStorePut, 1, slot(0))), Code::kNoSpace);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreExists, 1)), Code::kNotFound);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 1, slot(1))), Code::kNotFound);
  const std::vector<std::byte> other_size(10);
  ASSERT_EQ(pool_->put({ObjectKey(test_namespace(), kGroup, Slice{0, 1}, test_key(2)),
                        {std::span(other_size)},
                        false}),
            Code::kOk);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 2, slot(1))), Code::kCorrupt);
  BlockOp unknown_group = make_op(OpKind::kStoreGet, 1, slot(1));
  unknown_group.group = GroupId(1);
  EXPECT_EQ(run_op(*worker, unknown_group), Code::kInvalid);
  ASSERT_TRUE(worker->close(clock_.now()));
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 1, slot(1))), Code::kUnavailable);
}

// F51: a missing slot size quietly became one that cut every block; the transfer said ok, and no
// look-up ever hit.
TEST_F(FieldCaseOfOneRank, F51ASlotSizeThatIsNotTheBlocksIsRefusedAtStartWithBothNumbers) {
  const auto start = [&](uint64_t slot_bytes) -> Status {
    auto geometry = SlotGeometry::for_blocks({{slot_bytes}}, kSlots, 4);
    if (!geometry) return geometry.error();
    std::vector<std::byte> host(geometry->tier_bytes(0));
    auto worker =
        RankWorker::create(rank_.options(), *geometry, host, &rank_.copier(), open(), clock_);
    if (!worker) return worker.error();
    return {};
  };
  const Status none = start(0);
  ASSERT_EQ(none.code(), Code::kInvalid);
  EXPECT_NE(none.error().message().find("payload_bytes of group 0, rank 0 is 0; allowed: 1 to "),
            std::string::npos)
      << none.error().message();
  for (const uint64_t bytes : {uint64_t{1}, kPayloadBytes - 1, kPayloadBytes + 1}) {
    const Status refused = start(bytes);
    ASSERT_EQ(refused.code(), Code::kInvalid) << bytes;
    EXPECT_NE(refused.error().message().find("is 100; allowed: " + std::to_string(bytes)),
              std::string::npos)
        << refused.error().message();
  }
  EXPECT_TRUE(start(kPayloadBytes));
  // And what is stored then is the whole block.
  auto worker = worker_on(open());
  save(*worker, 1, slot(0));
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, 1, slot(0))), Code::kOk);
  EXPECT_EQ(pool_->stats().bytes, kPayloadBytes + kFrameBytes);
  EXPECT_EQ(fetch(*worker, 1, slot(1)), Code::kOk);
}

// F50: pools that are smaller than what they must hold; one byte less is refused, with the numbers.
TEST_F(FieldCaseOfOneRank, F50HostMemoryThatIsNotTheTiersIsRefusedAtStartWithBothNumbers) {
  const uint64_t need = geometry_.tier_bytes(0);
  std::vector<std::byte> memory(need + 1);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, need - 1, need, need + 1}) {
    auto worker = RankWorker::create(rank_.options(), geometry_, std::span(memory).first(bytes),
                                     &rank_.copier(), open(), clock_);
    EXPECT_EQ(worker.has_value(), bytes == need) << bytes;
    if (worker) continue;
    EXPECT_EQ(worker.code(), Code::kInvalid);
    EXPECT_NE(worker.error().message().find("is " + std::to_string(bytes) +
                                            "; allowed: " + std::to_string(need)),
              std::string::npos)
        << worker.error().message();
  }
}

}  // namespace
}  // namespace tiercel
