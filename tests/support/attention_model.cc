// SPDX-License-Identifier: Apache-2.0
#include "support/attention_model.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/core.h>

namespace tiercel {
namespace {

// The finalizer of SplitMix64.
uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
  return value ^ value >> 31;
}

uint64_t mixed_text(uint64_t seed, std::string_view text) {
  for (const char letter : text) seed = mixed(seed * 257 + static_cast<unsigned char>(letter));
  return mixed(seed + text.size());
}

uint64_t on_rank(uint64_t content, uint32_t rank, uint32_t group) {
  return content ^ mixed(uint64_t{rank} << 32 | (group + 1));
}

}  // namespace

AttentionModel::AttentionModel(const KvSpec& spec, uint32_t rank_count, uint32_t device_blocks)
    : block_tokens_(spec.block_tokens), memory_(rank_count) {
  for (const GroupSpec& group : spec.groups) window_tokens_.push_back(group.window_tokens);
  for (auto& groups : memory_) {
    groups.resize(spec.groups.size());
    for (auto& bytes : groups) bytes.resize(device_blocks * payload_bytes());
  }
  lose_memory();
}

void AttentionModel::lose_memory() {
  for (uint32_t rank = 0; rank < memory_.size(); ++rank) lose_memory(rank);
}

void AttentionModel::lose_memory(uint32_t rank) {
  for (auto& bytes : memory_[rank]) {
    auto* words = reinterpret_cast<uint64_t*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof(uint64_t); ++i) words[i] = mixed(++garbage_);
  }
}

uint64_t AttentionModel::seed_of(const Scope& scope) {
  return mixed_text(mixed_text(mixed_text(1, scope.adapter_id), scope.adapter_revision),
                    scope.tenant_salt);
}

uint64_t AttentionModel::next_content(uint64_t before, TokenId token, uint64_t at,
                                      std::span<const SequenceItem> items, uint64_t weights) {
  for (const SequenceItem& item : items) {
    if (item.begin == at) before = mixed_text(mixed_text(before, item.kind), item.content_hash);
  }
  return mixed(before ^ mixed(uint64_t{token} << 8 ^ mixed(weights + 1)));
}

void AttentionModel::add(const EngineRequest& request) {
  Known& known = requests_[request.id];
  known = Known{seed_of(request.scope), request.items, request.prompt, {}};
  known.tokens.insert(known.tokens.end(), request.outputs.begin(), request.outputs.end());
}

std::vector<TokenId> AttentionModel::outputs_of(const EngineRequest& request, uint64_t weights,
                                                uint32_t count, bool sequences_end) {
  uint64_t content = seed_of(request.scope);
  uint64_t at = 0;
  for (const TokenId token : request.prompt) {
    content = next_content(content, token, at++, request.items, weights);
  }
  std::vector<TokenId> outputs;
  while (outputs.size() < count) {
    outputs.push_back(sample(content));
    if (sequences_end && ends_sequence(outputs.back())) break;
    content = next_content(content, outputs.back(), at++, {}, weights);
  }
  return outputs;
}

uint64_t* AttentionModel::place(uint32_t rank, uint32_t group, const BlockTable& table,
                                uint64_t position) {
  const DeviceBlockId id = table.group(group)[position / block_tokens_];
  return reinterpret_cast<uint64_t*>(block(rank, group, id.value()).data()) +
         position % block_tokens_;
}

std::string AttentionModel::check_writers(const Batch& batch) const {
  for (uint32_t group = 0; group < window_tokens_.size(); ++group) {
    std::map<DeviceBlockId, uint32_t> users;
    for (const ScheduledRequest& scheduled : batch.requests) {
      for (const DeviceBlockId block : scheduled.block_table.group(group)) ++users[block];
    }
    for (const ScheduledRequest& scheduled : batch.requests) {
      const auto blocks = scheduled.block_table.group(group);
      const uint64_t end = scheduled.first_token + scheduled.tokens.size();
      for (uint64_t at = scheduled.first_token / block_tokens_; at * block_tokens_ < end; ++at) {
        if (users[blocks[at]] == 1) continue;
        return fmt::format(
            "request {} writes to device block {}, which others use or which it has "
            "twice",
            scheduled.id.value(), blocks[at].value());
      }
    }
  }
  return {};
}

std::string AttentionModel::run(const Batch& batch, uint64_t weights,
                                std::vector<StepResult>* results) {
  results->clear();
  for (const RequestId id : batch.preempted) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) found->second.content.clear();
  }
  for (const ScheduledRequest& scheduled : batch.requests) {
    const uint64_t end = scheduled.first_token + scheduled.tokens.size();
    if (scheduled.tokens.empty()) return "a request is scheduled without tokens";
    if (scheduled.block_table.block_count * uint64_t{block_tokens_} < end) {
      return fmt::format("request {} has too few blocks for its tokens", scheduled.id.value());
    }
  }
  if (std::string wrong = check_writers(batch); !wrong.empty()) return wrong;
  for (const ScheduledRequest& scheduled : batch.requests) {
    const uint64_t first = scheduled.first_token;
    const uint64_t end = first + scheduled.tokens.size();
    const auto name = [&] {
      return fmt::format("request {}, tokens {} to {}", scheduled.id.value(), first, end);
    };
    const auto found = requests_.find(scheduled.id);
    if (found == requests_.end()) return name() + ": does not live";
    Known& known = found->second;
    if (known.content.empty()) {  // what it has by now was computed by others
      uint64_t content = known.seed;
      for (uint64_t at = 0; at < std::min<uint64_t>(first, known.tokens.size()); ++at) {
        content = next_content(content, known.tokens[at], at, known.items, weights);
        known.content.push_back(content);
      }
    }
    if (first > known.content.size()) return name() + ": what is before has not been computed";
    known.content.resize(first);
    if (std::string wrong = read(scheduled, known); !wrong.empty()) return name() + ": " + wrong;
    for (uint64_t at = first; at < end; ++at) {
      if (at >= known.tokens.size() || known.tokens[at] != scheduled.tokens[at - first]) {
        return name() + fmt::format(": token {} is another than it has", at);
      }
      const uint64_t before = at == 0 ? known.seed : known.content[at - 1];
      known.content.push_back(next_content(before, known.tokens[at], at, known.items, weights));
    }
    StepResult& result = results->emplace_back();
    result.id = scheduled.id;
    if (scheduled.samples != (end == known.tokens.size())) {
      // A token that got lost on its way is sampled again.
      if (!scheduled.samples || end + 1 != known.tokens.size()) {
        return name() + ": samples where it should not, or not where it should";
      }
    }
    if (!scheduled.samples) continue;
    result.token = sample(known.content.back());
    result.finished = sequences_end && ends_sequence(*result.token);
    known.tokens.resize(end);
    known.tokens.push_back(*result.token);
  }
  // All read before any writes: nothing orders the requests of a batch.
  for (const ScheduledRequest& scheduled : batch.requests) {
    write(scheduled, requests_.at(scheduled.id));
  }
  return {};
}

std::string AttentionModel::read(const ScheduledRequest& scheduled, const Known& known) {
  for (uint32_t group = 0; group < window_tokens_.size(); ++group) {
    const uint64_t window = window_tokens_[group];
    const uint64_t first =
        window == 0 || scheduled.first_token < window ? 0 : scheduled.first_token - (window - 1);
    for (uint64_t at = first; at < scheduled.first_token; ++at) {
      for (uint32_t rank = 0; rank < memory_.size(); ++rank) {
        if (*place(rank, group, scheduled.block_table, at) !=
            on_rank(known.content[at], rank, group)) {
          return fmt::format("reads wrong KV at position {}, device block {}, rank {}, group {}",
                             at, scheduled.block_table.group(group)[at / block_tokens_].value(),
                             rank, group);
        }
      }
    }
  }
  return {};
}

void AttentionModel::write(const ScheduledRequest& scheduled, const Known& known) {
  const uint64_t end = scheduled.first_token + scheduled.tokens.size();
  for (uint32_t rank = 0; rank < memory_.size(); ++rank) {
    for (uint32_t group = 0; group < window_tokens_.size(); ++group) {
      for (uint64_t at = scheduled.first_token; at < end; ++at) {
        *place(rank, group, scheduled.block_table, at) = on_rank(known.content[at], rank, group);
      }
    }
  }
}

}  // namespace tiercel
