// SPDX-License-Identifier: Apache-2.0
#include "cli/oracle.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "cli/mix.h"

namespace tiercel {
namespace {

constexpr size_t kKeyBytes = sizeof(BlockKey);
// Compared in pieces of this size, which stay in the first-level cache.
constexpr size_t kPieceWords = 512;

// Word i of the content is scramble(seed + (i + 1) × odd constant): one multiplication a word.
class Content {
 public:
  Content(const OracleBlock& block, size_t length) {
    std::array<uint64_t, kKeyBytes / sizeof(uint64_t)> words{};
    std::memcpy(words.data(), block.key.bytes.data(), kKeyBytes);
    counter_ = mix64(length ^ (uint64_t{block.group.value()} << 56) ^ (uint64_t{block.rank} << 40));
    for (uint64_t word : words) counter_ = mix64(counter_ ^ word);
  }

  void write(std::span<std::byte> out) {
    uint64_t counter = counter_;
    size_t offset = 0;
    for (; offset + sizeof(uint64_t) <= out.size(); offset += sizeof(uint64_t)) {
      counter += kGoldenRatio64;
      const uint64_t word = scramble(counter);
      std::memcpy(out.data() + offset, &word, sizeof(word));
    }
    if (offset < out.size()) {
      counter += kGoldenRatio64;
      const uint64_t word = scramble(counter);
      std::memcpy(out.data() + offset, &word, out.size() - offset);
    }
    counter_ = counter;
  }

 private:
  static uint64_t scramble(uint64_t x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 29);
  }

  uint64_t counter_ = 0;
};

BlockKey tail_of(const OracleBlock& block) {
  BlockKey tail = block.key;
  uint64_t word = 0;
  std::byte* last = tail.bytes.data() + kKeyBytes - sizeof(word);
  std::memcpy(&word, last, sizeof(word));
  word += uint64_t{block.rank} + (uint64_t{block.group.value()} << 32);
  std::memcpy(last, &word, sizeof(word));
  return tail;
}

std::optional<size_t> first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return std::nullopt;
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

}  // namespace

void fill_oracle(const OracleBlock& block, std::span<std::byte> bytes) {
  TIERCEL_ASSERT(bytes.size() >= kOracleBytesMin, "a block has room for its key twice");
  std::memcpy(bytes.data(), block.key.bytes.data(), kKeyBytes);
  Content content(block, bytes.size());
  content.write(bytes.subspan(kKeyBytes, bytes.size() - 2 * kKeyBytes));
  std::memcpy(bytes.data() + bytes.size() - kKeyBytes, tail_of(block).bytes.data(), kKeyBytes);
}

std::optional<size_t> find_oracle_mismatch(const OracleBlock& block,
                                           std::span<const std::byte> bytes) {
  TIERCEL_ASSERT(bytes.size() >= kOracleBytesMin, "a block has room for its key twice");
  if (const auto at = first_difference(bytes.first(kKeyBytes), block.key.bytes)) return at;
  Content content(block, bytes.size());
  const size_t middle_end = bytes.size() - kKeyBytes;
  std::array<std::byte, kPieceWords * sizeof(uint64_t)> expected;
  for (size_t offset = kKeyBytes; offset < middle_end; offset += expected.size()) {
    const auto piece = std::span(expected).first(std::min(expected.size(), middle_end - offset));
    content.write(piece);
    if (const auto at = first_difference(bytes.subspan(offset, piece.size()), piece)) {
      return offset + *at;
    }
  }
  if (const auto at = first_difference(bytes.last(kKeyBytes), tail_of(block).bytes)) {
    return middle_end + *at;
  }
  return std::nullopt;
}

}  // namespace tiercel
