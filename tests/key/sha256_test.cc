// SPDX-License-Identifier: Apache-2.0

#include "key/sha256.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "base/random.h"
#include "key/preimage.h"

namespace tiercel {
namespace {

std::string hex_of(const Sha256Digest& digest) { return BlockKey{digest}.hex(); }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex_of(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWhole) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> input(random.below(2000));
    for (std::byte& byte : input) byte = static_cast<std::byte>(random.below(256));
    Sha256 hash;
    hash.start();
    for (std::span<const std::byte> rest(input); !rest.empty();) {
      const size_t size = random.between(1, rest.size());
      hash.update(rest.first(size));
      rest = rest.subspan(size);
    }
    EXPECT_EQ(hash.finish(), sha256(input)) << "round " << round;
  }
}

TEST(Sha256, PaddedInPlaceGivesTheSameDigestAtEveryLength) {
  std::vector<std::byte> buffer(300 + kSha256PaddingBytesMax);
  for (size_t size = 0; size <= 300; ++size) {
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<std::byte>(i * 7 + size);
    const Sha256Digest expected = sha256(std::span(buffer).first(size));
    EXPECT_EQ(sha256_padded_in_place(buffer, size), expected) << "size " << size;
  }
}

TEST(Preimage, TagAndDigestStandSideBySide) {
  Sha256Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(i + 1);
  Preimage at_once(DomainTag("TAG_"), digest);
  Preimage one_by_one{DomainTag("TAG_")};
  one_by_one.put_bytes(digest);
  at_once.put_count(5);
  one_by_one.put_count(5);
  EXPECT_EQ(at_once.digest(), one_by_one.digest());
}

TEST(Preimage, HashesTheSameBytesBelowAtAndAboveItsBuffer) {
  for (size_t size = 0; size < 1200; ++size) {
    const std::string part(size, 'p');
    Preimage preimage{DomainTag("TAG_")};
    preimage.put_bytes(bytes_of(part));
    preimage.put_text("text");
    const std::string whole = "TAG_" + part + std::string("\4\0\0\0text", 8);
    EXPECT_EQ(hex_of(preimage.digest()), hex_of(sha256(bytes_of(whole)))) << "size " << size;
  }
}

}  // namespace
}  // namespace tiercel
