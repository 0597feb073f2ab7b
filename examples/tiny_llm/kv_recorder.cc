// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/kv_recorder.h"

namespace tiercel::tiny {

std::string to_string(const KvDifference& difference) {
  if (!difference.known) return "nobody has computed it";
  return "its bytes differ on rank " + std::to_string(difference.rank) + ", layer " +
         std::to_string(difference.layer);
}

KvRecorder::Digests KvRecorder::digests_of(uint32_t group, std::span<const RankKv> ranks,
                                           uint32_t token_count, DeviceBlockId block) const {
  Digests digests;
  for (const RankKv& rank : ranks) {
    for (uint32_t layer = config_.first_layer(group); layer < config_.end_layer(group); ++layer) {
      Sha256 hash;
      hash.start();
      for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
        hash.update(rank.block_bytes(part, layer, block).first(rank.token_bytes() * token_count));
      }
      digests.push_back(hash.finish());
    }
  }
  return digests;
}

std::optional<KvDifference> KvRecorder::compare(uint32_t group, const Digests& expected,
                                                const Digests& found) const {
  const uint32_t first = config_.first_layer(group);
  const uint32_t layers = config_.end_layer(group) - first;
  for (size_t i = 0; i < found.size(); ++i) {
    if (i >= expected.size() || expected[i] != found[i]) {
      return KvDifference{true, static_cast<uint32_t>(i / layers),
                          first + static_cast<uint32_t>(i % layers)};
    }
  }
  return std::nullopt;
}

std::optional<KvDifference> KvRecorder::record(const BlockKey& key, uint32_t group,
                                               uint32_t token_count, std::span<const RankKv> ranks,
                                               DeviceBlockId block) {
  Digests digests = digests_of(group, ranks, token_count, block);
  const auto [known, inserted] = digests_[group].try_emplace(key, digests);
  return inserted ? std::nullopt : compare(group, known->second, digests);
}

std::optional<KvDifference> KvRecorder::check(const BlockKey& key, uint32_t group,
                                              uint32_t token_count, std::span<const RankKv> ranks,
                                              DeviceBlockId block) const {
  const auto known = digests_[group].find(key);
  if (known == digests_[group].end()) return KvDifference{};
  return compare(group, known->second, digests_of(group, ranks, token_count, block));
}

}  // namespace tiercel::tiny
