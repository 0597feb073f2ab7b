// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/tiny_config.h"

namespace tiercel::tiny {
namespace {

Status refuse(const char* field, uint32_t value, const std::string& allowed) {
  return Error(Code::kInvalid,
               std::string(field) + " is " + std::to_string(value) + "; allowed: " + allowed);
}

Status check_range(const char* field, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return {};
  return refuse(field, value, std::to_string(low) + " to " + std::to_string(high));
}

Status check_multiple(const char* field, uint32_t value, uint32_t unit, const char* unit_name) {
  if (value > 0 && unit > 0 && value % unit == 0) return {};
  return refuse(field, value,
                std::string("multiples of ") + unit_name + " (" + std::to_string(unit) + ")");
}

}  // namespace

std::string_view to_string(KvType type) {
  switch (type) {
    case KvType::kFp32:
      return "fp32";
    case KvType::kBf16:
      return "bf16";
  }
  return "unknown";
}

Status TinyConfig::validate() const {
  TIERCEL_TRY(check_range("layers", layers, 1, 64));
  TIERCEL_TRY(check_range("hidden", hidden, 1, 4096));
  TIERCEL_TRY(check_range("rank_count", rank_count, 1, 64));
  TIERCEL_TRY(check_range("kv_heads", kv_heads, 1, 256));
  TIERCEL_TRY(check_multiple("kv_heads", kv_heads, rank_count, "rank_count"));
  TIERCEL_TRY(check_range("heads", heads, 1, 256));
  TIERCEL_TRY(check_multiple("heads", heads, kv_heads, "kv_heads"));
  TIERCEL_TRY(check_range("head_dim", head_dim, 2, 256));
  TIERCEL_TRY(check_multiple("head_dim", head_dim, 2, "a pair"));
  TIERCEL_TRY(check_range("mlp", mlp, 1, 16384));
  TIERCEL_TRY(check_multiple("mlp", mlp, rank_count, "rank_count"));
  TIERCEL_TRY(check_range("vocabulary", vocabulary, 2, 65536));
  TIERCEL_TRY(check_range("block_tokens", block_tokens, 1, 1024));
  TIERCEL_TRY(check_range("window_layers", window_layers, 0, layers - 1));
  TIERCEL_TRY(check_range("window_tokens", window_tokens, 1, 65536));
  if (!(rope_theta > 1)) {
    return Error(Code::kInvalid,
                 "rope_theta is " + std::to_string(rope_theta) + "; allowed: above 1");
  }
  return {};
}

KvSpec kv_spec(const TinyConfig& config, uint64_t weights_seed, const std::string& layout_order) {
  KvSpec spec;
  spec.model_id = config.model_id;
  spec.weights_revision = "seed-" + std::to_string(weights_seed);
  spec.kv_dtype = to_string(config.kv_type);
  spec.kv_scale_scheme = "none";
  spec.block_tokens = config.block_tokens;
  spec.positional_scheme = "rope:theta=" + std::to_string(config.rope_theta);
  spec.layout_tag = layout_order;
  for (uint32_t i = 0; i < config.group_count(); ++i) {
    GroupSpec group;
    group.attention = config.heads == config.kv_heads ? AttentionKind::kMha : AttentionKind::kGqa;
    if (i > 0) {
      group.attention = AttentionKind::kWindow;
      group.window_tokens = config.window_tokens;
    }
    group.layer_count = config.end_layer(i) - config.first_layer(i);
    group.kv_head_count = config.kv_heads;
    group.head_dim_k = group.head_dim_v = config.head_dim;
    spec.groups.push_back(group);
  }
  return spec;
}

}  // namespace tiercel::tiny
