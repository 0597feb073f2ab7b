// SPDX-License-Identifier: Apache-2.0
//
// The fields of a KvSpec as tables: KvSpec::validate, the writer and the reader of key documents
// walk the same tables, so that no field can be checked here and forgotten there. The order is the
// order of the key document and part of the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tiercel/kv_spec.h"
#include "tiercel/status.h"

namespace tiercel {

inline constexpr uint32_t kSpecTextBytesMax = 65536;
inline constexpr uint32_t kBlockTokensMax = 65536;

struct SpecTextField {
  const char* name;
  std::string KvSpec::*member;
  bool may_be_empty;
};

inline constexpr std::array<SpecTextField, 6> kSpecTextFields = {{
    {"model_id", &KvSpec::model_id, false},
    {"weights_revision", &KvSpec::weights_revision, false},
    {"kv_dtype", &KvSpec::kv_dtype, false},
    {"kv_scale_scheme", &KvSpec::kv_scale_scheme, false},
    {"positional_scheme", &KvSpec::positional_scheme, true},
    {"layout_tag", &KvSpec::layout_tag, true},
}};

// After the attention kind, which stands first in a group's record.
struct GroupNumberField {
  const char* name;
  uint32_t GroupSpec::*member;
  uint32_t maximum;
};

inline constexpr std::array<GroupNumberField, 5> kGroupNumberFields = {{
    {"layer_count", &GroupSpec::layer_count, 4096},
    {"kv_head_count", &GroupSpec::kv_head_count, 65536},
    {"head_dim_k", &GroupSpec::head_dim_k, 65536},
    {"head_dim_v", &GroupSpec::head_dim_v, 65536},
    {"window_tokens", &GroupSpec::window_tokens, UINT32_MAX},
}};

// Each is kInvalid with name, value and allowed range, or ok.
Status check_spec_text_size(const SpecTextField& field, size_t bytes);
Status check_block_tokens(uint32_t block_tokens);
Status check_group_count(size_t count);
Status check_attention(size_t group, uint32_t attention);
// The group's attention kind must be set already.
Status check_group_number(size_t group, const GroupNumberField& field, const GroupSpec& spec);

}  // namespace tiercel
