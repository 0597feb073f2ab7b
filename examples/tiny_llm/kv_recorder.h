// SPDX-License-Identifier: Apache-2.0
//
// KvRecorder: what the KV of every block must be. It keeps a digest for each rank and layer of the
// bytes that were computed, by block key; whatever is found in a cache under that key is compared.
//
// Logits alone would not do: blocks that were swapped, or bytes of little weight, can leave the
// output as it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/key.h"

#include "key/sha256.h"
#include "tiny_llm/rank_kv.h"
#include "tiny_llm/tiny_config.h"

namespace tiercel::tiny {

// A block that is not what it must be.
struct KvDifference {
  bool known = false;  // false: nobody has ever computed a block of this key
  uint32_t rank = 0;   // the first place that differs
  uint32_t layer = 0;
};
std::string to_string(const KvDifference& difference);

// Threads: one.
class KvRecorder {
 public:
  explicit KvRecorder(const TinyConfig& config) : config_(config) {}

  // `block` is one of the group's, and `group` below config.group_count(). The first `token_count`
  // tokens of the block have been computed. The first time that is how they must be; later on they
  // are compared.
  std::optional<KvDifference> record(const BlockKey& key, uint32_t group, uint32_t token_count,
                                     std::span<const RankKv> ranks, DeviceBlockId block);

  // Compares what a cache has brought.
  std::optional<KvDifference> check(const BlockKey& key, uint32_t group, uint32_t token_count,
                                    std::span<const RankKv> ranks, DeviceBlockId block) const;

  // Keys of the first group.
  size_t size() const { return digests_[0].size(); }

 private:
  using Digests = std::vector<Sha256Digest>;  // by rank, then layer of the group
  Digests digests_of(uint32_t group, std::span<const RankKv> ranks, uint32_t token_count,
                     DeviceBlockId block) const;
  std::optional<KvDifference> compare(uint32_t group, const Digests& expected,
                                      const Digests& found) const;

  TinyConfig config_;
  std::array<std::unordered_map<BlockKey, Digests>, kTinyGroupsMax> digests_;
};

}  // namespace tiercel::tiny
