// SPDX-License-Identifier: Apache-2.0
//
// KvSpec: the engine-level facts that decide what the bytes of a KV block mean.
//
// Two engines may share blocks only if all of these facts agree. The key document (docs/format.md)
// encodes them canonically; its SHA-256 is the namespace, the root of every block key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

enum class AttentionKind : uint8_t {
  kMha = 1,
  kGqa = 2,
  kMla = 3,     // one latent per token, equal on every tensor-parallel rank
  kWindow = 4,  // sees only the last `window_tokens` tokens
};

// Layers that share one kind of attention and one block table.
struct GroupSpec {
  AttentionKind attention = AttentionKind::kGqa;
  uint32_t layer_count = 1;    // 1 to 4096
  uint32_t kv_head_count = 1;  // over all ranks; 1 to 65536
  uint32_t head_dim_k = 128;   // elements; 1 to 65536
  uint32_t head_dim_v = 128;   // elements; 0 where V is part of K (MLA)
  uint32_t window_tokens = 0;  // > 0 exactly if attention is kWindow

  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

struct KvSpec {
  std::string model_id;          // as the engine names it; not empty
  std::string weights_revision;  // what the user sets, or a digest of the files; not empty
  std::string kv_dtype;          // element type in the cache, such as "bf16", "fp8_e4m3"; not empty
  std::string kv_scale_scheme;   // how scales are kept, such as "none", "per_tensor"; not empty
  uint32_t block_tokens = 16;    // tokens of a full block; 1 to 65536
  std::string positional_scheme;  // only if it changes KV, such as "rope:theta=10000"; may be empty
  std::string layout_tag;         // names an opaque layout such as "cpu-amx-pack"; may be empty
  std::vector<GroupSpec> groups;  // 1 to kGroupCountMax

  friend bool operator==(const KvSpec&, const KvSpec&) = default;

  // kInvalid with the field's name, its value and the allowed range; ok if the spec can be used.
  Status validate() const;
};

}  // namespace tiercel
