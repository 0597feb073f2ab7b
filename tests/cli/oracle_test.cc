// SPDX-License-Identifier: Apache-2.0
#include "cli/oracle.h"

#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

OracleBlock block_of(uint8_t key_byte, uint8_t group = 0, uint16_t rank = 0) {
  OracleBlock block;
  block.key.bytes.fill(std::byte{key_byte});
  block.group = GroupId(group);
  block.rank = rank;
  return block;
}

std::vector<std::byte> filled(const OracleBlock& block, size_t length) {
  std::vector<std::byte> bytes(length);
  fill_oracle(block, bytes);
  return bytes;
}

TEST(Oracle, ABlockStartsAndEndsWithItsKey) {
  const OracleBlock block = block_of(0xab);
  for (const size_t length : {64u, 65u, 100u, 4096u, 70000u}) {
    const auto bytes = filled(block, length);
    EXPECT_EQ(std::memcmp(bytes.data(), block.key.bytes.data(), 32), 0);
    EXPECT_EQ(std::memcmp(bytes.data() + length - 32, block.key.bytes.data(), 32), 0);
  }
}

TEST(Oracle, WhatWasFilledIsFound) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const OracleBlock block = block_of(static_cast<uint8_t>(random.next()));
    const auto bytes = filled(block, random.between(64, 20000));
    EXPECT_FALSE(find_oracle_mismatch(block, bytes).has_value());
  }
}

TEST(Oracle, EveryFlippedBitIsFoundAtItsOffset) {
  const OracleBlock block = block_of(3, 1, 2);
  auto bytes = filled(block, 203);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(find_oracle_mismatch(block, bytes), bit / 8);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

TEST(Oracle, TheFirstOfSeveralDifferencesIsReported) {
  const OracleBlock block = block_of(3);
  auto bytes = filled(block, 50000);
  bytes[49999] ^= std::byte{1};
  EXPECT_EQ(find_oracle_mismatch(block, bytes), 49999u);
  bytes[12345] ^= std::byte{1};
  EXPECT_EQ(find_oracle_mismatch(block, bytes), 12345u);
}

TEST(Oracle, KeyGroupRankAndLengthAllCount) {
  for (const size_t length : {64u, 4096u}) {
    const auto bytes = filled(block_of(3, 0, 0), length);
    EXPECT_TRUE(find_oracle_mismatch(block_of(4, 0, 0), bytes).has_value());
    EXPECT_TRUE(find_oracle_mismatch(block_of(3, 1, 0), bytes).has_value());
    EXPECT_TRUE(find_oracle_mismatch(block_of(3, 0, 1), bytes).has_value());
  }
  const auto longer = filled(block_of(3), 4096);
  EXPECT_TRUE(find_oracle_mismatch(block_of(3), std::span(longer).first(4000)).has_value());
}

TEST(Oracle, NoTwoPiecesOfABlockAreAlike) {
  const auto bytes = filled(block_of(3), 1 << 20);
  std::set<uint64_t> words;
  const size_t count = bytes.size() / 8 - 8;
  for (size_t i = 4; i < 4 + count; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), count);
}

}  // namespace
}  // namespace tiercel
