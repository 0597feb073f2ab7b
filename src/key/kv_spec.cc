// SPDX-License-Identifier: Apache-2.0

#include "tiercel/kv_spec.h"

#include "key/spec_field.h"

namespace tiercel {
namespace {

Error out_of_range(const std::string& what, const std::string& allowed) {
  return Error(Code::kInvalid, what + "; allowed: " + allowed);
}

std::string range_text(uint64_t minimum, uint64_t maximum) {
  return std::to_string(minimum) + " to " + std::to_string(maximum);
}

std::string group_field_name(size_t group, const char* name) {
  return "groups[" + std::to_string(group) + "]." + name;
}

}  // namespace

Status check_spec_text_size(const SpecTextField& field, size_t bytes) {
  if (bytes == 0 && !field.may_be_empty) {
    return out_of_range(std::string(field.name) + " is empty",
                        range_text(1, kSpecTextBytesMax) + " bytes");
  }
  if (bytes > kSpecTextBytesMax) {
    return out_of_range(std::string(field.name) + " has " + std::to_string(bytes) + " bytes",
                        range_text(field.may_be_empty ? 0 : 1, kSpecTextBytesMax) + " bytes");
  }
  return {};
}

Status check_block_tokens(uint32_t block_tokens) {
  if (block_tokens >= 1 && block_tokens <= kBlockTokensMax) return {};
  return out_of_range("block_tokens is " + std::to_string(block_tokens),
                      range_text(1, kBlockTokensMax));
}

Status check_group_count(size_t count) {
  if (count >= 1 && count <= kGroupCountMax) return {};
  return out_of_range("groups has " + std::to_string(count) + " entries",
                      range_text(1, kGroupCountMax));
}

Status check_attention(size_t group, uint32_t attention) {
  if (attention >= static_cast<uint32_t>(AttentionKind::kMha) &&
      attention <= static_cast<uint32_t>(AttentionKind::kWindow)) {
    return {};
  }
  return out_of_range(group_field_name(group, "attention") + " is " + std::to_string(attention),
                      "1 (MHA), 2 (GQA), 3 (MLA), 4 (window)");
}

Status check_group_number(size_t group, const GroupNumberField& field, const GroupSpec& spec) {
  uint32_t minimum = 1;
  uint32_t maximum = field.maximum;
  const char* reason = "";
  if (field.member == &GroupSpec::head_dim_v) {
    if (spec.attention == AttentionKind::kMla) {
      minimum = 0;
    } else {
      reason = " (0 only where attention is MLA)";
    }
  } else if (field.member == &GroupSpec::window_tokens) {
    if (spec.attention == AttentionKind::kWindow) {
      reason = " where attention is window";
    } else {
      minimum = maximum = 0;
      reason = " unless attention is window";
    }
  }
  const uint32_t value = spec.*field.member;
  if (value >= minimum && value <= maximum) return {};
  return out_of_range(group_field_name(group, field.name) + " is " + std::to_string(value),
                      (minimum == maximum ? "0" : range_text(minimum, maximum)) + reason);
}

Status KvSpec::validate() const {
  for (const SpecTextField& field : kSpecTextFields) {
    TIERCEL_TRY(check_spec_text_size(field, (this->*field.member).size()));
  }
  TIERCEL_TRY(check_block_tokens(block_tokens));
  TIERCEL_TRY(check_group_count(groups.size()));
  for (size_t group = 0; group < groups.size(); ++group) {
    TIERCEL_TRY(check_attention(group, static_cast<uint32_t>(groups[group].attention)));
    for (const GroupNumberField& field : kGroupNumberFields) {
      TIERCEL_TRY(check_group_number(group, field, groups[group]));
    }
  }
  return {};
}

}  // namespace tiercel
