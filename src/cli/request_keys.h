// SPDX-License-Identifier: Apache-2.0
//
// RequestKeys: from the ids of a request to its block keys, by really hashing tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/key.h"
#include "tiercel/kv_spec.h"

#include "cli/trace.h"

namespace tiercel {

// The model that replayed requests belong to.
KvSpec replay_spec(uint32_t block_tokens);

// Threads: one.
class RequestKeys {
 public:
  // `clock` measures and must outlive the object.
  RequestKeys(uint32_t block_tokens, const Clock& clock);

  // Keys of all blocks of `ids`, each id as kTokensPerId tokens. Valid until the next call.
  std::span<const BlockKey> hash(std::span<const uint64_t> ids);

  // Time that the last hash() took, without making up the tokens.
  Duration hash_time() const { return hash_time_; }

 private:
  const Clock& clock_;
  const RootKey root_;
  Sequence sequence_;
  std::vector<TokenId> tokens_;
  Duration hash_time_{0};
};

}  // namespace tiercel
