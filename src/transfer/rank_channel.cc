// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_channel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>

#include "base/assert.h"

namespace tiercel {
namespace {

constexpr std::array<char, 8> kMagic = {'t', 'i', 'e', 'r', 'c', 'h', 'a', 'n'};

constexpr size_t to_cache_lines(size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

constexpr size_t kWordsOffset = to_cache_lines(sizeof(ChannelHeader));
constexpr size_t kRingsOffset = kWordsOffset + to_cache_lines(sizeof(ChannelWords));

size_t ops_bytes(uint32_t ring_ops) { return to_cache_lines(spsc_ring_bytes<BlockOp>(ring_ops)); }

ChannelHeader header_of(const ChannelFacts& facts) {
  return {.magic = kMagic,
          .version = kRankProtocolVersion,
          .header_bytes = kRingsOffset,
          .op_bytes = sizeof(BlockOp),
          .completion_bytes = sizeof(Completion),
          .ring_ops = facts.ring_ops,
          .rank = facts.rank,
          .channel_bytes = RankChannel::bytes(facts.ring_ops),
          .geometry = facts.geometry};
}

Error differs(const std::string& field, uint64_t value, uint64_t wanted) {
  return Error(Code::kInvalid, "rank channel: " + field + " is " + std::to_string(value) +
                                   "; allowed: " + std::to_string(wanted) +
                                   ", as the handshake and this build have it");
}

}  // namespace

Status check_ring_ops(uint32_t ring_ops) {
  if (std::has_single_bit(ring_ops) && ring_ops >= kRingOpsMin && ring_ops <= kRingOpsMax) {
    return {};
  }
  return Error(Code::kInvalid, "ring_ops is " + std::to_string(ring_ops) +
                                   "; allowed: a power of two from 2 to 2^20");
}

size_t RankChannel::bytes(uint32_t ring_ops) {
  return kRingsOffset + ops_bytes(ring_ops) + spsc_ring_bytes<Completion>(ring_ops);
}

RankChannel::RankChannel(std::span<std::byte> memory, uint32_t ring_ops)
    : memory_(memory),
      ring_ops_(ring_ops),
      words_(std::launder(reinterpret_cast<ChannelWords*>(memory.data() + kWordsOffset))) {}

RankChannel RankChannel::format(std::span<std::byte> memory, const ChannelFacts& facts) {
  TIERCEL_ASSERT(check_ring_ops(facts.ring_ops).has_value(), "ring_ops is not allowed");
  TIERCEL_ASSERT(memory.size() >= bytes(facts.ring_ops), "channel memory is too small");
  TIERCEL_ASSERT(std::bit_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0,
                 "channel memory is not aligned to a cache line");
  const ChannelHeader header = header_of(facts);
  std::memcpy(memory.data(), &header, sizeof(header));
  new (memory.data() + kWordsOffset) ChannelWords();
  const RankChannel channel(memory, facts.ring_ops);
  format_spsc_ring(channel.ops_memory());
  format_spsc_ring(channel.completions_memory());
  return channel;
}

Result<RankChannel> RankChannel::open(std::span<std::byte> memory, const ChannelFacts& facts) {
  TIERCEL_TRY(check_ring_ops(facts.ring_ops));
  if (memory.size() < bytes(facts.ring_ops)) {
    return differs("length in bytes", memory.size(), bytes(facts.ring_ops));
  }
  if (std::bit_cast<uintptr_t>(memory.data()) % kCacheLineBytes != 0) {
    return differs("misalignment", std::bit_cast<uintptr_t>(memory.data()) % kCacheLineBytes, 0);
  }
  // A copy: what is checked is what is used, whatever the other side writes meanwhile.
  ChannelHeader header;
  std::memcpy(&header, memory.data(), sizeof(header));
  const ChannelHeader wanted = header_of(facts);
  if (header.magic != wanted.magic) {
    return Error(Code::kInvalid, "rank channel: the memory does not begin with the magic word");
  }
  if (header.version != wanted.version) return differs("version", header.version, wanted.version);
  if (header.header_bytes != wanted.header_bytes) {
    return differs("header_bytes", header.header_bytes, wanted.header_bytes);
  }
  if (header.op_bytes != wanted.op_bytes) {
    return differs("op_bytes", header.op_bytes, wanted.op_bytes);
  }
  if (header.completion_bytes != wanted.completion_bytes) {
    return differs("completion_bytes", header.completion_bytes, wanted.completion_bytes);
  }
  if (header.ring_ops != wanted.ring_ops) {
    return differs("ring_ops", header.ring_ops, wanted.ring_ops);
  }
  if (header.rank != wanted.rank) return differs("rank", header.rank, wanted.rank);
  if (header.channel_bytes != wanted.channel_bytes) {
    return differs("channel_bytes", header.channel_bytes, wanted.channel_bytes);
  }
  if (header.geometry != wanted.geometry) {
    return Error(Code::kInvalid, "rank channel: it is of another slot geometry");
  }
  return RankChannel(memory, facts.ring_ops);
}

std::span<std::byte> RankChannel::ops_memory() const {
  return memory_.subspan(kRingsOffset, ops_bytes(ring_ops_));
}

std::span<std::byte> RankChannel::completions_memory() const {
  return memory_.subspan(kRingsOffset + ops_bytes(ring_ops_),
                         spsc_ring_bytes<Completion>(ring_ops_));
}

void RankChannel::ask_to_close(Duration budget) const {
  words_->close_within_ns.store(budget.count(), std::memory_order_relaxed);
  words_->closing.store(1, std::memory_order_release);
}

Duration RankChannel::close_budget() const {
  return std::max(Duration(words_->close_within_ns.load(std::memory_order_relaxed)),
                  Duration::zero());
}

}  // namespace tiercel
