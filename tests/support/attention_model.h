// SPDX-License-Identifier: Apache-2.0
//
// AttentionModel: the reference model of what device blocks hold, in place of a language model.
//
// The KV of a position is eight bytes: a number made of the KV before it, the token, the items that
// begin there, and the weights; on every rank and in every group another one. A step reads, for
// each request, every position before its tokens (in window groups: those in the window), compares
// them with what this request must have there, and writes the positions of its tokens. So a block
// that was never computed, or that belongs to other tokens, other weights, another rank or group,
// is seen by the first request that reads it. What is sampled depends on the KV that was read, so
// that a request's outputs say whether all of it was right.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tiercel/kv_spec.h"

#include "engine/resource_manager.h"

namespace tiercel {

class AttentionModel {
 public:
  AttentionModel(const KvSpec& spec, uint32_t rank_count, uint32_t device_blocks);

  // Of one block, on every rank and in every group.
  uint64_t payload_bytes() const { return block_bytes(block_tokens_); }
  static uint64_t block_bytes(uint32_t block_tokens) { return block_tokens * sizeof(uint64_t); }
  std::span<std::byte> memory(uint32_t rank, uint32_t group) { return memory_[rank][group]; }
  std::span<std::byte> block(uint32_t rank, uint32_t group, uint32_t block) {
    return memory(rank, group).subspan(block * payload_bytes(), payload_bytes());
  }

  // The request begins, or ends in whatever way.
  void add(const EngineRequest& request);
  void forget(RequestId request) { requests_.erase(request); }

  // What a step does; empty, or what is wrong with it. One result for each request of the batch; a
  // token ends its sequence if the model says so.
  std::string run(const Batch& batch, uint64_t weights, std::vector<StepResult>* results);

  // Overwrites everything, or what one rank has.
  void lose_memory();
  void lose_memory(uint32_t rank);

  // What a request gets under one kind of weights throughout; ends early where the sequence does.
  static std::vector<TokenId> outputs_of(const EngineRequest& request, uint64_t weights,
                                         uint32_t count, bool sequences_end = false);
  static bool ends_sequence(TokenId token) { return token % 16 == 0; }
  // Whether some tokens end their sequence.
  bool sequences_end = false;

 private:
  struct Known {
    uint64_t seed = 0;  // of the scope
    std::vector<SequenceItem> items;
    std::vector<TokenId> tokens;    // as far as they are known
    std::vector<uint64_t> content;  // KV that it must have, by position
  };
  static uint64_t seed_of(const Scope& scope);
  // KV of the position `at` behind that of the position before.
  static uint64_t next_content(uint64_t before, TokenId token, uint64_t at,
                               std::span<const SequenceItem> items, uint64_t weights);
  static TokenId sample(uint64_t content) { return static_cast<TokenId>(content >> 24 & 0xffff); }
  uint64_t* place(uint32_t rank, uint32_t group, const BlockTable& table, uint64_t position);
  std::string read(const ScheduledRequest& scheduled, const Known& known);
  void write(const ScheduledRequest& scheduled, const Known& known);
  std::string check_writers(const Batch& batch) const;

  const uint32_t block_tokens_;
  std::vector<uint32_t> window_tokens_;                      // by group; 0: full attention
  std::vector<std::vector<std::vector<std::byte>>> memory_;  // [rank][group]
  std::map<RequestId, Known> requests_;
  uint64_t garbage_ = 0;
};

}  // namespace tiercel
