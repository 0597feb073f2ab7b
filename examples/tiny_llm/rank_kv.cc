// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/rank_kv.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tiercel/engine_layouts.h"

#include "base/assert.h"
#include "tiny_llm/bf16.h"

namespace tiercel::tiny {

Result<RankKv> RankKv::create(const TinyConfig& config, uint32_t block_count) {
  TIERCEL_TRY(config.validate());
  if (block_count == 0) {
    return Error(Code::kInvalid, "block_count is 0; allowed: at least 1");
  }
  RankKv kv;
  kv.config_ = config;
  kv.block_count_ = block_count;
  kv.item_bytes_ = config.kv_type == KvType::kFp32 ? 4 : 2;
  TIERCEL_TRY_ASSIGN(kv.memory_, Arena::create(kv.tensor_offset(KvPart::kKey, config.layers),
                                               ArenaOptions{.huge_pages = false}));
  return kv;
}

Result<DeviceLayout> RankKv::layout() const {
  std::vector<DeviceGroup> groups;
  for (uint32_t group = 0; group < config_.group_count(); ++group) {
    std::vector<std::vector<TensorView>> layers;
    for (uint32_t layer = config_.first_layer(group); layer < config_.end_layer(group); ++layer) {
      layers.emplace_back();
      for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
        const std::span<std::byte> tensor = memory_->memory().subspan(
            tensor_offset(part, layer), tensor_block_bytes() * block_count_);
        layers.back().push_back(contiguous_tensor(
            tensor, item_bytes_,
            {block_count_, config_.block_tokens, config_.rank_kv_heads(), config_.head_dim},
            "bthd"));
      }
    }
    TIERCEL_TRY_ASSIGN(auto made, make_device_group(layers, 'b'));
    groups.push_back(std::move(made));
  }
  return DeviceLayout::create(std::move(groups));
}

uint64_t RankKv::payload_bytes(uint32_t group) const {
  const uint64_t layers = config_.end_layer(group) - config_.first_layer(group);
  return layers * 2 * tensor_block_bytes();
}

uint64_t RankKv::tensor_offset(KvPart part, uint32_t layer) const {
  return (uint64_t{layer} * 2 + static_cast<uint64_t>(part)) * tensor_block_bytes() * block_count_;
}

std::byte* RankKv::address(KvPart part, const KvPlace& place, uint64_t element) const {
  TIERCEL_ASSERT(place.layer < config_.layers && place.block.value() < block_count_ &&
                     place.token < config_.block_tokens && element < row_elements(),
                 "a place in the KV tensors exists");
  return memory_->memory().data() + tensor_offset(part, place.layer) +
         place.block.value() * tensor_block_bytes() +
         (place.token * row_elements() + element) * item_bytes_;
}

void RankKv::write(KvPart part, const KvPlace& place, std::span<const float> row) {
  TIERCEL_ASSERT(row.size() == row_elements(), "a row has all heads of the rank");
  std::byte* const target = address(part, place, 0);
  if (config_.kv_type == KvType::kFp32) {
    std::memcpy(target, row.data(), row.size_bytes());
    return;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t item = to_bf16(row[i]);
    std::memcpy(target + i * sizeof item, &item, sizeof item);
  }
}

void RankKv::read(KvPart part, const KvPlace& place, uint32_t kv_head, std::span<float> row) const {
  TIERCEL_ASSERT(row.size() == config_.head_dim, "a row has one head");
  const std::byte* const source = address(part, place, uint64_t{kv_head} * config_.head_dim);
  if (config_.kv_type == KvType::kFp32) {
    std::memcpy(row.data(), source, row.size_bytes());
    return;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    uint16_t item = 0;
    std::memcpy(&item, source + i * sizeof item, sizeof item);
    row[i] = from_bf16(item);
  }
}

void RankKv::fill(std::byte value) {
  std::fill(memory_->memory().begin(), memory_->memory().end(), value);
}

std::span<std::byte> RankKv::block_bytes(KvPart part, uint32_t layer, DeviceBlockId block) {
  return {address(part, KvPlace{layer, block, 0}, 0), tensor_block_bytes()};
}

std::span<const std::byte> RankKv::block_bytes(KvPart part, uint32_t layer,
                                               DeviceBlockId block) const {
  return {address(part, KvPlace{layer, block, 0}, 0), tensor_block_bytes()};
}

}  // namespace tiercel::tiny
