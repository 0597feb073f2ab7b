// SPDX-License-Identifier: Apache-2.0
//
// SharedReason: a ReasonText that one thread sets and threads of any process read.
//
// Threads: one writes, any read. No lock: a reader that meets a writer looks again, and takes the
// text as empty when it is unlucky again and again. From a writer that lies it gets a text that
// nobody wrote, printable and of its bounded length.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "tiercel/health.h"

namespace tiercel {

class SharedReason {
 public:
  void set(const ReasonText& reason) {
    const auto words = std::bit_cast<Words>(reason);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // Whoever sees one of these sees that the version is odd.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  ReasonText get() const {
    for (int look = 0; look < kLooksMax; ++look) {
      const uint64_t version = version_.load(std::memory_order_acquire);
      Words words;
      for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
      return ReasonText::of(std::bit_cast<ReasonText>(words).view());
    }
    return {};
  }

 private:
  static constexpr int kLooksMax = 100;
  static constexpr size_t kWords = sizeof(ReasonText) / sizeof(uint64_t);
  using Words = std::array<uint64_t, kWords>;
  static_assert(sizeof(Words) == sizeof(ReasonText));

  std::atomic<uint64_t> version_{0};  // odd while it is being written
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace tiercel
