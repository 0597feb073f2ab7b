// SPDX-License-Identifier: Apache-2.0

#include "key/hex.h"

#include <algorithm>
#include <cctype>
#include <string>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

TEST(Digest, HexRoundTripsInEitherCase) {
  Random random(9);
  for (int round = 0; round < 200; ++round) {
    BlockKey key;
    for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(random.below(256));
    std::string text = key.hex();
    ASSERT_EQ(text.size(), 64u);
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), is_lower_hex_digit)) << text;
    EXPECT_EQ(*BlockKey::from_hex(text), key);
    for (char& digit : text) digit = static_cast<char>(std::toupper(digit));
    EXPECT_EQ(*BlockKey::from_hex(text), key);
  }
}

TEST(Digest, HexShowsBytesInOrder) {
  Namespace name_space;
  name_space.bytes[0] = std::byte{0x0f};
  name_space.bytes[31] = std::byte{0xa0};
  EXPECT_EQ(name_space.hex(), "0f" + std::string(60, '0') + "a0");
}

TEST(Digest, FromHexRefusesEveryOtherLength) {
  for (size_t size = 0; size <= 130; ++size) {
    EXPECT_EQ(RootKey::from_hex(std::string(size, 'a')).code(),
              size == 64 ? Code::kOk : Code::kInvalid);
  }
}

TEST(Digest, FromHexRefusesEveryOtherCharacterAtEveryPlace) {
  const std::string good(64, 'a');
  for (size_t place = 0; place < good.size(); ++place) {
    for (int value = 0; value < 256; ++value) {
      std::string text = good;
      text[place] = static_cast<char>(value);
      const bool is_digit = value < 128 && std::isxdigit(value) != 0;
      ASSERT_EQ(Namespace::from_hex(text).code(), is_digit ? Code::kOk : Code::kInvalid)
          << "value " << value << " at " << place;
    }
  }
  std::string text = good;
  text[5] = 'g';
  EXPECT_EQ(Namespace::from_hex(text).error().message(),
            "digest has no hexadecimal digit at position 5; allowed: 0-9, a-f, A-F");
}

}  // namespace
}  // namespace tiercel
