// SPDX-License-Identifier: Apache-2.0
#include "transfer/device_copier.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using testing::fill_random;

TEST(ContiguousCopier, MovesExactlyOneBlockEachWayAndReturnsItsChecksum) {
  for (const uint64_t payload_bytes : {1u, 3u, 64u, 1000u, 4097u, 100'003u}) {
    std::vector<std::byte> device(payload_bytes * 3);
    fill_random(device, payload_bytes);
    auto copier = ContiguousCopier::create({{device, payload_bytes}}).value();
    ASSERT_EQ(copier.block_count(GroupId(0)), 3u);
    ASSERT_EQ(copier.layer_count(GroupId(0)), 1u);
    std::vector<std::byte> payload(payload_bytes);
    DeviceCopy copy{.block = DeviceBlockId(1), .payload = payload};
    ASSERT_TRUE(copier.gather(GroupId(0), {&copy, 1}, nullptr));
    const auto middle = std::span(device).subspan(payload_bytes, payload_bytes);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), middle.begin()));
    EXPECT_EQ(copy.checksum, crc32c(payload));

    fill_random(payload, payload_bytes + 1);
    std::vector<std::byte> expected = device;
    std::copy(payload.begin(), payload.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(payload_bytes * 2));
    copy.block = DeviceBlockId(2);
    ASSERT_TRUE(copier.scatter(GroupId(0), {&copy, 1}, nullptr));
    EXPECT_EQ(copy.checksum, crc32c(payload));
    EXPECT_EQ(device, expected);
  }
}

TEST(ContiguousCopier, RefusesMemoryThatIsNotWholeBlocks) {
  std::vector<std::byte> device(100);
  EXPECT_EQ(ContiguousCopier::create({}).code(), Code::kInvalid);
  EXPECT_EQ(ContiguousCopier::create({{device, 0}}).code(), Code::kInvalid);
  EXPECT_EQ(ContiguousCopier::create({{device, 33}}).code(), Code::kInvalid);
  EXPECT_EQ(ContiguousCopier::create({{{}, 33}}).code(), Code::kInvalid);
  const auto failed = ContiguousCopier::create({{device, 50}, {device, 101}});
  ASSERT_EQ(failed.code(), Code::kInvalid);
  EXPECT_NE(failed.error().message().find("group 1"), std::string::npos);
  EXPECT_NE(failed.error().message().find("100"), std::string::npos);
}

TEST(ContiguousCopier, KnowsNoBlocksOfOtherGroups) {
  std::vector<std::byte> device(100);
  const auto copier = ContiguousCopier::create({{device, 50}}).value();
  EXPECT_EQ(copier.block_count(GroupId(1)), 0u);
  EXPECT_EQ(copier.layer_count(GroupId(1)), 0u);
  EXPECT_EQ(copier.payload_bytes(GroupId(255)), 0u);
  ContiguousCopier none;
  EXPECT_EQ(none.payload_bytes(GroupId(0)), 0u);
  EXPECT_EQ(none.gather(GroupId(0), {}, nullptr).code(), Code::kInvalid);
}

// One bad entry among good ones: nothing at all may be touched.
TEST(DeviceCopier, RefusesTheWholeCallForOneBadEntry) {
  std::vector<std::byte> device(300);
  fill_random(device, 1);
  auto copier = ContiguousCopier::create({{device, 100}}).value();
  const std::vector<std::byte> device_before = device;
  std::vector<std::byte> memory(201);
  const std::vector<std::byte> memory_before = memory;
  const auto first = std::span(memory).first(100);
  const auto second = std::span(memory).subspan(100, 100);
  const auto expect_refused = [&](GroupId group, DeviceCopy bad, const std::string& value) {
    std::array<DeviceCopy, 2> copies = {DeviceCopy{.block = DeviceBlockId(0), .payload = first},
                                        bad};
    for (const bool gather : {true, false}) {
      const Status status =
          gather ? copier.gather(group, copies, nullptr) : copier.scatter(group, copies, nullptr);
      ASSERT_EQ(status.code(), Code::kInvalid);
      EXPECT_NE(status.error().message().find(value), std::string::npos)
          << status.error().message();
    }
  };
  expect_refused(GroupId(0), {.block = DeviceBlockId(3), .payload = second}, "block is 3");
  expect_refused(GroupId(0), {.block = DeviceBlockId(UINT32_MAX), .payload = second},
                 "block is 4294967295");
  expect_refused(GroupId(0), {.block = DeviceBlockId(1), .payload = second.first(99)}, "99 bytes");
  expect_refused(GroupId(0),
                 {.block = DeviceBlockId(1), .payload = std::span(memory).subspan(100, 101)},
                 "101 bytes");
  expect_refused(GroupId(1), {.block = DeviceBlockId(1), .payload = second}, "group 1");
  EXPECT_EQ(device, device_before);
  EXPECT_EQ(memory, memory_before);
}

}  // namespace
}  // namespace tiercel
