// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/messages.h"

#include <gtest/gtest.h>

#include "transfer/rank_channel.h"
#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

WelcomeMessage sample() {
  WelcomeMessage welcome(uneven_geometry());
  welcome.worker.rank = 2;
  welcome.worker.slice = {2, 3};
  welcome.worker.name_space = test_namespace();
  welcome.worker.writer_epoch = 77;
  welcome.worker.verify = false;
  welcome.worker.store_batch_max = 5;
  welcome.ring_ops = 256;
  welcome.spin = std::chrono::microseconds(20);
  welcome.huge_pages = false;
  welcome.lock_memory = true;
  welcome.prefault = true;
  welcome.device_bytes = 5001 * 4 + 8192 * 2;
  welcome.device_groups = {{0, 4}, {5001 * 4, 2}};
  welcome.store_url = "memory:pool?bytes=1MiB";
  DiskConfig disk;
  disk.sync = DiskSync::kInterval;
  disk.io = DiskIoWay::kThreads;
  disk.register_memory = false;
  disk.queue_depth = 7;
  disk.sync_interval = std::chrono::milliseconds(30);
  disk.stuck_after = std::chrono::milliseconds(90);
  welcome.disk = disk;
  return welcome;
}

TEST(Messages, WelcomeArrivesAsItWasSent) {
  const WelcomeMessage sent = sample();
  const auto received = decode_welcome(encode_welcome(sent));
  ASSERT_TRUE(received) << received.error().to_string();
  EXPECT_EQ(geometry_digest(received->geometry), geometry_digest(sent.geometry));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(received->geometry.tier_bytes(rank), sent.geometry.tier_bytes(rank));
    for (uint32_t slot = 0; slot < 64; ++slot) {
      EXPECT_EQ(received->geometry.offset(SlotId(slot), GroupId(1), rank),
                sent.geometry.offset(SlotId(slot), GroupId(1), rank));
    }
  }
  EXPECT_EQ(received->worker.rank, 2u);
  EXPECT_EQ(received->worker.slice, sent.worker.slice);
  EXPECT_EQ(received->worker.name_space, sent.worker.name_space);
  EXPECT_EQ(received->worker.writer_epoch, 77u);
  EXPECT_FALSE(received->worker.verify);
  EXPECT_EQ(received->worker.store_batch_max, 5u);
  EXPECT_EQ(received->ring_ops, 256u);
  EXPECT_EQ(received->spin, sent.spin);
  EXPECT_FALSE(received->huge_pages);
  EXPECT_TRUE(received->lock_memory);
  EXPECT_TRUE(received->prefault);
  EXPECT_EQ(received->device_bytes, sent.device_bytes);
  ASSERT_EQ(received->device_groups.size(), 2u);
  EXPECT_EQ(received->device_groups[1].offset_bytes, 5001u * 4);
  EXPECT_EQ(received->device_groups[1].block_count, 2u);
  EXPECT_EQ(received->store_url, sent.store_url);
  EXPECT_EQ(received->disk, sent.disk);
  EXPECT_EQ(received->fd_count(), kWelcomeFdsMin + 3) << "device memory and two files";
}

TEST(Messages, WelcomeWithoutADiskHasNone) {
  WelcomeMessage sent = sample();
  sent.disk.reset();
  const auto received = decode_welcome(encode_welcome(sent));
  ASSERT_TRUE(received) << received.error().to_string();
  EXPECT_FALSE(received->disk);
  EXPECT_EQ(received->fd_count(), kWelcomeFdsMin + 1);
}

TEST(Messages, DiskThatCannotBeUsedIsRefused) {
  const auto refused = [](auto change) {
    WelcomeMessage welcome = sample();
    change(*welcome.disk);
    return check_welcome(welcome).code() == Code::kInvalid;
  };
  EXPECT_TRUE(refused([](DiskConfig& disk) { disk.queue_depth = 0; }));
  EXPECT_TRUE(refused([](DiskConfig& disk) { disk.queue_depth = 4097; }));
  EXPECT_TRUE(refused([](DiskConfig& disk) { disk.sync_interval = Duration(0); }));
  EXPECT_TRUE(refused([](DiskConfig& disk) { disk.stuck_after = Duration(-1); }));
}

TEST(Messages, HelloArrivesAsItWasSent) {
  const auto plain = decode_hello(encode_hello({5, {}}));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->rank, 5u);
  EXPECT_FALSE(plain->name_space);
  const auto with = decode_hello(encode_hello({0, test_namespace()}));
  ASSERT_TRUE(with);
  EXPECT_EQ(with->name_space, test_namespace());
}

TEST(Messages, RefusalInPlaceOfAnyMessageIsTheOthersError) {
  const auto refusal = encode_refusal(Error(Code::kNoSpace, "no room"));
  EXPECT_EQ(decode_hello(refusal).code(), Code::kNoSpace);
  EXPECT_EQ(decode_welcome(refusal).code(), Code::kNoSpace);
  const Status ready = decode_ready(refusal);
  EXPECT_EQ(ready.code(), Code::kNoSpace);
  EXPECT_EQ(ready.error().message(), "refused by the other side: no room");
  EXPECT_TRUE(decode_ready(encode_ready()));
}

TEST(Messages, RefusalIsCutAndCannotForgeLinesOrCodes) {
  const Status cut = decode_ready(encode_refusal(Error(Code::kBusy, std::string(9999, 'x'))));
  EXPECT_EQ(cut.error().message(),
            "refused by the other side: " + std::string(kRefusalBytesMax, 'x'));
  auto forged = encode_refusal(Error(Code::kBusy, "a\nb\x1b[0m\xff"));
  for (const int code : {0, 11, 255}) {
    forged[16] = static_cast<std::byte>(code);
    const Status refused = decode_ready(forged);
    EXPECT_EQ(refused.code(), Code::kInvalid);
    EXPECT_EQ(refused.error().message(), "refused by the other side: a?b?[0m?");
  }
}

TEST(Messages, EveryTruncationIsRefused) {
  for (const auto& whole : {encode_hello({1, {}}), encode_welcome(sample()), encode_ready(),
                            encode_refusal(Error(Code::kBusy, "x"))}) {
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const std::span<const std::byte> part = std::span(whole).first(bytes);
      ASSERT_EQ(decode_hello(part).code(), Code::kInvalid);
      ASSERT_EQ(decode_welcome(part).code(), Code::kInvalid);
      ASSERT_EQ(decode_ready(part).code(), Code::kInvalid);
    }
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    ASSERT_EQ(decode_hello(longer).code(), Code::kInvalid);
    ASSERT_EQ(decode_welcome(longer).code(), Code::kInvalid);
    ASSERT_EQ(decode_ready(longer).code(), Code::kInvalid);
  }
}

TEST(Messages, WhateverFlippedBitIsAcceptedIsSentAgainAsItCame) {
  const auto whole = encode_welcome(sample());
  size_t accepted = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto welcome = decode_welcome(bytes);
    if (!welcome) continue;
    ++accepted;
    ASSERT_EQ(encode_welcome(*welcome), bytes) << "bit " << bit;
  }
  // Numbers that may be any, such as a namespace or an epoch.
  EXPECT_GT(accepted, 300u);
}

TEST(Messages, OtherVersionIsNamed) {
  auto bytes = encode_hello({1, {}});
  bytes[4] = std::byte{9};
  const auto hello = decode_hello(bytes);
  ASSERT_FALSE(hello);
  EXPECT_NE(hello.error().message().find("version of the other side is 9; allowed: 2"),
            std::string::npos);
}

struct Change {
  const char* name;
  void (*apply)(WelcomeMessage& welcome);
};

class BadWelcome : public ::testing::TestWithParam<Change> {};

TEST_P(BadWelcome, IsRefusedByBothSides) {
  WelcomeMessage welcome = sample();
  ASSERT_TRUE(check_welcome(welcome));
  GetParam().apply(welcome);
  EXPECT_EQ(check_welcome(welcome).code(), Code::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadWelcome,
    ::testing::Values(
        Change{"Rank", [](WelcomeMessage& w) { w.worker.rank = 3; }},
        Change{"RingOps", [](WelcomeMessage& w) { w.ring_ops = 3; }},
        Change{"RingOpsTooMany", [](WelcomeMessage& w) { w.ring_ops = 1u << 21; }},
        Change{"StoreBatch", [](WelcomeMessage& w) { w.worker.store_batch_max = 0; }},
        Change{"SpinBelowZero", [](WelcomeMessage& w) { w.spin = Duration(-1); }},
        Change{"SpinForEver", [](WelcomeMessage& w) { w.spin = std::chrono::seconds(2); }},
        Change{"StoreUrl", [](WelcomeMessage& w) { w.store_url.assign(1025, 'a'); }},
        Change{"OneDeviceGroup", [](WelcomeMessage& w) { w.device_groups.pop_back(); }},
        Change{"GroupsWithoutDevice", [](WelcomeMessage& w) { w.device_bytes = 0; }},
        Change{"OneBlockTooMany", [](WelcomeMessage& w) { ++w.device_groups[1].block_count; }},
        Change{"OneByteTooFar", [](WelcomeMessage& w) { ++w.device_groups[1].offset_bytes; }},
        Change{"OffsetThatWraps",
               [](WelcomeMessage& w) { w.device_groups[0].offset_bytes = UINT64_MAX; }}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(Messages, GeometriesThatDifferHaveDifferentDigests) {
  const auto digest = [](PayloadBytes payload_bytes, uint32_t blocks, uint32_t extents) {
    return geometry_digest(
        SlotGeometry::for_blocks(std::move(payload_bytes), blocks, extents).value());
  };
  const auto base = digest({{100, 200}}, 16, 4);
  EXPECT_EQ(digest({{100, 200}}, 16, 4), base);
  EXPECT_NE(digest({{200, 100}}, 16, 4), base);
  EXPECT_NE(digest({{100}, {200}}, 16, 4), base);
  EXPECT_NE(digest({{100, 200}}, 15, 4), base);
  EXPECT_NE(digest({{100, 200}}, 16, 8), base);
}

}  // namespace
}  // namespace tiercel
