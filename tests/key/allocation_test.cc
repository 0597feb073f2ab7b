// SPDX-License-Identifier: Apache-2.0
//
// What is promised to allocate nothing is watched by a global operator new that
// counts.

#include <vector>

#include <gtest/gtest.h>

#include "tiercel/frame.h"
#include "tiercel/key.h"

#include "key/samples.h"
#include "support/allocation_count.h"

namespace tiercel {
namespace {

template <typename Function>
size_t allocations_of(const Function& function) {
  const size_t before = allocation_count;
  function();
  return allocation_count - before;
}

TEST(Allocation, TheCountSeesAllocations) {
  EXPECT_GT(allocations_of([] { std::vector<int> numbers(100); }), 0u);
}

TEST(Allocation, BlockKeysOfAnySizeAllocateNothing) {
  const BlockKey parent{};
  for (const size_t count : {16u, 512u, 65536u}) {
    const std::vector<TokenId> tokens(count, 1);
    const std::vector<BlockExtra> extras = {{"image", "content", 3}};
    EXPECT_EQ(allocations_of([&] {
                (void)chain_block_key(parent, tokens, extras);
                (void)partial_block_key(parent, tokens);
              }),
              0u);
  }
}

TEST(Allocation, ObjectKeysAllocateNothing) {
  EXPECT_EQ(allocations_of([] {
              const ObjectKey key({}, GroupId(1), Slice{}, {});
              (void)ObjectKey::parse(key.text());
            }),
            0u);
}

TEST(Allocation, CheckingAFrameAllocatesNothingWhateverItHolds) {
  Frame frame;
  frame.token_count = 16;
  std::array<std::byte, kFrameBytes> bytes;
  encode_frame(frame, bytes);
  uint32_t checksum = 0;
  EXPECT_EQ(allocations_of([&] { (void)check_frame(bytes, frame, &checksum); }), 0u);
  for (const size_t offset : {0u, 8u, 16u, 100u, 191u}) {
    bytes[offset] ^= std::byte{1};
    EXPECT_EQ(allocations_of([&] { (void)check_frame(bytes, frame, &checksum); }), 0u);
    bytes[offset] ^= std::byte{1};
  }
}

TEST(Allocation, SequenceOfTextAllocatesOnlyForItsKeys) {
  const std::vector<TokenId> tokens(1600, 1);
  EXPECT_EQ(allocations_of([&] {
              Sequence sequence({}, 16);
              sequence.append(tokens);
            }),
            1u);
}

}  // namespace
}  // namespace tiercel
