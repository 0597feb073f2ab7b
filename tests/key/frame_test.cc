// SPDX-License-Identifier: Apache-2.0

#include "tiercel/frame.h"

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "key/samples.h"

namespace tiercel {
namespace {

using Bytes = std::array<std::byte, kFrameBytes>;

Frame sample_frame() {
  Frame frame;
  frame.name_space = testing::digest_of<Namespace>("namespace");
  frame.key = testing::digest_of<BlockKey>("block");
  frame.group = GroupId(3);
  frame.slice = Slice{1, 4};
  frame.token_count = 16;
  frame.stored_bytes = 0x1122334455667788;
  frame.raw_bytes = 0x1122334455667788;
  frame.writer_epoch = 42;
  frame.checksum = 0xdeadbeef;
  return frame;
}

Frame random_frame(Random& random) {
  Frame frame;
  for (std::byte& byte : frame.name_space.bytes) byte = static_cast<std::byte>(random.below(256));
  for (std::byte& byte : frame.key.bytes) byte = static_cast<std::byte>(random.below(256));
  frame.group = GroupId(static_cast<uint8_t>(random.below(256)));
  frame.slice = Slice{static_cast<uint16_t>(random.next()), static_cast<uint16_t>(random.next())};
  frame.token_count = static_cast<uint32_t>(random.next());
  frame.stored_bytes = random.next();
  frame.raw_bytes = random.next();
  frame.writer_epoch = random.next();
  frame.checksum = static_cast<uint32_t>(random.next());
  return frame;
}

Bytes encoded(const Frame& frame) {
  Bytes bytes;
  bytes.fill(std::byte{0xff});  // encode_frame must write every byte
  encode_frame(frame, bytes);
  return bytes;
}

// Makes the frame's own checksum right again, so that only the check under test can object.
void reseal(Bytes& bytes) {
  const uint32_t checksum = crc32c(std::span(bytes).first(kFrameBytes - 4));
  std::memcpy(bytes.data() + kFrameBytes - 4, &checksum, 4);
}

void expect_refused(const Bytes& bytes, const std::string& message) {
  const Result<Frame> frame = decode_frame(bytes);
  ASSERT_EQ(frame.code(), Code::kCorrupt);
  EXPECT_EQ(frame.error().message(), message);
  uint32_t checksum = 7;
  EXPECT_EQ(check_frame(bytes, sample_frame(), &checksum), Code::kCorrupt);
  EXPECT_EQ(checksum, 7u) << "a frame that is refused promises nothing";
}

TEST(Frame, RoundTrips) {
  Random random(11);
  for (int round = 0; round < 1000; ++round) {
    const Frame frame = random_frame(random);
    const Bytes bytes = encoded(frame);
    const Result<Frame> decoded = decode_frame(bytes);
    ASSERT_TRUE(decoded) << decoded.error().to_string();
    EXPECT_EQ(*decoded, frame);
    uint32_t checksum = 0;
    ASSERT_EQ(check_frame(bytes, frame, &checksum), Code::kOk);
    EXPECT_EQ(checksum, frame.checksum);
  }
}

TEST(Frame, EveryFlippedBitIsCorrupt) {
  Bytes bytes = encoded(sample_frame());
  for (size_t bit = 0; bit < 8 * kFrameBytes; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(decode_frame(bytes).code(), Code::kCorrupt) << "bit " << bit;
    uint32_t checksum = 0;
    EXPECT_EQ(check_frame(bytes, sample_frame(), &checksum), Code::kCorrupt) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(Frame, EveryTornFrameIsCorrupt) {
  const Bytes whole = encoded(sample_frame());
  Frame older = sample_frame();
  older.key = testing::digest_of<BlockKey>("older");
  older.writer_epoch = 41;
  older.checksum = 1;
  for (const Bytes& before : {Bytes{}, encoded(older)}) {
    for (size_t written = 0; written < kFrameBytes; ++written) {
      Bytes torn = before;
      std::memcpy(torn.data(), whole.data(), written);
      uint32_t checksum = 0;
      EXPECT_EQ(check_frame(torn, sample_frame(), &checksum), Code::kCorrupt) << written;
    }
  }
}

TEST(Frame, MagicVersionReservedBytesAndKindsAreCheckedThemselves) {
  const Bytes good = encoded(sample_frame());
  const auto with = [&](size_t offset, uint8_t value) {
    Bytes bytes = good;
    bytes[offset] = std::byte{value};
    reseal(bytes);
    return bytes;
  };
  for (size_t offset = 0; offset < 8; ++offset) expect_refused(with(offset, 'X'), "no frame magic");
  for (size_t offset = 8; offset < 12; ++offset) {
    expect_refused(with(offset, 2), "frame of another format version");
  }
  expect_refused(with(85, 1), "unknown codec in the frame");
  expect_refused(with(86, 0), "unknown checksum kind in the frame");
  expect_refused(with(87, 1), "reserved bytes of the frame are not zero");
  for (size_t offset = 116; offset < 188; ++offset) {
    expect_refused(with(offset, 1), "reserved bytes of the frame are not zero");
  }
}

TEST(Frame, EveryFieldButChecksumAndEpochMustBeAsExpected) {
  const std::vector<std::function<void(Frame&)>> changes = {
      [](Frame& f) { f.name_space.bytes[0] ^= std::byte{1}; },
      [](Frame& f) { f.name_space.bytes[31] ^= std::byte{1}; },
      [](Frame& f) { f.key.bytes[0] ^= std::byte{1}; },
      [](Frame& f) { f.key.bytes[31] ^= std::byte{1}; },
      [](Frame& f) { f.group = GroupId(4); },
      [](Frame& f) { f.slice.rank = 2; },
      [](Frame& f) { f.slice.rank_count = 8; },
      [](Frame& f) { f.slice = Slice::all(); },
      [](Frame& f) { f.token_count = 15; },
      [](Frame& f) { f.codec = static_cast<Codec>(1); },
      [](Frame& f) { f.checksum_kind = static_cast<ChecksumKind>(2); },
      [](Frame& f) { f.stored_bytes += 1; },
      [](Frame& f) { f.raw_bytes += uint64_t{1} << 63; },
  };
  for (size_t index = 0; index < changes.size(); ++index) {
    Frame other = sample_frame();
    changes[index](other);
    uint32_t checksum = 7;
    EXPECT_EQ(check_frame(encoded(other), sample_frame(), &checksum), Code::kCorrupt) << index;
    EXPECT_EQ(check_frame(encoded(sample_frame()), other, &checksum), Code::kCorrupt) << index;
    EXPECT_EQ(checksum, 7u);
  }
}

TEST(Frame, ChecksumAndEpochAreReportedNotCompared) {
  Frame expected = sample_frame();
  expected.checksum = 0;
  expected.writer_epoch = 0;
  uint32_t checksum = 0;
  ASSERT_EQ(check_frame(encoded(sample_frame()), expected, &checksum), Code::kOk);
  EXPECT_EQ(checksum, 0xdeadbeef);
}

TEST(Frame, ArbitraryBytesBehindAValidStartAreSafe) {
  Random random(12);
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = encoded(random_frame(random));
    for (size_t i = random.below(kFrameBytes - 4); i < kFrameBytes; ++i) {
      bytes[i] = static_cast<std::byte>(random.below(256));
    }
    if (random.chance(0.5)) reseal(bytes);
    const Result<Frame> frame = decode_frame(bytes);
    if (frame) {
      EXPECT_EQ(encoded(*frame), bytes);
    }
  }
}

}  // namespace
}  // namespace tiercel
