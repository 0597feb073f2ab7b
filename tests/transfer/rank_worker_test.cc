// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_worker.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "store/registry.h"
#include "transfer/fake_store.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class RankWorkerTest : public ::testing::Test {
 protected:
  RankWorkerTest() {
    for (uint32_t r = 0; r < geometry_.rank_count(); ++r) {
      ranks_.push_back(std::make_unique<TestRank>(geometry_, r, kDeviceBlocks));
    }
  }
  static constexpr uint32_t kDeviceBlocks = 4;
  SlotGeometry geometry_ = uneven_geometry();
  ManualClock clock_;
  FakeStoreHandle store_;
  std::vector<std::unique_ptr<TestRank>> ranks_;
};

TEST_F(RankWorkerTest, EveryWayOfABlockKeepsItsBytesOnEveryRankAndGroup) {
  for (uint32_t r = 0; r < geometry_.rank_count(); ++r) {
    TestRank& rank = *ranks_[r];
    FakeStoreHandle store;
    auto worker = rank.make_worker(store.make(), clock_);
    for (const GroupId group : {GroupId(0), GroupId(1)}) {
      SCOPED_TRACE("rank " + std::to_string(r) + " group " + std::to_string(group.value()));
      const SlotId saved = nth_slot(geometry_, group, 2);
      const SlotId fetched = nth_slot(geometry_, group, 5);
      const auto payload = rank.device_block(group, 1);
      const std::vector<std::byte> original(payload.begin(), payload.end());

      rank.take_picture();
      ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 3, saved, 1, group)), Code::kOk);
      EXPECT_TRUE(rank.only_changed(
          {rank.slot_payload_range(saved, group), rank.slot_frame_range(saved, group)}));

      rank.take_picture();
      EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreExists, 3, saved, 0, group)),
                Code::kNotFound);
      ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, 3, saved, 0, group)), Code::kOk);
      EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreExists, 3, saved, 0, group)), Code::kOk);
      EXPECT_TRUE(rank.only_changed());

      ASSERT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, fetched, 0, group)), Code::kOk);
      EXPECT_TRUE(rank.only_changed(
          {rank.slot_payload_range(fetched, group), rank.slot_frame_range(fetched, group)}));

      rank.take_picture();
      ASSERT_EQ(run_op(*worker, make_op(OpKind::kLoad, 3, fetched, 3, group)), Code::kOk);
      EXPECT_TRUE(rank.only_changed({rank.device_range(group, 3)}));
      const auto loaded = rank.device_block(group, 3);
      EXPECT_TRUE(std::equal(original.begin(), original.end(), loaded.begin()));

      EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreRemove, 3, saved, 0, group)), Code::kOk);
      EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, fetched, 0, group)), Code::kNotFound);
    }
    const uint64_t bytes =
        geometry_.payload_bytes(GroupId(0), r) + geometry_.payload_bytes(GroupId(1), r);
    const RankStats stats = worker->stats();
    EXPECT_EQ(stats.path(OpKind::kLoad).bytes, bytes);
    EXPECT_EQ(stats.path(OpKind::kSave).bytes, bytes);
    EXPECT_EQ(stats.path(OpKind::kStorePut).bytes, bytes);
    EXPECT_EQ(stats.path(OpKind::kStoreGet).bytes, bytes);
    EXPECT_EQ(stats.path(OpKind::kStoreGet).ops, 4u);
    EXPECT_EQ(stats.path(OpKind::kStoreExists).ops, 4u);
    for (const PathStats& path : stats.paths) {
      EXPECT_EQ(path.failed, 0u);
      EXPECT_EQ(path.corrupt, 0u);
    }
  }
}

TEST_F(RankWorkerTest, SameWayThroughTheReferenceStore) {
  StoreRegistry registry;
  register_all_stores(registry);
  auto opened = registry.open("memory:", {clock_});
  ASSERT_TRUE(opened) << opened.error().to_string();
  TestRank& rank = *ranks_[2];
  auto worker = rank.make_worker(std::move(*opened), clock_);
  const SlotId a = nth_slot(geometry_, GroupId(0), 0);
  const SlotId b = nth_slot(geometry_, GroupId(0), 1);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 3, a, 1)), Code::kOk);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, 3, a)), Code::kOk);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, b)), Code::kOk);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kLoad, 3, b, 2)), Code::kOk);
  const auto from = rank.device_block(GroupId(0), 1);
  EXPECT_TRUE(std::equal(from.begin(), from.end(), rank.device_block(GroupId(0), 2).begin()));
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 4, b)), Code::kNotFound);
}

TEST_F(RankWorkerTest, SlotOfAnotherRankGroupOrNamespaceNeverLoads) {
  TestRank& rank = *ranks_[0];
  const SlotId slot = nth_slot(geometry_, GroupId(0), 1);
  auto worker = rank.make_worker(nullptr, clock_);

  RankWorkerOptions foreign = rank.options();
  foreign.name_space = test_namespace(1);
  auto writer = rank.make_worker(nullptr, clock_, foreign);
  ASSERT_EQ(run_op(*writer, make_op(OpKind::kSave, 3, slot)), Code::kOk);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kLoad, 3, slot)), Code::kCorrupt);

  foreign = rank.options();
  foreign.slice = {1, 3};
  writer = rank.make_worker(nullptr, clock_, foreign);
  ASSERT_EQ(run_op(*writer, make_op(OpKind::kSave, 3, slot)), Code::kOk);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kLoad, 3, slot)), Code::kCorrupt);

  // A frame of the other group at exactly the place where this group's frame is expected.
  Frame frame;
  frame.name_space = test_namespace();
  frame.key = test_key(3);
  frame.group = GroupId(1);
  frame.slice = {0, 3};
  frame.token_count = kTestTokens;
  frame.stored_bytes = frame.raw_bytes = geometry_.payload_bytes(GroupId(0), 0);
  encode_frame(frame, rank.slot_frame(slot, GroupId(0)));
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kLoad, 3, slot)), Code::kCorrupt);

  EXPECT_EQ(worker->stats().path(OpKind::kLoad).corrupt, 3u);
  EXPECT_EQ(worker->stats().path(OpKind::kLoad).failed, 3u);
  EXPECT_EQ(worker->stats().path(OpKind::kLoad).bytes, 0u);
}

TEST_F(RankWorkerTest, DamageInTheStoreIsFoundOnArrivalWhateverBit) {
  TestRank& rank = *ranks_[1];
  auto worker = rank.make_worker(store_.make(), clock_);
  const SlotId slot = nth_slot(geometry_, GroupId(1), 0);
  const SlotId target = nth_slot(geometry_, GroupId(1), 1);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 3, slot, 0, GroupId(1))), Code::kOk);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, 3, slot, 0, GroupId(1))), Code::kOk);
  const auto [key, object] = *store_.state->objects().begin();
  uint64_t gets = 0;
  for (size_t bit = 0; bit < object.size() * 8; bit += 7) {
    std::vector<std::byte> damaged = object;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    store_.state->set_object(key, damaged);
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, target, 0, GroupId(1))), Code::kCorrupt)
        << "bit " << bit;
    ++gets;
  }
  EXPECT_EQ(worker->stats().path(OpKind::kStoreGet).corrupt, gets);
  store_.state->set_object(key, object);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, target, 0, GroupId(1))), Code::kOk);
}

TEST_F(RankWorkerTest, ObjectOfAnotherLengthOrBlockIsCorrupt) {
  TestRank& rank = *ranks_[1];
  auto worker = rank.make_worker(store_.make(), clock_);
  const SlotId slot = nth_slot(geometry_, GroupId(0), 0);
  for (uint64_t block : {3u, 4u}) {
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, block, slot)), Code::kOk);
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kStorePut, block, slot)), Code::kOk);
  }
  const ObjectKey key(test_namespace(), GroupId(0), Slice{1, 3}, test_key(3));
  const ObjectKey other(test_namespace(), GroupId(0), Slice{1, 3}, test_key(4));
  auto objects = store_.state->objects();
  ASSERT_EQ(objects.size(), 2u);
  store_.state->set_object(std::string(key.text()), objects[std::string(other.text())]);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, slot)), Code::kCorrupt);
  auto longer = objects[std::string(key.text())];
  longer.push_back(std::byte{0});
  store_.state->set_object(std::string(key.text()), longer);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, slot)), Code::kCorrupt);
  longer.pop_back();
  longer.pop_back();
  store_.state->set_object(std::string(key.text()), longer);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kStoreGet, 3, slot)), Code::kCorrupt);
}

TEST_F(RankWorkerTest, SlotThatIsNotTheBlockIsNeverPublished) {
  TestRank& rank = *ranks_[1];
  auto worker = rank.make_worker(store_.make(), clock_);
  const SlotId slots[] = {nth_slot(geometry_, GroupId(0), 0), nth_slot(geometry_, GroupId(0), 1),
                          nth_slot(geometry_, GroupId(0), 2)};
  for (uint64_t block = 0; block < 3; ++block) {
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, block, slots[block])), Code::kOk);
  }
  // The one in the middle is believed to be another block.
  std::vector<BlockOp> puts = {make_op(OpKind::kStorePut, 0, slots[0]),
                               make_op(OpKind::kStorePut, 9, slots[1]),
                               make_op(OpKind::kStorePut, 2, slots[2])};
  for (uint32_t i = 0; i < 3; ++i) puts[i].item = i;
  worker->submit(puts);
  std::map<uint32_t, Code> codes;
  for (const Completion& completion : run_worker(*worker)) codes[completion.item] = completion.code;
  EXPECT_EQ(codes, (std::map<uint32_t, Code>{{0, Code::kOk}, {1, Code::kCorrupt}, {2, Code::kOk}}));
  EXPECT_EQ(store_.state->objects().size(), 2u);
  EXPECT_EQ(worker->stats().path(OpKind::kStorePut).corrupt, 1u);
}

TEST_F(RankWorkerTest, PutReplacesOnlyWhenAsked) {
  TestRank& rank = *ranks_[1];
  auto worker = rank.make_worker(store_.make(), clock_);
  const SlotId slot = nth_slot(geometry_, GroupId(0), 0);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 3, slot)), Code::kOk);
  const std::string key(ObjectKey(test_namespace(), GroupId(0), Slice{1, 3}, test_key(3)).text());
  store_.state->set_object(key, {std::byte{1}});
  BlockOp put = make_op(OpKind::kStorePut, 3, slot);
  ASSERT_EQ(run_op(*worker, put), Code::kOk);
  EXPECT_EQ(store_.state->objects()[key].size(), 1u);
  put.replace = 1;
  ASSERT_EQ(run_op(*worker, put), Code::kOk);
  EXPECT_EQ(store_.state->objects()[key].size(),
            geometry_.payload_bytes(GroupId(0), 1) + kFrameBytes);
}

TEST_F(RankWorkerTest, OpsThatMakeNoSenseAreInvalidAndTouchNothing) {
  TestRank& rank = *ranks_[0];
  auto worker = rank.make_worker(store_.make(), clock_);
  const SlotId good = nth_slot(geometry_, GroupId(0), 0);
  std::vector<BlockOp> hostile;
  const auto add = [&](OpKind kind, auto change) {
    BlockOp op = make_op(kind, 3, good);
    change(op);
    hostile.push_back(op);
  };
  for (const OpKind kind : {OpKind::kLoad, OpKind::kSave, OpKind::kStoreGet, OpKind::kStorePut}) {
    add(kind, [](BlockOp& op) { op.slot = SlotId(UINT32_MAX); });
    add(kind, [&](BlockOp& op) { op.slot = SlotId(geometry_.slot_count_max()); });
    add(kind, [](BlockOp& op) { op.token_count = 0; });
  }
  for (const OpKind kind : {OpKind::kLoad, OpKind::kSave}) {
    add(kind, [](BlockOp& op) { op.device_block = DeviceBlockId(kDeviceBlocks); });
    add(kind, [](BlockOp& op) { op.device_block = DeviceBlockId(UINT32_MAX); });
  }
  for (size_t i = 0; i < kOpKindCount; ++i) {
    const OpKind kind = static_cast<OpKind>(i);
    add(kind, [](BlockOp& op) { op.group = GroupId(2); });
    add(kind, [](BlockOp& op) { op.group = GroupId(255); });
    add(kind, [](BlockOp& op) { op.replace = 2; });
    add(kind, [](BlockOp& op) { op.only_rank = 7; });  // another one's
    for (size_t byte = 0; byte < BlockOp{}.reserved.size(); ++byte) {
      add(kind, [byte](BlockOp& op) { op.reserved[byte] = 1; });
    }
    if (kind != OpKind::kStorePut) add(kind, [](BlockOp& op) { op.replace = 1; });
  }
  for (int kind : {int{kOpKindCount}, int{kOpKindCount} + 1, 100, 255}) {
    add(OpKind::kLoad, [kind](BlockOp& op) { op.kind = static_cast<OpKind>(kind); });
  }
  rank.take_picture();
  for (const BlockOp& op : hostile) EXPECT_EQ(run_op(*worker, op), Code::kInvalid);
  EXPECT_TRUE(rank.only_changed());
  EXPECT_TRUE(store_.state->calls().empty());
}

TEST_F(RankWorkerTest, RandomOpsTouchOnlyWhatTheyName) {
  TestRank& rank = *ranks_[2];
  auto worker = rank.make_worker(store_.make(), clock_);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    BlockOp op = make_op(static_cast<OpKind>(random.below(7)), random.below(4),
                         SlotId(static_cast<uint32_t>(random.below(40))),
                         static_cast<uint32_t>(random.below(kDeviceBlocks + 2)),
                         GroupId(static_cast<uint8_t>(random.below(3))));
    rank.take_picture();
    const Code code = run_op(*worker, op);
    std::vector<Range> allowed;
    if (code != Code::kInvalid) {
      if (op.kind == OpKind::kSave || op.kind == OpKind::kStoreGet) {
        allowed = {rank.slot_payload_range(op.slot, op.group),
                   rank.slot_frame_range(op.slot, op.group)};
      } else if (op.kind == OpKind::kLoad) {
        allowed = {rank.device_range(op.group, op.device_block.value())};
      }
    }
    ASSERT_TRUE(rank.only_changed(allowed)) << "seed " << seed;
  }
}

TEST_F(RankWorkerTest, WorkNotBegunByItsDeadlineIsATimeout) {
  TestRank& rank = *ranks_[0];
  auto worker = rank.make_worker(store_.make(), clock_);
  clock_.advance(std::chrono::seconds(1));
  const SlotId slot = nth_slot(geometry_, GroupId(0), 0);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 3, slot)), Code::kOk);
  rank.take_picture();
  for (size_t i = 0; i < kOpKindCount; ++i) {
    BlockOp op = make_op(static_cast<OpKind>(i), 3, slot, 1);
    if (uses_disk(op.kind)) continue;  // rank_worker_disk_test.cc
    op.deadline_ns = clock_.now().time_since_epoch().count();
    EXPECT_EQ(run_op(*worker, op), Code::kTimeout) << to_string(op.kind);
    op.deadline_ns = -5;
    EXPECT_EQ(run_op(*worker, op), Code::kTimeout) << to_string(op.kind);
  }
  EXPECT_TRUE(rank.only_changed());
  EXPECT_TRUE(store_.state->calls().empty());
  BlockOp in_time = make_op(OpKind::kLoad, 3, slot, 1);
  in_time.deadline_ns = clock_.now().time_since_epoch().count() + 1;
  EXPECT_EQ(run_op(*worker, in_time), Code::kOk);
}

TEST_F(RankWorkerTest, LoadsComeBeforeGetsBeforeSavesAndPuts) {
  TestRank& rank = *ranks_[0];
  auto worker = rank.make_worker(store_.make(), clock_);
  const SlotId a = nth_slot(geometry_, GroupId(0), 0);
  ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, 0, a)), Code::kOk);
  std::vector<BlockOp> ops = {make_op(OpKind::kStorePut, 0, a),
                              make_op(OpKind::kSave, 1, nth_slot(geometry_, GroupId(0), 1)),
                              make_op(OpKind::kStoreGet, 7, nth_slot(geometry_, GroupId(0), 2)),
                              make_op(OpKind::kLoad, 0, a, 1), make_op(OpKind::kLoad, 0, a, 2)};
  for (uint32_t i = 0; i < ops.size(); ++i) ops[i].item = i;
  worker->submit(ops);
  // One memory operation: the first load. The get is on its way then, while save and put still
  // wait.
  ASSERT_TRUE(worker->progress(1));
  std::vector<Completion> first(2);
  ASSERT_EQ(worker->take(first), 1u);
  EXPECT_EQ(first[0].item, 3u);
  ASSERT_EQ(store_.state->calls().size(), 1u);
  EXPECT_EQ(store_.state->calls()[0].kind, OpKind::kStoreGet);
  std::vector<uint32_t> rest;
  for (const Completion& completion : run_worker(*worker)) rest.push_back(completion.item);
  ASSERT_EQ(rest.size(), 4u);
  const auto place = [&](uint32_t item) { return std::find(rest.begin(), rest.end(), item); };
  EXPECT_LT(place(4), place(1));
  EXPECT_LT(place(4), place(0));
  EXPECT_LT(place(2), place(0));
}

TEST_F(RankWorkerTest, ProgressDoesNoMoreMemoryOpsThanAsked) {
  TestRank& rank = *ranks_[0];
  auto worker = rank.make_worker(nullptr, clock_);
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 7; ++i) {
    ops.push_back(make_op(OpKind::kSave, i, nth_slot(geometry_, GroupId(0), i)));
  }
  worker->submit(ops);
  std::vector<Completion> out(10);
  EXPECT_TRUE(worker->progress(0));
  EXPECT_EQ(worker->take(out), 0u);
  EXPECT_TRUE(worker->progress(3));
  EXPECT_EQ(worker->take(out), 3u);
  EXPECT_TRUE(worker->progress(3));
  EXPECT_TRUE(worker->progress(3));
  EXPECT_EQ(worker->take(out), 4u);
  EXPECT_FALSE(worker->progress(3));
  EXPECT_EQ(worker->ops_in_flight(), 0u);
  EXPECT_EQ(worker->next_due(), kNoDeadline);
}

TEST_F(RankWorkerTest, WithoutDeviceOrStoreTheirOpsEndWithAReason) {
  TestRank& rank = *ranks_[0];
  auto worker =
      RankWorker::create(rank.options(), geometry_, rank.host(), nullptr, nullptr, clock_).value();
  const SlotId slot = nth_slot(geometry_, GroupId(0), 0);
  EXPECT_EQ(worker->store_fd(), -1);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kLoad, 3, slot)), Code::kUnsupported);
  EXPECT_EQ(run_op(*worker, make_op(OpKind::kSave, 3, slot)), Code::kUnsupported);
  for (const OpKind kind :
       {OpKind::kStoreGet, OpKind::kStorePut, OpKind::kStoreExists, OpKind::kStoreRemove}) {
    EXPECT_EQ(run_op(*worker, make_op(kind, 3, slot)), Code::kUnavailable);
  }
}

TEST_F(RankWorkerTest, CreateRefusesWhatDoesNotFitTogether) {
  TestRank& rank = *ranks_[1];
  const auto create = [&](const RankWorkerOptions& options, std::span<std::byte> memory,
                          DeviceCopier* copier) {
    return RankWorker::create(options, geometry_, memory, copier, nullptr, clock_).code();
  };
  EXPECT_EQ(create(rank.options(), rank.host(), &rank.copier()), Code::kOk);
  EXPECT_EQ(create(rank.options(), rank.host().first(rank.host().size() - 1), &rank.copier()),
            Code::kInvalid);
  EXPECT_EQ(create(rank.options(), rank.host(), &ranks_[0]->copier()), Code::kInvalid);
  RankWorkerOptions options = rank.options();
  options.rank = 3;
  EXPECT_EQ(create(options, rank.host(), &rank.copier()), Code::kInvalid);
  options = rank.options();
  options.store_batch_max = 0;
  EXPECT_EQ(create(options, rank.host(), &rank.copier()), Code::kInvalid);
  options = rank.options();
  options.slice = {3, 3};
  EXPECT_EQ(create(options, rank.host(), &rank.copier()), Code::kInvalid);
}

TEST_F(RankWorkerTest, RegistersExactlyItsMemoryWithTheStore) {
  auto worker = ranks_[0]->make_worker(store_.make(), clock_);
  const auto registered = store_.state->registered();
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_EQ(registered[0].data(), ranks_[0]->host().data());
  EXPECT_EQ(registered[0].size(), ranks_[0]->host().size());
}

}  // namespace
}  // namespace tiercel
