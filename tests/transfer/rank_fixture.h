// SPDX-License-Identifier: Apache-2.0
//
// Ranks for tests: host and device memory with guard zones around everything, filled with a known
// pattern, and a picture of all of it to compare with afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/frame.h"

#include "base/manual_clock.h"
#include "base/random.h"
#include "transfer/rank_worker.h"

namespace tiercel::testing {

inline void fill_random(std::span<std::byte> bytes, uint64_t seed) {
  Random random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}

inline BlockKey test_key(uint64_t number) {
  BlockKey key;
  fill_random(key.bytes, number + 1);
  return key;
}

inline Namespace test_namespace(uint64_t number = 0) {
  Namespace name_space;
  fill_random(name_space.bytes, 1'000'000 + number);
  return name_space;
}

// Memory with guards; a touch outside the middle is found by comparing pictures. The middle begins
// at a page, as a disk wants it.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes, uint64_t seed)
      : bytes_(bytes + 2 * kGuard), pages_((bytes_ + kPageBytes - 1) / kPageBytes) {
    fill_random(all(), seed);
  }
  std::span<std::byte> middle() { return all().subspan(kGuard, bytes_ - 2 * kGuard); }
  std::span<const std::byte> whole() const { return {pages_.data()->bytes, bytes_}; }
  static constexpr size_t kGuard = 4096;

 private:
  static constexpr size_t kPageBytes = 4096;
  struct alignas(kPageBytes) Page {
    std::byte bytes[kPageBytes];
  };

  std::span<std::byte> all() { return {pages_.data()->bytes, bytes_}; }

  size_t bytes_;
  std::vector<Page> pages_;
};

// What may have changed: bytes [begin, end) of the middle of one memory.
struct Range {
  size_t memory = 0;  // 0: host, 1 + g: device memory of group g
  size_t begin = 0;
  size_t end = 0;
};

class TestRank {
 public:
  TestRank(const SlotGeometry& geometry, uint32_t rank, uint32_t device_blocks)
      : geometry_(geometry), rank_(rank) {
    memories_.emplace_back(geometry.tier_bytes(rank), 77 + rank);
    for (uint32_t g = 0; g < geometry.group_count(); ++g) {
      const uint64_t bytes = geometry.payload_bytes(GroupId(static_cast<uint8_t>(g)), rank);
      memories_.emplace_back(bytes * device_blocks, 99 + rank * 10 + g);
    }
    std::vector<ContiguousGroupMemory> groups;
    for (uint32_t g = 0; g < geometry.group_count(); ++g) {
      groups.push_back({memories_[1 + g].middle(),
                        geometry.payload_bytes(GroupId(static_cast<uint8_t>(g)), rank)});
    }
    copier_ = ContiguousCopier::create(std::move(groups)).value();
    take_picture();
  }

  RankWorkerOptions options() const {
    RankWorkerOptions options;
    options.rank = rank_;
    options.slice = {static_cast<uint16_t>(rank_), static_cast<uint16_t>(geometry_.rank_count())};
    options.name_space = test_namespace();
    options.writer_epoch = 5;
    return options;
  }

  std::unique_ptr<RankWorker> make_worker(std::unique_ptr<Store> store, const Clock& clock,
                                          std::optional<RankWorkerOptions> with = std::nullopt,
                                          std::unique_ptr<RankDisk> disk = nullptr) {
    auto worker = RankWorker::create(with.value_or(options()), geometry_, host(), &copier_,
                                     std::move(store), clock, std::move(disk));
    EXPECT_TRUE(worker) << worker.error().to_string();
    return std::move(*worker);
  }

  std::span<std::byte> host() { return memories_[0].middle(); }
  ContiguousCopier& copier() { return copier_; }
  std::span<std::byte> device_block(GroupId group, uint32_t block) {
    const size_t bytes = geometry_.payload_bytes(group, rank_);
    return memories_[1 + group.value()].middle().subspan(block * bytes, bytes);
  }
  std::span<std::byte> slot_payload(SlotId slot, GroupId group) {
    return host().subspan(*geometry_.offset(slot, group, rank_),
                          geometry_.payload_bytes(group, rank_));
  }
  std::span<std::byte, kFrameBytes> slot_frame(SlotId slot, GroupId group) {
    return tiercel::slot_frame(host().subspan(*geometry_.offset(slot, group, rank_)),
                               geometry_.payload_bytes(group, rank_));
  }

  Range slot_payload_range(SlotId slot, GroupId group) const {
    const size_t offset = *geometry_.offset(slot, group, rank_);
    return {0, offset, offset + geometry_.payload_bytes(group, rank_)};
  }
  Range slot_frame_range(SlotId slot, GroupId group) const {
    const size_t begin = slot_payload_range(slot, group).end;
    return {0, begin, begin + kFrameBytes};
  }
  Range device_range(GroupId group, uint32_t block) const {
    const size_t bytes = geometry_.payload_bytes(group, rank_);
    return {1u + group.value(), block * bytes, (block + 1) * bytes};
  }

  void take_picture() {
    picture_.clear();
    for (const GuardedMemory& memory : memories_) {
      picture_.emplace_back(memory.whole().begin(), memory.whole().end());
    }
  }

  // True if no byte outside `allowed` differs from the last picture.
  ::testing::AssertionResult only_changed(const std::vector<Range>& allowed = {}) const {
    for (size_t m = 0; m < memories_.size(); ++m) {
      const std::span<const std::byte> now = memories_[m].whole();
      for (size_t i = 0; i < now.size(); ++i) {
        if (now[i] == picture_[m][i]) continue;
        bool in_range = false;
        for (const Range& range : allowed) {
          in_range |= range.memory == m && i >= GuardedMemory::kGuard + range.begin &&
                      i < GuardedMemory::kGuard + range.end;
        }
        if (!in_range) {
          return ::testing::AssertionFailure() << "memory " << m << " changed at byte " << i;
        }
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  SlotGeometry geometry_;
  uint32_t rank_;
  std::vector<GuardedMemory> memories_;
  ContiguousCopier copier_;
  std::vector<std::vector<std::byte>> picture_;
};

// Two groups, three ranks, no two slices of the same size, odd ones among them.
inline SlotGeometry uneven_geometry(uint32_t capacity_blocks = 8) {
  return SlotGeometry::for_blocks({{1000, 4096 - kFrameBytes, 5001}, {1, 777, 8192}},
                                  capacity_blocks, 4)
      .value();
}

inline constexpr uint32_t kTestTokens = 16;

inline BlockOp make_op(OpKind kind, uint64_t block, SlotId slot = SlotId(0),
                       uint32_t device_block = 0, GroupId group = GroupId(0)) {
  BlockOp op;
  op.job = JobId(1);
  op.key = test_key(block);
  op.slot = slot;
  op.device_block = DeviceBlockId(device_block);
  op.token_count = kTestTokens;
  op.kind = kind;
  op.group = group;
  return op;
}

// The n-th slot that exists for the group, from 0.
inline SlotId nth_slot(const SlotGeometry& geometry, GroupId group, uint32_t n) {
  for (uint32_t id = 0; id < geometry.extent_count() * geometry.slots_per_extent_max(); ++id) {
    if (geometry.offset(SlotId(id), group, 0) && n-- == 0) return SlotId(id);
  }
  ADD_FAILURE() << "there is no such slot";
  return SlotId(0);
}

// Runs the worker until it has nothing to do that does not need the store, and takes what has
// ended.
inline std::vector<Completion> run_worker(RankWorker& worker) {
  while (worker.progress(3)) {
  }
  std::vector<Completion> all(worker.ops_in_flight());
  all.resize(worker.take(all));
  return all;
}

// The code of the one completion that the op must have.
inline Code run_op(RankWorker& worker, const BlockOp& op) {
  worker.submit({&op, 1});
  const std::vector<Completion> completions = run_worker(worker);
  EXPECT_EQ(completions.size(), 1u);
  if (completions.size() != 1) return Code::kInternal;
  EXPECT_EQ(completions[0].job, op.job);
  EXPECT_EQ(completions[0].item, op.item);
  EXPECT_EQ(completions[0].rank, worker.rank());
  return completions[0].code;
}

}  // namespace tiercel::testing
