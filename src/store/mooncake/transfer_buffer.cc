// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/transfer_buffer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tiercel {

Result<TransferBuffer> TransferBuffer::create(size_t bytes) {
  ArenaOptions options;
  options.kind = ArenaKind::kMemfd;
  options.name = "mooncake transfers";
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Arena> arena, Arena::create(aligned(bytes), options));
  return TransferBuffer(std::move(arena));
}

TransferBuffer::TransferBuffer(std::unique_ptr<Arena> arena) : arena_(std::move(arena)) {
  free_[0] = this->bytes();
}

std::optional<size_t> TransferBuffer::take(size_t bytes) {
  const size_t wanted = std::max(aligned(bytes), kAlignmentBytes);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& range) { return range.second >= wanted; });
  if (found == free_.end()) return std::nullopt;
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > wanted) free_[offset + wanted] = length - wanted;
  return offset;
}

void TransferBuffer::give_back(size_t offset, size_t bytes) {
  auto range = free_.emplace(offset, std::max(aligned(bytes), kAlignmentBytes)).first;
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second == range->first) {
    before->second += range->second;
    free_.erase(range);
  }
}

}  // namespace tiercel
