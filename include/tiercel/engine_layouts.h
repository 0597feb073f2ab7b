// SPDX-License-Identifier: Apache-2.0
//
// Device layouts of the engines that we know, from the tensors that they hand over.
//
// Each function returns one group, which is not checked yet: give all groups of a rank to
// DeviceLayout::create. The strides decide, not the names: a vLLM that was asked for HND and gave
// NHD is copied rightly all the same, and order() of the layout tells the two apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tiercel/device_layout.h"
#include "tiercel/status.h"

namespace tiercel {

// A tensor as engines hand it over.
struct TensorView {
  std::span<std::byte> memory;  // its whole storage, or what of it was registered
  uint64_t offset_bytes = 0;    // of element (0, 0, …)
  uint32_t item_bytes = 0;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;  // in items, as the shape
  // A letter for each dimension, in the order of the shape: b block, l layer, h head, t token, d
  // element of a head; others as one likes. Left empty where a function below knows them itself.
  std::string dims;
};

// A tensor without gaps: the strides follow from the shape.
TensorView contiguous_tensor(std::span<std::byte> memory, uint32_t item_bytes,
                             std::vector<uint64_t> shape, std::string dims = {});

// The tensor with dimension `dim` fixed at `index`. kInvalid if there is no such dimension or
// index.
Result<TensorView> select(const TensorView& tensor, char dim, uint64_t index);

// Any engine: layers[l] lists the tensors of layer l in payload order. A block is
// `steps_per_block` consecutive indexes of dimension `block_dim`: kernel blocks or tokens, where
// the engine counts smaller pieces than blocks. kInvalid if a tensor has no such dimension, does
// not divide into blocks or has another number of them than the first tensor, or if more than two
// strides would be needed to tell where the runs of a block are.
Result<DeviceGroup> make_device_group(std::span<const std::vector<TensorView>> layers,
                                      char block_dim, uint32_t steps_per_block = 1);

// vLLM: one tensor a layer, as register_kv_caches gives it. What it is, the number of its
// dimensions tells:
//   3  (blocks, tokens, latent)                      MLA
//   4  (blocks, heads, tokens, K and V of a head)    NHD and HND alike, and the CPU's packed cells
//   5  (2, blocks, tokens, heads, elements)          K and V apart, in older releases
// `kernel_blocks_per_block`: block_size of the engine ÷ that of the tensor.
Result<DeviceGroup> vllm_group(std::span<const TensorView> layers,
                               uint32_t kernel_blocks_per_block = 1);

// vLLM with one tensor for all layers; `dims` names its dimensions, 'b' and 'l' among them, such as
// "blthd" (cross-layer NHD) or "bhltd" (cross-layer HND).
Result<DeviceGroup> vllm_cross_layer_group(const TensorView& tensor,
                                           uint32_t kernel_blocks_per_block = 1);

// FastDeploy: tensors [blocks, heads, tokens, elements] of K and V, one a layer, and with
// block-wise fp8 scales [blocks, heads, tokens] of each. Without V (MLA) or scales those lists are
// empty.
struct FastDeployTensors {
  std::vector<TensorView> keys;
  std::vector<TensorView> values;
  std::vector<TensorView> key_scales;
  std::vector<TensorView> value_scales;
};
Result<DeviceGroup> fastdeploy_group(const FastDeployTensors& tensors);

// SGLang's host pools: one buffer without gaps. A block is a page.
enum class SglangLayout : uint8_t {
  kLayerFirst = 1,       // (2, layers, tokens, heads, elements)
  kPageFirst = 2,        // (2, tokens, layers, heads, elements)
  kPageFirstDirect = 3,  // (2, pages, layers, tokens of a page, heads, elements)
  kPageHead = 4,         // (2, pages, heads, tokens of a page, layers, elements)
};
struct SglangPool {
  std::span<std::byte> memory;
  SglangLayout layout = SglangLayout::kLayerFirst;
  uint64_t layers = 0;
  uint64_t tokens = 0;  // of the pool; a whole number of pages
  uint32_t page_tokens = 0;
  uint64_t heads = 0;
  uint64_t elements = 0;  // of a head; with MLA of the latent and its positional part
  uint32_t item_bytes = 0;
  bool mla = false;  // one tensor in place of K and V: no leading 2
};
Result<DeviceGroup> sglang_group(const SglangPool& pool);

}  // namespace tiercel
