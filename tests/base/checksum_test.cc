// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <cstring>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> random_bytes(size_t size, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// Bit by bit from the definition: reflected polynomial 0x82F63B78, start and result inverted.
uint32_t crc32c_by_definition(std::span<const std::byte> bytes) {
  uint32_t state = 0xFFFFFFFF;
  for (std::byte byte : bytes) {
    state ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~state;
}

TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c_portable(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c_portable({}), 0u);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);
}

TEST(Crc32c, AllShortLengthsAndAlignmentsAgreeWithTheDefinition) {
  const std::vector<std::byte> bytes = random_bytes(400, 1);
  for (size_t offset = 0; offset < 17; ++offset) {
    for (size_t length = 0; length <= 300; ++length) {
      const auto part = std::span(bytes).subspan(offset, length);
      const uint32_t expected = crc32c_by_definition(part);
      ASSERT_EQ(crc32c(part), expected) << offset << " " << length;
      ASSERT_EQ(crc32c_portable(part), expected) << offset << " " << length;
    }
  }
}

TEST(Crc32c, LongPartsAgreeWithThePortableKernel) {
  const std::vector<std::byte> bytes = random_bytes(300'000, 2);
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const size_t offset = random.below(100);
    const size_t length = random.below(bytes.size() - offset + 1);
    const auto part = std::span(bytes).subspan(offset, length);
    const auto start = static_cast<uint32_t>(random.next());
    ASSERT_EQ(crc32c(part, start), crc32c_portable(part, start)) << offset << " " << length;
  }
}

TEST(Crc32c, ContinuesAcrossEverySplit) {
  const std::vector<std::byte> bytes = random_bytes(300, 4);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = crc32c(all);
  for (size_t split = 0; split <= bytes.size(); ++split) {
    EXPECT_EQ(crc32c(all.subspan(split), crc32c(all.first(split))), whole) << split;
    EXPECT_EQ(crc32c_portable(all.subspan(split), crc32c(all.first(split))), whole) << split;
  }
}

TEST(Crc32c, EveryFlippedBitChangesIt) {
  std::vector<std::byte> bytes = random_bytes(200, 5);
  const uint32_t whole = crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1 << (bit % 8));
    bytes[bit / 8] ^= mask;
    EXPECT_NE(crc32c(bytes), whole) << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(CopyWithCrc32c, CopiesAndChecksumsAllSizesAndAlignments) {
  const std::vector<std::byte> source = random_bytes(200'000, 6);
  std::vector<size_t> sizes;
  for (size_t size = 0; size <= 300; ++size) sizes.push_back(size);
  for (size_t piece : {16384u, 32768u, 65536u, 131072u}) {
    for (size_t size : {piece - 1, piece, piece + 1, piece + 17}) sizes.push_back(size);
  }
  Random random(7);
  for (size_t size : sizes) {
    const size_t source_offset = random.below(64);
    const size_t target_offset = random.below(64);
    const auto part = std::span(source).subspan(source_offset, size);
    std::vector<std::byte> target(target_offset + size + 8, std::byte{0xA5});
    const auto start = static_cast<uint32_t>(random.next());
    ASSERT_EQ(copy_with_crc32c(part, std::span(target).subspan(target_offset, size), start),
              crc32c_portable(part, start))
        << size;
    ASSERT_EQ(std::memcmp(target.data() + target_offset, part.data(), size), 0) << size;
    for (size_t i = 0; i < target_offset; ++i) ASSERT_EQ(target[i], std::byte{0xA5});
    for (size_t i = target_offset + size; i < target.size(); ++i) {
      ASSERT_EQ(target[i], std::byte{0xA5});
    }
  }
}

TEST(CopyWithCrc32c, ContinuesAcrossCalls) {
  const std::vector<std::byte> source = random_bytes(100'000, 8);
  std::vector<std::byte> target(source.size());
  const std::span<const std::byte> from(source);
  const std::span<std::byte> to(target);
  uint32_t checksum = copy_with_crc32c(from.first(40'001), to.first(40'001));
  checksum = copy_with_crc32c(from.subspan(40'001), to.subspan(40'001), checksum);
  EXPECT_EQ(checksum, crc32c(source));
  EXPECT_EQ(target, source);
}

TEST(CopyWithCrc32cDeathTest, UnequalSizesAssert) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<std::byte> source(8);
  std::vector<std::byte> target(7);
  EXPECT_DEATH(copy_with_crc32c(source, target), "equal sizes");
}

}  // namespace
}  // namespace tiercel
