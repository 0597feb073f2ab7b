// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/transfer_buffer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/random.h"

namespace tiercel {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr size_t kAlignment = 64;

TEST(TransferBuffer, GivesRangesThatDoNotTouchEachOther) {
  TransferBuffer buffer = TransferBuffer::create(kBytes).value();
  const size_t first = buffer.take(100).value();
  const size_t second = buffer.take(100).value();
  EXPECT_NE(first, second);
  std::fill_n(buffer.range(first, 100).begin(), 100, std::byte{1});
  std::fill_n(buffer.range(second, 100).begin(), 100, std::byte{2});
  EXPECT_EQ(
      std::count(buffer.range(first, 100).begin(), buffer.range(first, 100).end(), std::byte{1}),
      100);
}

TEST(TransferBuffer, HasNothingWhenItIsFullAndAllOfItAgainAfterwards) {
  TransferBuffer buffer = TransferBuffer::create(kBytes).value();
  ASSERT_EQ(buffer.bytes(), kBytes);
  EXPECT_EQ(buffer.take(kBytes + 1), std::nullopt);
  const std::optional<size_t> all = buffer.take(kBytes);
  ASSERT_EQ(all, 0U);
  EXPECT_EQ(buffer.take(1), std::nullopt);
  buffer.give_back(*all, kBytes);
  EXPECT_EQ(buffer.take(kBytes), 0U);
}

TEST(TransferBuffer, ARangeOfNothingIsStillOneOfItsOwn) {
  TransferBuffer buffer = TransferBuffer::create(kBytes).value();
  const size_t nothing = buffer.take(0).value();
  EXPECT_NE(buffer.take(1).value(), nothing);
  buffer.give_back(nothing, 0);
  EXPECT_EQ(buffer.take(kAlignment), nothing);
}

// Another process maps it by its descriptor.
TEST(TransferBuffer, ItsDescriptorIsTheSameMemory) {
  TransferBuffer buffer = TransferBuffer::create(kBytes).value();
  const size_t offset = buffer.take(10).value();
  buffer.range(offset, 10)[3] = std::byte{42};
  void* const memory = ::mmap(nullptr, buffer.bytes(), PROT_READ, MAP_SHARED, buffer.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(static_cast<const std::byte*>(memory)[offset + 3], std::byte{42});
  ::munmap(memory, buffer.bytes());
}

// Against a list of what is out: no two ranges overlap, all are aligned and inside, and nothing is
// refused that fits into the free space in front of, between or behind them.
TEST(TransferBuffer, RandomRangesEqualAModel) {
  TransferBuffer buffer = TransferBuffer::create(kBytes).value();
  Random random(11);
  std::map<size_t, size_t> out;  // offset → bytes asked for
  const auto footprint = [](size_t bytes) {
    return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  };
  const auto largest_gap = [&] {
    size_t gap = 0;
    size_t end = 0;
    for (const auto& [offset, bytes] : out) {
      gap = std::max(gap, offset - end);
      end = offset + footprint(bytes);
    }
    return std::max(gap, kBytes - end);
  };
  uint32_t refused = 0;
  for (int step = 0; step < 50'000; ++step) {
    if (out.empty() || random.chance(0.55)) {
      const size_t bytes = random.chance(0.1) ? random.below(kBytes / 4) : random.below(20'000);
      const size_t gap = largest_gap();
      const std::optional<size_t> offset = buffer.take(bytes);
      ASSERT_EQ(offset.has_value(), footprint(bytes) <= gap) << bytes << " of " << gap;
      if (!offset) {
        ++refused;
        continue;
      }
      ASSERT_EQ(*offset % kAlignment, 0U);
      ASSERT_LE(*offset + footprint(bytes), kBytes);
      const auto [place, is_new] = out.emplace(*offset, bytes);
      ASSERT_TRUE(is_new);
      const auto next = std::next(place);
      if (next != out.end()) {
        ASSERT_LE(*offset + footprint(bytes), next->first);
      }
      if (place != out.begin()) {
        const auto before = std::prev(place);
        ASSERT_LE(before->first + footprint(before->second), *offset);
      }
    } else {
      const auto chosen = std::next(out.begin(), static_cast<ptrdiff_t>(random.below(out.size())));
      buffer.give_back(chosen->first, chosen->second);
      out.erase(chosen);
    }
  }
  EXPECT_GT(refused, 0U);
  for (const auto& [offset, bytes] : out) buffer.give_back(offset, bytes);
  EXPECT_EQ(buffer.take(kBytes), 0U) << "all of it has come together again";
}

}  // namespace
}  // namespace tiercel
