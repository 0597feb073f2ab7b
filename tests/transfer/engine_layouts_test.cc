// SPDX-License-Identifier: Apache-2.0
#include "tiercel/engine_layouts.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "transfer/device_layout_cases.h"

namespace tiercel {
namespace {

using namespace testing;

std::string order_of(const LayoutCase& c) { return c.layout().order(); }

template <typename Refused>
void expect_refused(const Refused& result, const std::vector<std::string>& words) {
  ASSERT_EQ(result.code(), Code::kInvalid);
  for (const std::string& word : words) {
    EXPECT_NE(result.error().message().find(word), std::string::npos)
        << "'" << word << "' in: " << result.error().message();
  }
}

TEST(EngineLayouts, OrderTellsWhichLayoutsCanReadEachOther) {
  const std::string nhd = order_of(vllm_case("", "bthd", 1, 2));
  const std::string hnd = order_of(vllm_case("", "bhtd", 1, 2));
  EXPECT_EQ(nhd, "0:3*(t4h2d10x2)");
  EXPECT_EQ(hnd, "0:3*(h2t4d10x2)");
  // Where blocks stand does not matter, what is inside of one does.
  EXPECT_EQ(order_of(vllm_case("", "hbtd", 1, 2)), hnd);
  EXPECT_EQ(order_of(vllm_case("", "bhtd", 2, 2)), "0:3*(b2h2t4d10x2)");
  EXPECT_EQ(order_of(vllm_case("", "bhtd", 1, 4)), "0:3*(h2t4d10x4)");
  EXPECT_EQ(order_of(vllm_cross_layer_case("", "blthd", 1)), "0:3*(t4h2d8x2)");
  EXPECT_EQ(order_of(vllm_cross_layer_case("", "bhltd", 1)), "0:3*(h2t4d8x2)");
  EXPECT_EQ(order_of(vllm_mla_case()), "0:2*(t4d9x2)");
  EXPECT_EQ(order_of(fastdeploy_case("", true, true)), "0:2*(h2t4d6x1+h2t4d6x1+h2t4x2+h2t4x2)");
  EXPECT_EQ(order_of(vllm_hybrid_case()), "0:2*(h2t4d6x2) 1:2*(h3t4d4x2)");
  const std::string page_first = order_of(sglang_case("", SglangLayout::kPageFirst, false));
  EXPECT_EQ(page_first, "0:3*(t4h2d6x2+t4h2d6x2)");
  EXPECT_EQ(order_of(sglang_case("", SglangLayout::kLayerFirst, false)), page_first);
  EXPECT_EQ(order_of(sglang_case("", SglangLayout::kPageFirstDirect, false)), page_first);
  EXPECT_EQ(order_of(sglang_case("", SglangLayout::kPageHead, false)), "0:3*(h2t4d6x2+h2t4d6x2)");
}

TEST(EngineLayouts, OrderListsLayersThatDifferAndNamesBytesWhereNothingIsTold) {
  std::vector<std::byte> memory(1000);
  DevicePart part;
  part.memory = memory;
  part.run_bytes = 8;
  DeviceGroup group{1, {}};
  for (uint64_t i = 0; i < 4; ++i) {
    part.offset_bytes = 8 * i;
    part.order = i == 2 ? "" : "d8x1";
    group.layers.push_back({{part}});
  }
  EXPECT_EQ(DeviceLayout::create({group}).value().order(), "0:2*(d8x1),1*(8),1*(d8x1)");
}

TEST(EngineLayouts, TensorsMustBeWellFormed) {
  std::vector<std::byte> memory(4096);
  const TensorView good = contiguous_tensor(memory, 2, {4, 2, 4, 8}, "bhtd");
  const auto made = [](const TensorView& tensor, uint32_t steps = 1) {
    const std::vector<std::vector<TensorView>> layers = {{tensor}};
    return make_device_group(layers, 'b', steps);
  };
  ASSERT_TRUE(made(good));
  EXPECT_EQ(made(good)->block_count, 4u);
  EXPECT_EQ(made(good, 2)->block_count, 2u);
  expect_refused(made(good, 3), {"is 4", "multiple", "3"});
  expect_refused(made(good, 0), {"multiple"});
  TensorView bad = good;
  bad.item_bytes = 0;
  expect_refused(made(bad), {"item_bytes is 0"});
  bad = good;
  bad.strides.pop_back();
  expect_refused(made(bad), {"3 and 4", "4"});
  bad = good;
  bad.dims = "bht";
  expect_refused(made(bad), {"4 and 3"});
  bad.dims = "bhtt";
  expect_refused(made(bad), {"'t'", "twice"});
  bad.dims = "xhtd";
  expect_refused(made(bad), {"\"xhtd\"", "'b'"});
  bad = good;
  bad.shape[2] = 0;
  expect_refused(made(bad), {"'t'", "size 0"});
  bad = good;
  bad.strides[1] = UINT64_MAX / 2;
  bad.item_bytes = 4;
  expect_refused(made(bad), {"'h'", "stride"});
  bad = good;
  bad.strides[0] = UINT64_MAX / 2;
  bad.item_bytes = 4;
  expect_refused(made(bad), {"block dimension"});
  bad = good;
  bad.shape[3] = uint64_t{1} << 32;
  expect_refused(made(bad), {"'d'", "4294967296"});
  bad = good;
  bad.shape[0] = uint64_t{1} << 32;
  expect_refused(made(bad), {"number of blocks", "4294967296"});
}

TEST(EngineLayouts, TensorsWithGapsInThreeDimensionsAreRefused) {
  std::vector<std::byte> memory(4096);
  const TensorView tensor{memory, 0, 2, {2, 2, 2, 2, 2}, {512, 128, 32, 8, 1}, "bxhtd"};
  const std::vector<std::vector<TensorView>> layers = {{tensor}};
  expect_refused(make_device_group(layers, 'b'), {"3 strides", "x2h2t2d2x2", "up to 2"});
}

// What a broadcast dimension gives in other libraries.
TEST(EngineLayouts, AStrideOfZeroIsFoundByTheLayout) {
  std::vector<std::byte> memory(4096);
  TensorView tensor = contiguous_tensor(memory, 2, {4, 2, 4, 8}, "bhtd");
  tensor.strides[1] = 0;
  const std::vector<std::vector<TensorView>> layers = {{tensor}};
  const auto group = make_device_group(layers, 'b');
  ASSERT_TRUE(group);
  EXPECT_EQ(DeviceLayout::create({*group}).code(), Code::kInvalid);
}

TEST(EngineLayouts, AllTensorsOfAGroupHaveEquallyManyBlocks) {
  std::vector<std::byte> memory(4096);
  const std::vector<TensorView> layers = {contiguous_tensor(memory, 1, {4, 2, 4, 8}),
                                          contiguous_tensor(memory, 1, {5, 2, 4, 8})};
  expect_refused(vllm_group(layers), {"is 5", "4"});
}

TEST(EngineLayouts, SelectFixesADimension) {
  std::vector<std::byte> memory(4096);
  const TensorView tensor = contiguous_tensor(memory, 2, {4, 3, 8}, "bld");
  const TensorView layer = select(tensor, 'l', 2).value();
  EXPECT_EQ(layer.dims, "bd");
  EXPECT_EQ(layer.shape, (std::vector<uint64_t>{4, 8}));
  EXPECT_EQ(layer.strides, (std::vector<uint64_t>{24, 1}));
  EXPECT_EQ(layer.offset_bytes, 2u * 8 * 2);
  expect_refused(select(tensor, 'x', 0), {"'x'"});
  expect_refused(select(tensor, 'l', 3), {"is 3", "less than its size, 3"});
  TensorView far = tensor;
  far.strides[1] = UINT64_MAX / 2;
  expect_refused(select(far, 'l', 2), {"'l'", "stride"});
}

TEST(EngineLayouts, VllmTensorsOfAnotherNumberOfDimensionsAreRefused) {
  std::vector<std::byte> memory(4096);
  const auto made = [&](std::vector<uint64_t> shape) {
    const std::vector<TensorView> layers = {contiguous_tensor(memory, 1, std::move(shape))};
    return vllm_group(layers);
  };
  EXPECT_TRUE(made({4, 4, 8}));
  EXPECT_TRUE(made({4, 2, 4, 8}));
  EXPECT_TRUE(made({2, 4, 4, 2, 8}));
  expect_refused(made({4, 8}), {"is 2"});
  expect_refused(made({2, 4, 4, 2, 2, 4}), {"is 6"});
  expect_refused(made({3, 4, 4, 2, 8}), {"is 3", "K or V"});
  EXPECT_EQ(DeviceLayout::create({vllm_group({}).value()}).code(), Code::kInvalid);
  expect_refused(vllm_cross_layer_group(contiguous_tensor(memory, 1, {4, 8}, "bd")), {"'l'"});
  expect_refused(vllm_cross_layer_group(contiguous_tensor(memory, 1, {4, 5000}, "bl")),
                 {"is 5000", "4096"});
}

TEST(EngineLayouts, FastDeployListsMustBeAsLongAsTheKeys) {
  std::vector<std::byte> memory(4096);
  const TensorView tensor = contiguous_tensor(memory, 1, {4, 2, 4, 8});
  const TensorView scales = contiguous_tensor(memory, 1, {4, 2, 4});
  FastDeployTensors tensors;
  tensors.keys = {tensor, tensor};
  tensors.values = {tensor};
  expect_refused(fastdeploy_group(tensors), {"values is 1", "2"});
  tensors.values = {tensor, tensor};
  tensors.value_scales = {scales};
  expect_refused(fastdeploy_group(tensors), {"value_scales is 1"});
  // Scales with the shape of a tensor.
  tensors.value_scales = {tensor, tensor};
  expect_refused(fastdeploy_group(tensors), {"4 and 3"});
}

TEST(EngineLayouts, SglangPoolsMustBeWholePages) {
  std::vector<std::byte> memory(10'000);
  SglangPool pool;
  pool.memory = memory;
  pool.layers = 2;
  pool.tokens = 16;
  pool.page_tokens = 4;
  pool.heads = 2;
  pool.elements = 8;
  pool.item_bytes = 2;
  EXPECT_TRUE(sglang_group(pool));
  SglangPool bad = pool;
  bad.tokens = 17;
  expect_refused(sglang_group(bad), {"is 17", "4"});
  bad = pool;
  bad.page_tokens = 0;
  expect_refused(sglang_group(bad), {"page_tokens, 0"});
  bad = pool;
  bad.layers = 0;
  expect_refused(sglang_group(bad), {"layers is 0"});
  bad = pool;
  bad.heads = 0;
  expect_refused(sglang_group(bad), {"'h'"});
  bad = pool;
  bad.layout = static_cast<SglangLayout>(5);
  expect_refused(sglang_group(bad), {"layout is 5"});
  // A pool that is longer than its memory.
  bad = pool;
  bad.tokens = 16'000;
  EXPECT_EQ(DeviceLayout::create({sglang_group(bad).value()}).code(), Code::kInvalid);
  bad.elements = UINT32_MAX;
  bad.heads = UINT32_MAX;
  EXPECT_EQ(sglang_group(bad)
                .and_then([](const DeviceGroup& group) { return DeviceLayout::create({group}); })
                .code(),
            Code::kInvalid);
}

}  // namespace
}  // namespace tiercel
