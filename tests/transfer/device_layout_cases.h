// SPDX-License-Identifier: Apache-2.0
//
// Device layouts to test with, each beside a slow and obvious account of where its bytes are: all
// elements of a block are listed by their logical indexes, and the payload has them in the order of
// their addresses, tensor after tensor. Nothing here uses what is tested.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/engine_layouts.h"

#include "base/random.h"
#include "transfer/rank_fixture.h"

namespace tiercel::testing {

struct GroupCase {
  std::vector<std::vector<TensorView>> layers;  // with dims
  char block_dim = 'b';
  uint32_t steps_per_block = 1;
  DeviceGroup group;
};

// Places (indexes into the case's memory) of a block's bytes, in payload order, layer by layer.
using LayerPlaces = std::vector<std::vector<size_t>>;

struct LayoutCase {
  LayoutCase() = default;
  LayoutCase(LayoutCase&&) = default;  // its tensors point into its memory
  LayoutCase& operator=(LayoutCase&&) = default;

  std::string name;
  std::vector<std::byte> memory;
  std::vector<GroupCase> groups;

  DeviceLayout layout() const {
    std::vector<DeviceGroup> all;
    for (const GroupCase& group : groups) all.push_back(group.group);
    auto layout = DeviceLayout::create(std::move(all));
    EXPECT_TRUE(layout) << name << ": " << (layout ? "" : layout.error().message());
    return layout.value();
  }

  LayerPlaces places(size_t group_index, uint32_t block) const {
    const GroupCase& group = groups[group_index];
    LayerPlaces layers;
    for (const auto& tensors : group.layers) {
      auto& places = layers.emplace_back();
      for (const TensorView& tensor : tensors) {
        std::vector<size_t> part = tensor_places(tensor, group, block);
        std::sort(part.begin(), part.end());
        places.insert(places.end(), part.begin(), part.end());
      }
    }
    return layers;
  }

  // The payload of a block in the memory `from`.
  std::vector<std::byte> payload(size_t group, uint32_t block,
                                 const std::vector<std::byte>& from) const {
    std::vector<std::byte> payload;
    for (const auto& layer : places(group, block)) {
      for (const size_t place : layer) payload.push_back(from[place]);
    }
    return payload;
  }

 private:
  std::vector<size_t> tensor_places(const TensorView& tensor, const GroupCase& group,
                                    uint32_t block) const {
    std::vector<size_t> places;
    std::vector<uint64_t> index(tensor.shape.size(), 0);
    const size_t block_at = tensor.dims.find(group.block_dim);
    while (true) {
      if (index[block_at] / group.steps_per_block == block) {
        size_t place =
            static_cast<size_t>(tensor.memory.data() - memory.data()) + tensor.offset_bytes;
        for (size_t i = 0; i < index.size(); ++i) {
          place += index[i] * tensor.strides[i] * tensor.item_bytes;
        }
        for (size_t byte = 0; byte < tensor.item_bytes; ++byte) places.push_back(place + byte);
      }
      size_t dim = 0;
      while (dim < index.size() && ++index[dim] == tensor.shape[dim]) index[dim++] = 0;
      if (dim == index.size()) return places;
    }
  }
};

// A tensor in which the dimensions stand in the order `order` in memory.
inline TensorView permuted_tensor(std::span<std::byte> memory, uint64_t offset_bytes,
                                  uint32_t item_bytes, std::string dims,
                                  std::vector<uint64_t> shape, const std::string& order) {
  TensorView tensor{memory, offset_bytes, item_bytes, std::move(shape), {}, std::move(dims)};
  tensor.strides.resize(tensor.shape.size());
  uint64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t dim = tensor.dims.find(order[i]);
    tensor.strides[dim] = stride;
    stride *= tensor.shape[dim];
  }
  return tensor;
}

inline LayoutCase make_case(const std::string& name, size_t memory_bytes,
                            const std::function<void(LayoutCase&, std::span<std::byte>)>& fill) {
  LayoutCase layout_case;
  layout_case.name = name;
  layout_case.memory.resize(memory_bytes + 256);
  fill_random(layout_case.memory, memory_bytes);
  // Not at the begin: what stands beside the tensors must stay as it is.
  fill(layout_case, std::span(layout_case.memory).subspan(128, memory_bytes));
  return layout_case;
}

template <typename GroupResult>
DeviceGroup must_group(const GroupResult& result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return result.value();
}

// vLLM, one tensor a layer, `order` of the dimensions in memory; layers stand behind each other.
inline LayoutCase vllm_case(const std::string& name, const std::string& order,
                            uint32_t kernel_blocks_per_block, uint32_t item_bytes) {
  constexpr uint64_t kLayers = 3, kBlocks = 6, kHeads = 2, kTokens = 4, kElements = 10;
  const uint64_t layer_bytes = kBlocks * kHeads * kTokens * kElements * item_bytes;
  return make_case(name, kLayers * layer_bytes, [&](LayoutCase& c, std::span<std::byte> memory) {
    GroupCase group;
    group.steps_per_block = kernel_blocks_per_block;
    std::vector<TensorView> tensors;
    for (uint64_t l = 0; l < kLayers; ++l) {
      tensors.push_back(permuted_tensor(memory, l * layer_bytes, item_bytes, "bhtd",
                                        {kBlocks, kHeads, kTokens, kElements}, order));
      group.layers.push_back({tensors.back()});
      tensors.back().dims.clear();
    }
    group.group = must_group(vllm_group(tensors, kernel_blocks_per_block));
    c.groups.push_back(group);
  });
}

inline LayoutCase vllm_cross_layer_case(const std::string& name, const std::string& dims,
                                        uint32_t kernel_blocks_per_block) {
  constexpr uint64_t kLayers = 3, kBlocks = 6, kHeads = 2, kTokens = 4, kElements = 8;
  const uint64_t bytes = kLayers * kBlocks * kHeads * kTokens * kElements * 2;
  return make_case(name, bytes, [&](LayoutCase& c, std::span<std::byte> memory) {
    std::vector<uint64_t> shape;
    for (const char dim : dims) {
      shape.push_back(dim == 'b'   ? kBlocks
                      : dim == 'l' ? kLayers
                      : dim == 'h' ? kHeads
                      : dim == 't' ? kTokens
                                   : kElements);
    }
    const TensorView whole = contiguous_tensor(memory, 2, shape, dims);
    GroupCase group;
    group.steps_per_block = kernel_blocks_per_block;
    for (uint64_t l = 0; l < kLayers; ++l) {
      TensorView layer = whole;
      const size_t at = dims.find('l');
      layer.offset_bytes = l * whole.strides[at] * 2;
      layer.shape[at] = 1;
      group.layers.push_back({layer});
    }
    group.group = must_group(vllm_cross_layer_group(whole, kernel_blocks_per_block));
    c.groups.push_back(group);
  });
}

inline LayoutCase vllm_mla_case() {
  constexpr uint64_t kLayers = 2, kBlocks = 5, kTokens = 4, kLatent = 9;
  const uint64_t layer_bytes = kBlocks * kTokens * kLatent * 2;
  return make_case(
      "vllm_mla", kLayers * layer_bytes, [&](LayoutCase& c, std::span<std::byte> memory) {
        GroupCase group;
        std::vector<TensorView> tensors;
        for (uint64_t l = 0; l < kLayers; ++l) {
          tensors.push_back(contiguous_tensor(memory.subspan(l * layer_bytes, layer_bytes), 2,
                                              {kBlocks, kTokens, kLatent}, "btd"));
          group.layers.push_back({tensors.back()});
        }
        group.group = must_group(vllm_group(tensors));
        c.groups.push_back(group);
      });
}

inline LayoutCase vllm_apart_case() {
  constexpr uint64_t kLayers = 2, kBlocks = 5, kTokens = 4, kHeads = 2, kElements = 3;
  const uint64_t half_bytes = kBlocks * kTokens * kHeads * kElements * 2;
  return make_case(
      "vllm_k_and_v_apart", kLayers * 2 * half_bytes,
      [&](LayoutCase& c, std::span<std::byte> memory) {
        GroupCase group;
        std::vector<TensorView> tensors;
        for (uint64_t l = 0; l < kLayers; ++l) {
          const auto layer = memory.subspan(l * 2 * half_bytes, 2 * half_bytes);
          tensors.push_back(contiguous_tensor(layer, 2, {2, kBlocks, kTokens, kHeads, kElements}));
          auto& parts = group.layers.emplace_back();
          for (uint64_t k = 0; k < 2; ++k) {
            parts.push_back(contiguous_tensor(layer.subspan(k * half_bytes, half_bytes), 2,
                                              {kBlocks, kTokens, kHeads, kElements}, "bthd"));
          }
        }
        group.group = must_group(vllm_group(tensors));
        c.groups.push_back(group);
      });
}

// Two groups, the layers of which stand at the same addresses (hybrid models): as many layers in
// each, blocks of one pool, here with another division into heads and elements.
inline LayoutCase vllm_hybrid_case() {
  constexpr uint64_t kLayers = 2, kBlocks = 4, kTokens = 4, kRow = 12;
  const uint64_t layer_bytes = kBlocks * kTokens * kRow * 2;
  return make_case(
      "vllm_hybrid_groups_share_memory", kLayers * layer_bytes,
      [&](LayoutCase& c, std::span<std::byte> memory) {
        for (const uint64_t heads : {2u, 3u}) {
          GroupCase group;
          std::vector<TensorView> tensors;
          for (uint64_t l = 0; l < kLayers; ++l) {
            tensors.push_back(contiguous_tensor(memory.subspan(l * layer_bytes, layer_bytes), 2,
                                                {kBlocks, heads, kTokens, kRow / heads}, "bhtd"));
            group.layers.push_back({tensors.back()});
          }
          group.group = must_group(vllm_group(tensors));
          c.groups.push_back(group);
        }
      });
}

inline LayoutCase fastdeploy_case(const std::string& name, bool with_values, bool with_scales) {
  constexpr uint64_t kLayers = 2, kBlocks = 5, kHeads = 2, kTokens = 4, kElements = 6;
  const uint64_t tensor_bytes = kBlocks * kHeads * kTokens * kElements;
  const uint64_t scale_bytes = kBlocks * kHeads * kTokens * 2;
  return make_case(
      name, kLayers * 2 * (tensor_bytes + scale_bytes),
      [&](LayoutCase& c, std::span<std::byte> memory) {
        FastDeployTensors tensors;
        GroupCase group;
        group.layers.resize(kLayers);
        const auto add = [&](std::vector<TensorView>& list, bool scales) {
          for (uint64_t l = 0; l < kLayers; ++l) {
            const uint64_t bytes = scales ? scale_bytes : tensor_bytes;
            std::vector<uint64_t> shape = {kBlocks, kHeads, kTokens, kElements};
            if (scales) shape.pop_back();
            list.push_back(contiguous_tensor(memory.first(bytes), scales ? 2 : 1, shape));
            group.layers[l].push_back(list.back());
            group.layers[l].back().dims = scales ? "bht" : "bhtd";
            memory = memory.subspan(bytes);
          }
        };
        add(tensors.keys, false);
        if (with_values) add(tensors.values, false);
        if (with_scales) add(tensors.key_scales, true);
        if (with_scales && with_values) add(tensors.value_scales, true);
        group.group = must_group(fastdeploy_group(tensors));
        c.groups.push_back(group);
      });
}

inline LayoutCase sglang_case(const std::string& name, SglangLayout layout, bool mla) {
  SglangPool pool;
  pool.layout = layout;
  pool.layers = 3;
  pool.page_tokens = 4;
  pool.tokens = 5 * pool.page_tokens;
  pool.heads = mla ? 1 : 2;
  pool.elements = 6;
  pool.item_bytes = 2;
  pool.mla = mla;
  const uint64_t half_bytes = pool.layers * pool.tokens * pool.heads * pool.elements * 2;
  return make_case(name, half_bytes * (mla ? 1 : 2),
                   [&](LayoutCase& c, std::span<std::byte> memory) {
                     pool.memory = memory;
                     const uint64_t p = pool.page_tokens, pages = pool.tokens / p;
                     const uint64_t l = pool.layers, h = pool.heads, d = pool.elements;
                     GroupCase group;
                     group.layers.resize(l);
                     for (uint64_t half = 0; half < (mla ? 1u : 2u); ++half) {
                       const auto part = memory.subspan(half * half_bytes, half_bytes);
                       for (uint64_t i = 0; i < l; ++i) {
                         TensorView tensor{part, 0, 2, {}, {}, ""};
                         switch (layout) {
                           case SglangLayout::kLayerFirst:
                             tensor.dims = "thd";
                             tensor.shape = {pool.tokens, h, d};
                             tensor.strides = {h * d, d, 1};
                             tensor.offset_bytes = i * pool.tokens * h * d * 2;
                             break;
                           case SglangLayout::kPageFirst:
                             tensor.dims = "thd";
                             tensor.shape = {pool.tokens, h, d};
                             tensor.strides = {l * h * d, d, 1};
                             tensor.offset_bytes = i * h * d * 2;
                             break;
                           case SglangLayout::kPageFirstDirect:
                             tensor.dims = "bthd";
                             tensor.shape = {pages, p, h, d};
                             tensor.strides = {l * p * h * d, h * d, d, 1};
                             tensor.offset_bytes = i * p * h * d * 2;
                             break;
                           case SglangLayout::kPageHead:
                             tensor.dims = "bhtd";
                             tensor.shape = {pages, h, p, d};
                             tensor.strides = {h * p * l * d, p * l * d, l * d, 1};
                             tensor.offset_bytes = i * d * 2;
                             break;
                         }
                         group.layers[i].push_back(tensor);
                       }
                     }
                     const bool by_token =
                         layout == SglangLayout::kLayerFirst || layout == SglangLayout::kPageFirst;
                     group.block_dim = by_token ? 't' : 'b';
                     group.steps_per_block = by_token ? pool.page_tokens : 1;
                     group.group = must_group(sglang_group(pool));
                     c.groups.push_back(group);
                   });
}

inline LayoutCase contiguous_case(uint64_t payload_bytes) {
  return make_case("contiguous_" + std::to_string(payload_bytes), payload_bytes * 4,
                   [&](LayoutCase& c, std::span<std::byte> memory) {
                     GroupCase group;
                     group.layers = {{contiguous_tensor(memory, 1, {4, payload_bytes}, "bd")}};
                     group.group = contiguous_group(memory, payload_bytes);
                     c.groups.push_back(group);
                   });
}

// K and V of one layer run by run, runs of `run_bytes`.
inline LayoutCase interleaved_case(const std::string& name, uint64_t run_bytes, uint64_t runs) {
  return make_case(name, 3 * runs * 2 * run_bytes, [&](LayoutCase& c, std::span<std::byte> memory) {
    const TensorView whole = contiguous_tensor(memory, 1, {3, runs, 2, run_bytes}, "btkd");
    GroupCase group;
    group.layers.push_back({select(whole, 'k', 0).value(), select(whole, 'k', 1).value()});
    group.group = must_group(make_device_group(group.layers, 'b'));
    c.groups.push_back(group);
  });
}

// Any order of dimensions, any gaps, any place of the block dimension. Without groups if its runs
// need more strides than there are.
inline LayoutCase random_case(uint64_t seed) {
  Random random(seed);
  const std::string dims = "bhtd";
  const uint64_t layer_count = random.between(1, 3);
  const uint32_t steps = static_cast<uint32_t>(random.between(1, 2));
  std::vector<uint64_t> shape = {steps * random.between(1, 4), random.between(1, 3),
                                 random.between(1, 3), random.between(1, 5)};
  std::string order = dims;
  for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(i + 1)]);
  const auto item_bytes = static_cast<uint32_t>(uint64_t{1} << random.below(3));
  std::vector<uint64_t> strides(4);
  uint64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t dim = dims.find(order[i]);
    strides[dim] = stride;
    stride *= shape[dim];
    if (random.chance(0.3)) stride += random.below(4);
  }
  const uint64_t tensor_bytes = stride * item_bytes;
  return make_case(
      "random_" + std::to_string(seed), tensor_bytes * layer_count * 2,
      [&](LayoutCase& c, std::span<std::byte> memory) {
        GroupCase group;
        group.steps_per_block = steps;
        for (uint64_t l = 0; l < layer_count; ++l) {
          auto& parts = group.layers.emplace_back();
          for (uint64_t k = 0; k < 2; ++k) {
            parts.push_back({memory, (l * 2 + k) * tensor_bytes, item_bytes, shape, strides, dims});
          }
        }
        const auto made = make_device_group(group.layers, 'b', steps);
        if (!made) return;
        group.group = *made;
        c.groups.push_back(group);
      });
}

inline std::vector<LayoutCase> engine_cases() {
  std::vector<LayoutCase> cases;
  cases.push_back(vllm_case("vllm_nhd", "bthd", 1, 2));
  cases.push_back(vllm_case("vllm_hnd", "bhtd", 1, 2));
  cases.push_back(vllm_case("vllm_cpu_packed_cells", "bhtd", 1, 4));
  cases.push_back(vllm_case("vllm_heads_outermost", "hbtd", 1, 2));
  cases.push_back(vllm_case("vllm_kernel_blocks", "bhtd", 2, 2));
  cases.push_back(vllm_case("vllm_kernel_blocks_heads_outermost", "hbtd", 3, 1));
  cases.push_back(vllm_cross_layer_case("vllm_cross_layer_nhd", "blthd", 1));
  cases.push_back(vllm_cross_layer_case("vllm_cross_layer_hnd", "bhltd", 1));
  cases.push_back(vllm_cross_layer_case("vllm_cross_layer_hnd_kernel_blocks", "bhltd", 2));
  cases.push_back(vllm_mla_case());
  cases.push_back(vllm_apart_case());
  cases.push_back(vllm_hybrid_case());
  cases.push_back(fastdeploy_case("fastdeploy", true, false));
  cases.push_back(fastdeploy_case("fastdeploy_scales", true, true));
  cases.push_back(fastdeploy_case("fastdeploy_mla", false, false));
  for (const bool mla : {false, true}) {
    const std::string end = mla ? "_mla" : "";
    cases.push_back(sglang_case("sglang_layer_first" + end, SglangLayout::kLayerFirst, mla));
    cases.push_back(sglang_case("sglang_page_first" + end, SglangLayout::kPageFirst, mla));
    cases.push_back(
        sglang_case("sglang_page_first_direct" + end, SglangLayout::kPageFirstDirect, mla));
    cases.push_back(sglang_case("sglang_page_head" + end, SglangLayout::kPageHead, mla));
  }
  return cases;
}

// All of the above, sizes around the pieces in which copiers work, and 60 random ones.
inline std::vector<LayoutCase> all_layout_cases() {
  std::vector<LayoutCase> cases = engine_cases();
  for (const uint64_t bytes : {1u, 4097u, 16384u, 40'001u}) cases.push_back(contiguous_case(bytes));
  cases.push_back(interleaved_case("runs_of_16", 16, 100));
  cases.push_back(interleaved_case("runs_of_1000", 1000, 40));
  cases.push_back(interleaved_case("runs_of_20000", 20'000, 3));
  size_t random_cases = 0;
  for (uint64_t seed = 0; random_cases < 60 && seed < 300; ++seed) {
    LayoutCase layout_case = random_case(seed);
    if (layout_case.groups.empty()) continue;
    cases.push_back(std::move(layout_case));
    ++random_cases;
  }
  EXPECT_EQ(random_cases, 60u);
  return cases;
}

}  // namespace tiercel::testing
