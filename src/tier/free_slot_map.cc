// SPDX-License-Identifier: Apache-2.0
#include "tier/free_slot_map.h"

#include <bit>

namespace tiercel {

FreeSlotMap::FreeSlotMap(uint32_t size) : size_(size) {
  uint64_t bit_count = size;
  do {
    const uint64_t word_count = (bit_count + 63) / 64;
    levels_.emplace_back(word_count == 0 ? 1 : word_count, ~uint64_t{0});
    if (bit_count % 64 != 0) levels_.back().back() = (uint64_t{1} << (bit_count % 64)) - 1;
    if (bit_count == 0) levels_.back().back() = 0;
    bit_count = word_count;
  } while (bit_count > 1);
}

void FreeSlotMap::set(uint32_t position) {
  for (auto& level : levels_) {
    uint64_t& word = level[position / 64];
    const bool was_empty = word == 0;
    word |= uint64_t{1} << (position % 64);
    if (!was_empty) return;
    position /= 64;
  }
}

void FreeSlotMap::clear(uint32_t position) {
  for (auto& level : levels_) {
    uint64_t& word = level[position / 64];
    word &= ~(uint64_t{1} << (position % 64));
    if (word != 0) return;
    position /= 64;
  }
}

std::optional<uint32_t> FreeSlotMap::next_set(uint32_t position) const {
  if (position >= size_) return std::nullopt;
  // Up until a word has a set bit at or behind the position, then down along the first set bits.
  uint64_t at = position;
  for (size_t height = 0; height < levels_.size(); ++height) {
    if (at / 64 >= levels_[height].size()) return std::nullopt;
    const uint64_t rest = levels_[height][at / 64] & (~uint64_t{0} << (at % 64));
    if (rest == 0) {
      at = at / 64 + 1;
      continue;
    }
    at = at / 64 * 64 + static_cast<uint64_t>(std::countr_zero(rest));
    while (height-- > 0) {
      at = at * 64 + static_cast<uint64_t>(std::countr_zero(levels_[height][at]));
    }
    return static_cast<uint32_t>(at);
  }
  return std::nullopt;
}

}  // namespace tiercel
