// SPDX-License-Identifier: Apache-2.0
//
// FreeSlotMap: one bit for each slot id, with summaries above it, so that the next set bit is found
// in constant time however long the map is: a bit of a level says whether the 64-bit word under it
// has any.
//
// Memory: a little over one bit a slot. Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tiercel {

class FreeSlotMap {
 public:
  // All `size` bits set.
  explicit FreeSlotMap(uint32_t size);

  bool test(uint32_t position) const {
    return (levels_[0][position / 64] >> (position % 64) & 1) != 0;
  }
  void set(uint32_t position);
  void clear(uint32_t position);
  // The first set bit at or behind `position`; nullopt if there is none.
  std::optional<uint32_t> next_set(uint32_t position) const;

 private:
  uint32_t size_;
  std::vector<std::vector<uint64_t>> levels_;  // [0] has the bits, the last one has a single word
};

}  // namespace tiercel
