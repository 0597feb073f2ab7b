// SPDX-License-Identifier: Apache-2.0
//
// TinyConfig: the shape of the example's decoder, and what of it decides the bytes of its KV.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tiercel/kv_spec.h"
#include "tiercel/status.h"

namespace tiercel::tiny {

// Element type of the KV tensors; the arithmetic is fp32 in both.
enum class KvType : uint8_t { kFp32, kBf16 };
// "fp32", "bf16"
std::string_view to_string(KvType type);

// Layers with full attention, and layers with a window.
inline constexpr uint32_t kTinyGroupsMax = 2;

struct TinyConfig {
  uint32_t layers = 2;        // 1 to 64
  uint32_t hidden = 32;       // width of the residual stream; 1 to 4096
  uint32_t heads = 4;         // query heads; a multiple of kv_heads
  uint32_t kv_heads = 2;      // a multiple of rank_count
  uint32_t head_dim = 8;      // even, 2 to 256: rotary positions turn pairs
  uint32_t mlp = 64;          // width of the gated MLP; a multiple of rank_count, up to 16384
  uint32_t vocabulary = 128;  // 2 to 65536
  uint32_t block_tokens = 8;  // 1 to 1024
  float rope_theta = 10000;   // above 1
  KvType kv_type = KvType::kFp32;
  uint32_t rank_count = 1;  // ranks that share the heads and the columns of the MLP
  // The last so many layers see only the last window_tokens tokens, and are a group of their own.
  uint32_t window_layers = 0;             // fewer than layers
  uint32_t window_tokens = 20;            // 1 to 65536
  std::string model_id = "tiercel-tiny";  // of the namespace

  uint32_t group_count() const { return window_layers == 0 ? 1 : kTinyGroupsMax; }
  uint32_t group_of(uint32_t layer) const { return layer + window_layers < layers ? 0 : 1; }
  uint32_t first_layer(uint32_t group) const { return group == 0 ? 0 : layers - window_layers; }
  uint32_t end_layer(uint32_t group) const { return group == 0 ? layers - window_layers : layers; }
  // The first position that a token at `position` sees in the layers of this group.
  uint64_t first_seen(uint32_t group, uint64_t position) const {
    return group == 0 || position < window_tokens ? 0 : position + 1 - window_tokens;
  }

  uint32_t rank_heads() const { return heads / rank_count; }
  uint32_t rank_kv_heads() const { return kv_heads / rank_count; }
  uint32_t rank_mlp() const { return mlp / rank_count; }

  // kInvalid with the field's name, its value and what is allowed.
  Status validate() const;
};

// The facts behind the namespace of a model with these weights. `layout_order` as
// DeviceLayout::order().
KvSpec kv_spec(const TinyConfig& config, uint64_t weights_seed, const std::string& layout_order);

}  // namespace tiercel::tiny
