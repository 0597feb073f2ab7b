// SPDX-License-Identifier: Apache-2.0
#include "tiercel/engine_layouts.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace tiercel {
namespace {

Error refuse(const std::string& what, const std::string& value, const std::string& allowed) {
  return Error(Code::kInvalid, "tensor: " + what + " is " + value + "; allowed: " + allowed);
}

Status check_tensor(const TensorView& tensor) {
  const size_t rank = tensor.shape.size();
  if (tensor.item_bytes == 0) return refuse("item_bytes", "0", "at least 1");
  if (tensor.strides.size() != rank || tensor.dims.size() != rank) {
    return refuse(
        "the number of strides and of letters in dims",
        std::to_string(tensor.strides.size()) + " and " + std::to_string(tensor.dims.size()),
        "as many as the shape has dimensions, " + std::to_string(rank));
  }
  for (size_t i = 0; i < rank; ++i) {
    const std::string name = std::string("dimension '") + tensor.dims[i] + "'";
    if (tensor.shape[i] == 0) return refuse(name, "of size 0", "at least 1");
    if (tensor.dims.find(tensor.dims[i], i + 1) != std::string::npos) {
      return refuse(name, "there twice", "a letter of its own for each dimension");
    }
  }
  return {};
}

// A dimension of what one block has of a tensor.
struct BlockDim {
  char name;
  uint64_t count;
  uint64_t stride_bytes;
};

// kInvalid if a count or a stride in bytes does not fit.
Result<BlockDim> block_dim_of(const TensorView& tensor, size_t index, uint64_t count) {
  BlockDim dim{tensor.dims[index], count, 0};
  const std::string name = std::string("dimension '") + dim.name + "'";
  if (count > UINT32_MAX) return refuse(name, "of size " + std::to_string(count), "up to 2^32 - 1");
  if (count > 1 && __builtin_mul_overflow(tensor.strides[index], uint64_t{tensor.item_bytes},
                                          &dim.stride_bytes)) {
    return refuse(name, "of stride " + std::to_string(tensor.strides[index]),
                  "what fits 64 bits in bytes");
  }
  return dim;
}

// Joins what stands gapless, from the innermost dimension outwards.
Result<DevicePart> part_of(std::vector<BlockDim> dims, uint32_t item_bytes) {
  std::stable_sort(dims.begin(), dims.end(), [](const BlockDim& a, const BlockDim& b) {
    return a.stride_bytes > b.stride_bytes;
  });
  DevicePart part;
  part.run_bytes = item_bytes;
  for (const BlockDim& dim : dims) {
    if (dim.count > 1) part.order += dim.name + std::to_string(dim.count);
  }
  part.order += "x" + std::to_string(item_bytes);

  std::vector<DeviceSteps> steps;  // the innermost first
  for (size_t i = dims.size(); i-- > 0;) {
    const auto count = static_cast<uint32_t>(dims[i].count);
    if (count == 1) continue;
    const uint64_t stride = dims[i].stride_bytes;
    uint64_t joined = 0;
    if (steps.empty() && stride == part.run_bytes &&
        !__builtin_mul_overflow(part.run_bytes, uint64_t{count}, &joined)) {
      part.run_bytes = joined;
    } else if (!steps.empty() && uint64_t{steps.back().count} * count <= UINT32_MAX &&
               !__builtin_mul_overflow(steps.back().stride_bytes, uint64_t{steps.back().count},
                                       &joined) &&
               stride == joined) {
      steps.back().count *= count;
    } else {
      steps.push_back({count, stride});
    }
  }
  if (steps.size() > 2) {
    return refuse("the place of a block's runs",
                  "told by " + std::to_string(steps.size()) + " strides (" + part.order + ")",
                  "up to 2");
  }
  if (!steps.empty()) part.inner = steps[0];
  if (steps.size() == 2) part.outer = steps[1];
  return part;
}

struct Blocks {
  DevicePart part;
  uint64_t count;
};

Result<Blocks> blocks_of(const TensorView& tensor, char block_dim, uint32_t steps_per_block) {
  TIERCEL_TRY(check_tensor(tensor));
  const size_t block = tensor.dims.find(block_dim);
  if (block == std::string::npos) {
    return refuse("dims", "\"" + tensor.dims + "\"",
                  std::string("with '") + block_dim + "', which counts the blocks");
  }
  if (steps_per_block == 0 || tensor.shape[block] % steps_per_block != 0) {
    return refuse("the size of its block dimension", std::to_string(tensor.shape[block]),
                  "a multiple of what a block has of it, " + std::to_string(steps_per_block));
  }
  const uint64_t count = tensor.shape[block] / steps_per_block;
  std::vector<BlockDim> dims;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    TIERCEL_TRY_ASSIGN(dims.emplace_back(),
                       block_dim_of(tensor, i, i == block ? steps_per_block : tensor.shape[i]));
  }
  TIERCEL_TRY_ASSIGN(DevicePart part, part_of(std::move(dims), tensor.item_bytes));
  part.memory = tensor.memory;
  part.offset_bytes = tensor.offset_bytes;
  if (__builtin_mul_overflow(tensor.strides[block], uint64_t{tensor.item_bytes},
                             &part.block_stride_bytes) ||
      __builtin_mul_overflow(part.block_stride_bytes, uint64_t{steps_per_block},
                             &part.block_stride_bytes)) {
    return refuse("the stride of its block dimension", std::to_string(tensor.strides[block]),
                  "what fits 64 bits in bytes");
  }
  return Blocks{std::move(part), count};
}

TensorView named(TensorView tensor, std::string_view dims) {
  tensor.dims = dims;
  return tensor;
}

// The tensors for K and V that stand in one tensor behind a leading dimension of size 2.
Result<std::vector<TensorView>> both_of(const TensorView& tensor, char dim) {
  std::vector<TensorView> parts;
  for (uint64_t i = 0; i < 2; ++i) {
    TIERCEL_TRY_ASSIGN(parts.emplace_back(), select(tensor, dim, i));
  }
  return parts;
}

std::string_view dims_of(SglangLayout layout) {
  switch (layout) {
    case SglangLayout::kLayerFirst:
      return "lthd";
    case SglangLayout::kPageFirst:
      return "tlhd";
    case SglangLayout::kPageFirstDirect:
      return "blthd";
    case SglangLayout::kPageHead:
      return "bhtld";
  }
  return "";
}

}  // namespace

TensorView contiguous_tensor(std::span<std::byte> memory, uint32_t item_bytes,
                             std::vector<uint64_t> shape, std::string dims) {
  TensorView tensor{memory, 0, item_bytes, std::move(shape), {}, std::move(dims)};
  tensor.strides.resize(tensor.shape.size());
  uint64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    tensor.strides[i] = stride;
    // What does not fit is longer than any memory, and refused as that.
    if (__builtin_mul_overflow(stride, tensor.shape[i], &stride)) stride = UINT64_MAX;
  }
  return tensor;
}

Result<TensorView> select(const TensorView& tensor, char dim, uint64_t index) {
  TIERCEL_TRY(check_tensor(tensor));
  const size_t at = tensor.dims.find(dim);
  if (at == std::string::npos) {
    return refuse("dims", "\"" + tensor.dims + "\"", std::string("with '") + dim + "'");
  }
  if (index >= tensor.shape[at]) {
    return refuse(std::string("the index of dimension '") + dim + "'", std::to_string(index),
                  "less than its size, " + std::to_string(tensor.shape[at]));
  }
  TensorView selected = tensor;
  uint64_t skipped = 0;
  if (__builtin_mul_overflow(tensor.strides[at], index, &skipped) ||
      __builtin_mul_overflow(skipped, uint64_t{tensor.item_bytes}, &skipped) ||
      __builtin_add_overflow(selected.offset_bytes, skipped, &selected.offset_bytes)) {
    return refuse("the stride of dimension '" + std::string(1, dim) + "'",
                  std::to_string(tensor.strides[at]), "what fits 64 bits in bytes");
  }
  const auto position = static_cast<std::ptrdiff_t>(at);
  selected.shape.erase(selected.shape.begin() + position);
  selected.strides.erase(selected.strides.begin() + position);
  selected.dims.erase(at, 1);
  return selected;
}

Result<DeviceGroup> make_device_group(std::span<const std::vector<TensorView>> layers,
                                      char block_dim, uint32_t steps_per_block) {
  DeviceGroup group;
  std::optional<uint64_t> block_count;
  for (const std::vector<TensorView>& tensors : layers) {
    DeviceLayer& layer = group.layers.emplace_back();
    for (const TensorView& tensor : tensors) {
      TIERCEL_TRY_ASSIGN(Blocks blocks, blocks_of(tensor, block_dim, steps_per_block));
      if (!block_count) block_count = blocks.count;
      if (blocks.count != *block_count || blocks.count > UINT32_MAX) {
        return refuse("its number of blocks", std::to_string(blocks.count),
                      "as the group's first tensor has, " + std::to_string(*block_count) +
                          ", and at most 2^32 - 1");
      }
      layer.parts.push_back(std::move(blocks.part));
    }
  }
  group.block_count = static_cast<uint32_t>(block_count.value_or(0));
  return group;
}

Result<DeviceGroup> vllm_group(std::span<const TensorView> layers,
                               uint32_t kernel_blocks_per_block) {
  std::vector<std::vector<TensorView>> parts;
  for (const TensorView& tensor : layers) {
    switch (tensor.shape.size()) {
      case 3:
        parts.push_back({named(tensor, "btd")});
        break;
      case 4:
        parts.push_back({named(tensor, "bhtd")});
        break;
      case 5: {
        if (tensor.shape[0] != 2) {
          return refuse("the first of 5 dimensions", std::to_string(tensor.shape[0]),
                        "2, the choice of K or V");
        }
        TIERCEL_TRY_ASSIGN(parts.emplace_back(), both_of(named(tensor, "kbthd"), 'k'));
        break;
      }
      default:
        return refuse("its number of dimensions", std::to_string(tensor.shape.size()),
                      "3 (MLA), 4, or 5 with K and V apart");
    }
  }
  return make_device_group(parts, 'b', kernel_blocks_per_block);
}

Result<DeviceGroup> vllm_cross_layer_group(const TensorView& tensor,
                                           uint32_t kernel_blocks_per_block) {
  const size_t layer_dim = tensor.dims.find('l');
  const uint64_t layers = layer_dim < tensor.shape.size() ? tensor.shape[layer_dim] : 1;
  if (layers > kLayerCountMax) {
    return refuse("its number of layers", std::to_string(layers),
                  "up to " + std::to_string(kLayerCountMax));
  }
  std::vector<std::vector<TensorView>> parts;
  for (uint64_t l = 0; l < layers; ++l) {
    TIERCEL_TRY_ASSIGN(TensorView layer, select(tensor, 'l', l));
    parts.push_back({std::move(layer)});
  }
  return make_device_group(parts, 'b', kernel_blocks_per_block);
}

Result<DeviceGroup> fastdeploy_group(const FastDeployTensors& tensors) {
  const size_t layers = tensors.keys.size();
  const std::vector<TensorView>* const lists[] = {&tensors.keys, &tensors.values,
                                                  &tensors.key_scales, &tensors.value_scales};
  constexpr std::string_view kNames[] = {"keys", "values", "key_scales", "value_scales"};
  std::vector<std::vector<TensorView>> parts(layers);
  for (size_t i = 0; i < std::size(lists); ++i) {
    if (lists[i]->empty() && i > 0) continue;
    if (lists[i]->size() != layers) {
      return refuse("the number of " + std::string(kNames[i]), std::to_string(lists[i]->size()),
                    "as many as keys, " + std::to_string(layers) + ", or none");
    }
    for (size_t l = 0; l < layers; ++l) {
      parts[l].push_back(named((*lists[i])[l], i < 2 ? "bhtd" : "bht"));
    }
  }
  return make_device_group(parts, 'b');
}

Result<DeviceGroup> sglang_group(const SglangPool& pool) {
  const std::string_view dims = dims_of(pool.layout);
  if (dims.empty()) {
    return refuse("the layout", std::to_string(static_cast<int>(pool.layout)), "1 to 4");
  }
  if (pool.page_tokens == 0 || pool.tokens % pool.page_tokens != 0) {
    return refuse("the number of tokens", std::to_string(pool.tokens),
                  "a multiple of page_tokens, " + std::to_string(pool.page_tokens));
  }
  if (pool.layers == 0 || pool.layers > kLayerCountMax) {
    return refuse("the number of layers", std::to_string(pool.layers),
                  "1 to " + std::to_string(kLayerCountMax));
  }
  const bool by_page = dims.find('b') != std::string_view::npos;
  std::vector<uint64_t> shape;
  std::string names;
  if (!pool.mla) {
    shape.push_back(2);
    names = "k";
  }
  names += dims;
  for (const char dim : dims) {
    switch (dim) {
      case 'b':
        shape.push_back(pool.tokens / pool.page_tokens);
        break;
      case 'l':
        shape.push_back(pool.layers);
        break;
      case 't':
        shape.push_back(by_page ? pool.page_tokens : pool.tokens);
        break;
      case 'h':
        shape.push_back(pool.heads);
        break;
      default:
        shape.push_back(pool.elements);
    }
  }
  const TensorView whole =
      contiguous_tensor(pool.memory, pool.item_bytes, std::move(shape), std::move(names));
  std::vector<std::vector<TensorView>> parts;
  for (uint64_t l = 0; l < pool.layers; ++l) {
    TIERCEL_TRY_ASSIGN(const TensorView layer, select(whole, 'l', l));
    if (pool.mla) {
      parts.push_back({layer});
    } else {
      TIERCEL_TRY_ASSIGN(parts.emplace_back(), both_of(layer, 'k'));
    }
  }
  return by_page ? make_device_group(parts, 'b') : make_device_group(parts, 't', pool.page_tokens);
}

}  // namespace tiercel
