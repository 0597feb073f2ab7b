// SPDX-License-Identifier: Apache-2.0
//
// RankChannel: the memory between the control plane and one rank: a header that both sides check,
// words for waking and closing, statistics, and two rings.
//
//   [ header | words | ring of operations | ring of completions ]
//
// It holds no addresses, so that two processes may map it where they like; a rank worker's thread
// in the same process uses the same layout on ordinary memory. Neither side trusts a word of it:
// sizes come from what the two sides agreed on, never from the memory (spsc_ring.h), and every word
// has a harmless meaning for every value.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tiercel/clock.h"
#include "tiercel/status.h"
#include "tiercel/transfer.h"

#include "key/sha256.h"
#include "transfer/shared_reason.h"
#include "transfer/shared_stats.h"
#include "transfer/spsc_ring.h"
#include "transfer/wake_flag.h"

namespace tiercel {

// Of the channel and of the handshake that passes it. Anything that changes the meaning of a shared
// byte bumps it: both sides are of one build, or they refuse each other.
inline constexpr uint32_t kRankProtocolVersion = 2;

inline constexpr uint32_t kRingOpsMin = 2;
inline constexpr uint32_t kRingOpsMax = 1u << 20;
// kInvalid unless `ring_ops` is a power of two in the range.
Status check_ring_ops(uint32_t ring_ops);

// What both sides know of a channel before either looks into it.
struct ChannelFacts {
  uint32_t ring_ops = 0;  // capacity of either ring
  uint32_t rank = 0;
  Sha256Digest geometry{};  // which slots the operations speak of

  friend bool operator==(const ChannelFacts&, const ChannelFacts&) = default;
};

struct ChannelHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t op_bytes;
  uint32_t completion_bytes;
  uint32_t ring_ops;
  uint32_t rank;
  uint64_t channel_bytes;
  Sha256Digest geometry;
};
static_assert(std::is_trivially_copyable_v<ChannelHeader> && sizeof(ChannelHeader) == 72);

struct ChannelWords {
  alignas(kCacheLineBytes) WakeWord rank_sleeps{0};  // in poll(2), woken by its eventfd
  alignas(kCacheLineBytes) WakeWord announced{0};    // completions, through the reader's eventfd
  alignas(kCacheLineBytes) WakeWord closing{0};      // close_within_ns is set
  std::atomic<int64_t> close_within_ns{0};
  alignas(kCacheLineBytes) SharedStats stats;
  alignas(kCacheLineBytes) SharedReason store_reason;
};

// A view; the memory outlives it, aligned to a cache line. Copies view the same memory.
class RankChannel {
 public:
  static size_t bytes(uint32_t ring_ops);

  // Makes an empty channel; before any other use.
  static RankChannel format(std::span<std::byte> memory, const ChannelFacts& facts);

  // A channel that the other side has formatted: kInvalid with the field that differs from what was
  // agreed on, both values among the words.
  static Result<RankChannel> open(std::span<std::byte> memory, const ChannelFacts& facts);

  uint32_t ring_ops() const { return ring_ops_; }
  ChannelWords& words() const { return *words_; }
  std::span<std::byte> ops_memory() const;
  std::span<std::byte> completions_memory() const;

  // Asks the rank to close within `budget` from when it reads it: a span of time, because the two
  // sides need not have the same clock.
  void ask_to_close(Duration budget) const;
  bool asked_to_close() const { return words_->closing.load(std::memory_order_acquire) != 0; }
  // Not below zero.
  Duration close_budget() const;

 private:
  RankChannel(std::span<std::byte> memory, uint32_t ring_ops);

  std::span<std::byte> memory_;
  uint32_t ring_ops_;
  ChannelWords* words_;
};

}  // namespace tiercel
