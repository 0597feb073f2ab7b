// SPDX-License-Identifier: Apache-2.0
//
// One context for each fact that decides what the bytes of a slice mean: the sample, and the sample
// with one fact changed. For the field cases about keys that lack a fact (F01, F02).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel::testing {

// All facts that decide what the bytes of a slice mean.
struct Context {
  KvSpec spec = testing::sample_spec();
  Scope scope{"adapter", "1", "salt"};
  GroupId group{0};
  Slice slice{0, 2};
};

struct Change {
  const char* fact;
  std::function<void(Context&)> apply;
};

inline std::vector<Change> changes_of_spec() {
  return {
      {"model_id", [](Context& c) { c.spec.model_id += "2"; }},
      {"weights_revision", [](Context& c) { c.spec.weights_revision += "2"; }},
      {"kv_dtype", [](Context& c) { c.spec.kv_dtype = "fp8_e4m3"; }},
      {"kv_scale_scheme", [](Context& c) { c.spec.kv_scale_scheme = "per_tensor"; }},
      {"block_tokens", [](Context& c) { c.spec.block_tokens = 32; }},
      {"positional_scheme", [](Context& c) { c.spec.positional_scheme.clear(); }},
      {"layout_tag", [](Context& c) { c.spec.layout_tag = "cpu-amx-pack"; }},
      {"groups", [](Context& c) { c.spec.groups.emplace_back(); }},
      {"attention", [](Context& c) { c.spec.groups[0].attention = AttentionKind::kMha; }},
      {"attention: MLA", [](Context& c) { c.spec.groups[0].attention = AttentionKind::kMla; }},
      {"layer_count", [](Context& c) { c.spec.groups[0].layer_count += 1; }},
      {"kv_head_count", [](Context& c) { c.spec.groups[0].kv_head_count += 1; }},
      {"head_dim_k", [](Context& c) { c.spec.groups[0].head_dim_k += 1; }},
      {"head_dim_v", [](Context& c) { c.spec.groups[0].head_dim_v += 1; }},
      {"window",
       [](Context& c) { c.spec.groups[0] = {AttentionKind::kWindow, 1, 1, 128, 128, 512}; }},
      {"window_tokens",
       [](Context& c) { c.spec.groups[0] = {AttentionKind::kWindow, 1, 1, 128, 128, 513}; }},
  };
}

inline std::vector<Change> changes_of_scope() {
  return {
      {"adapter_id", [](Context& c) { c.scope.adapter_id = "other"; }},
      {"no adapter", [](Context& c) { c.scope.adapter_id = c.scope.adapter_revision = ""; }},
      {"adapter_revision", [](Context& c) { c.scope.adapter_revision = "2"; }},
      {"tenant_salt", [](Context& c) { c.scope.tenant_salt = "other"; }},
      {"no salt", [](Context& c) { c.scope.tenant_salt.clear(); }},
  };
}

inline std::vector<Change> changes_of_place() {
  return {
      {"group", [](Context& c) { c.group = GroupId(1); }},
      {"rank", [](Context& c) { c.slice.rank = 1; }},
      {"rank count", [](Context& c) { c.slice.rank_count = 4; }},
      {"slice all", [](Context& c) { c.slice = Slice::all(); }},
  };
}

// Fails to compile when a fact is added, so that it cannot be forgotten in the tables above.
[[maybe_unused]] inline void every_fact_is_in_a_table(const Context& context) {
  [[maybe_unused]] const auto& [model, weights, dtype, scale, block, position, layout, groups] =
      context.spec;
  [[maybe_unused]] const auto& [attention, layers, heads, k, v, window] = groups[0];
  [[maybe_unused]] const auto& [adapter, revision, salt] = context.scope;
  [[maybe_unused]] const auto& [rank, rank_count] = context.slice;
}

inline std::vector<Context> contexts_of(const std::vector<Change>& changes) {
  std::vector<Context> contexts(1 + changes.size());
  for (size_t i = 0; i < changes.size(); ++i) changes[i].apply(contexts[i + 1]);
  return contexts;
}

// All of them, the unchanged one first; names[i] says what is different in contexts[i].
struct NamedContexts {
  std::vector<Context> contexts;
  std::vector<std::string> names;
};

inline NamedContexts all_contexts() {
  std::vector<Change> changes = changes_of_spec();
  for (Change& change : changes_of_scope()) changes.push_back(std::move(change));
  for (Change& change : changes_of_place()) changes.push_back(std::move(change));
  NamedContexts all{contexts_of(changes), {"nothing"}};
  for (const Change& change : changes) all.names.push_back(change.fact);
  return all;
}

inline std::vector<BlockKey> keys_of(const KvSpec& spec, const Scope& scope,
                                     std::span<const TokenId> tokens,
                                     const std::vector<SequenceItem>& items = {}) {
  // One block size for all, so that the block size itself is seen to be in the key.
  Sequence sequence(make_root(*make_namespace(spec), scope), 16);
  for (const SequenceItem& item : items) EXPECT_TRUE(sequence.add_item(item));
  sequence.append(tokens);
  return {sequence.keys().begin(), sequence.keys().end()};
}

}  // namespace tiercel::testing
