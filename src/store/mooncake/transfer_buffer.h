// SPDX-License-Identifier: Apache-2.0
//
// TransferBuffer: shared memory through which objects go whose own memory another process cannot
// map. First fit; ranges are few and live shortly.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "tiercel/status.h"

#include "base/arena.h"

namespace tiercel {

class TransferBuffer {
 public:
  // kNoSpace as Arena::create. No page is used before it is needed.
  static Result<TransferBuffer> create(size_t bytes);

  // What `bytes` take of it.
  static size_t aligned(size_t bytes) {
    return (bytes + kAlignmentBytes - 1) & ~(kAlignmentBytes - 1);
  }
  // The offset of `bytes` of it; nothing if there is no such range now.
  std::optional<size_t> take(size_t bytes);
  // What take() has given.
  void give_back(size_t offset, size_t bytes);

  std::span<std::byte> range(size_t offset, size_t bytes) {
    return arena_->memory().subspan(offset, bytes);
  }
  size_t bytes() const { return arena_->memory().size(); }
  int fd() const { return arena_->fd(); }

 private:
  explicit TransferBuffer(std::unique_ptr<Arena> arena);
  static constexpr size_t kAlignmentBytes = 64;

  std::unique_ptr<Arena> arena_;
  std::map<size_t, size_t> free_;  // offset → length; never two that touch
};

}  // namespace tiercel
