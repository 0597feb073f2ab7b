// SPDX-License-Identifier: Apache-2.0
#include "transfer/device_copier.h"

#include <algorithm>
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
    std::vector<std::byte> payload(payload_bytes);
    const uint32_t gathered = copier.gather(GroupId(0), DeviceBlockId(1), payload);
    const auto middle = std::span(device).subspan(payload_bytes, payload_bytes);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), middle.begin()));
    EXPECT_EQ(gathered, crc32c(payload));

    fill_random(payload, payload_bytes + 1);
    std::vector<std::byte> expected = device;
    std::copy(payload.begin(), payload.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(payload_bytes * 2));
    EXPECT_EQ(copier.scatter(GroupId(0), payload, DeviceBlockId(2)), crc32c(payload));
    EXPECT_EQ(device, expected);
  }
}

TEST(ContiguousCopier, RefusesMemoryThatIsNotWholeBlocks) {
  std::vector<std::byte> device(100);
  EXPECT_EQ(ContiguousCopier::create({}).code(), Code::kInvalid);
  EXPECT_EQ(ContiguousCopier::create({{device, 0}}).code(), Code::kInvalid);
  EXPECT_EQ(ContiguousCopier::create({{device, 33}}).code(), Code::kInvalid);
  const auto failed = ContiguousCopier::create({{device, 50}, {device, 101}});
  ASSERT_EQ(failed.code(), Code::kInvalid);
  EXPECT_NE(failed.error().message().find("group 1"), std::string::npos);
  EXPECT_NE(failed.error().message().find("100"), std::string::npos);
}

TEST(ContiguousCopier, KnowsNoBlocksOfOtherGroups) {
  std::vector<std::byte> device(100);
  const auto copier = ContiguousCopier::create({{device, 50}}).value();
  EXPECT_EQ(copier.block_count(GroupId(1)), 0u);
  EXPECT_EQ(copier.payload_bytes(GroupId(255)), 0u);
}

}  // namespace
}  // namespace tiercel
