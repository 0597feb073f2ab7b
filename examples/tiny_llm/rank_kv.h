// SPDX-License-Identifier: Apache-2.0
//
// RankKv: the paged KV tensors of one rank, as an engine keeps them: for each layer a tensor of
// keys and one of values, [block][token][KV head][element], all in one piece of memory. Layers with
// full attention and layers with a window are groups, and each group numbers its blocks for itself.
// Tiercel reads and writes the tensors through the layout; the model does so token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tiercel/device_layout.h"
#include "tiercel/ids.h"
#include "tiercel/status.h"

#include "base/arena.h"
#include "tiny_llm/tiny_config.h"

namespace tiercel::tiny {

enum class KvPart : uint8_t { kKey = 0, kValue = 1 };

// Where one token of a block stands.
struct KvPlace {
  uint32_t layer = 0;
  DeviceBlockId block;
  uint32_t token = 0;  // within the block
};

// Ownership: owns the memory, which stays where it is when the object is moved.
// Threads: the model's; rank workers read and write blocks that the model leaves alone meanwhile.
class RankKv {
 public:
  // kInvalid as TinyConfig::validate and for no blocks; kNoSpace as Arena::create. Zero-filled.
  static Result<RankKv> create(const TinyConfig& config, uint32_t block_count);

  Result<DeviceLayout> layout() const;
  uint32_t block_count() const { return block_count_; }
  // Of one block of a group: its layers, keys and values.
  uint64_t payload_bytes(uint32_t group) const;

  // Of one token in one tensor; a block of a tensor is its tokens, one behind the other.
  uint64_t token_bytes() const { return row_elements() * item_bytes_; }

  // All of this rank's KV heads of one token; `row` has rank_kv_heads × head_dim elements.
  void write(KvPart part, const KvPlace& place, std::span<const float> row);
  // One head of one token; `row` has head_dim elements.
  void read(KvPart part, const KvPlace& place, uint32_t kv_head, std::span<float> row) const;

  void fill(std::byte value);

  // One layer's share of a block, as it stands in memory.
  std::span<std::byte> block_bytes(KvPart part, uint32_t layer, DeviceBlockId block);
  std::span<const std::byte> block_bytes(KvPart part, uint32_t layer, DeviceBlockId block) const;

 private:
  RankKv() = default;
  uint64_t row_elements() const { return uint64_t{config_.rank_kv_heads()} * config_.head_dim; }
  uint64_t tensor_block_bytes() const { return token_bytes() * config_.block_tokens; }
  uint64_t tensor_offset(KvPart part, uint32_t layer) const;
  std::byte* address(KvPart part, const KvPlace& place, uint64_t element) const;

  std::unique_ptr<Arena> memory_;
  TinyConfig config_;
  uint32_t block_count_ = 0;
  uint32_t item_bytes_ = 0;
};

}  // namespace tiercel::tiny
