// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

const Namespace kSpace = testing::digest_of<Namespace>("namespace");
const BlockKey kKey = testing::digest_of<BlockKey>("block");

TEST(ObjectKey, PartsStandInTheirPlaces) {
  const ObjectKey key(kSpace, GroupId(0xab), Slice{0x1234, 0xcdef}, kKey);
  EXPECT_EQ(key.text(), "v1-" + kSpace.hex().substr(0, 16) + "-ab-1234cdef-" + kKey.hex());
  EXPECT_EQ(ObjectKey(kSpace, GroupId(0), Slice::all(), kKey).text().substr(19, 13),
            "-00-00000000-");
}

TEST(ObjectKey, StartsWithThePrefixOfItsNamespaceOnly) {
  const ObjectKey key(kSpace, GroupId(1), Slice{}, kKey);
  EXPECT_TRUE(key.text().starts_with(object_key_prefix(kSpace)));
  EXPECT_EQ(object_key_prefix(kSpace), "v1-" + kSpace.hex().substr(0, 16) + "-");
  EXPECT_FALSE(key.text().starts_with(object_key_prefix(testing::digest_of<Namespace>("other"))));
}

TEST(ObjectKey, RoundTripsThroughItsText) {
  Random random(10);
  for (int round = 0; round < 500; ++round) {
    const ObjectKey key(testing::digest_of<Namespace>(std::to_string(random.next())),
                        GroupId(static_cast<uint8_t>(random.below(256))),
                        Slice{static_cast<uint16_t>(random.below(65536)),
                              static_cast<uint16_t>(random.below(65536))},
                        testing::digest_of<BlockKey>(std::to_string(random.next())));
    const Result<ObjectKey> parsed = ObjectKey::parse(key.text());
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(*parsed, key);
  }
}

TEST(ObjectKey, EveryOtherLengthIsRefused) {
  const std::string text(ObjectKey(kSpace, GroupId(0), Slice{}, kKey).text());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(ObjectKey::parse(text.substr(0, size)).code(), Code::kInvalid) << size;
  }
  EXPECT_EQ(ObjectKey::parse(text + "0").code(), Code::kInvalid);
}

TEST(ObjectKey, EveryCharacterOutsideThePatternIsRefused) {
  const std::string good(ObjectKey(kSpace, GroupId(0), Slice{}, kKey).text());
  const std::string digits = "0123456789abcdef";
  for (size_t place = 0; place < good.size(); ++place) {
    const bool is_fixed = place < 3 || good[place] == '-';
    for (int value = 0; value < 256; ++value) {
      std::string text = good;
      text[place] = static_cast<char>(value);
      const bool allowed =
          is_fixed ? text == good : digits.find(static_cast<char>(value)) != std::string::npos;
      ASSERT_EQ(ObjectKey::parse(text).code(), allowed ? Code::kOk : Code::kInvalid)
          << "value " << value << " at " << place;
    }
  }
}

TEST(ObjectKey, ErrorNamesThePlace) {
  std::string text(ObjectKey(kSpace, GroupId(0), Slice{}, kKey).text());
  text[1] = '2';  // another format version
  EXPECT_EQ(
      ObjectKey::parse(text).error().message(),
      "object key is wrong at position 1; allowed: v1-NAMESPACE-GROUP-SLICE-KEY in lower-case "
      "hexadecimal digits");
  EXPECT_EQ(ObjectKey::parse("v1").error().message(), "object key has 2 characters; allowed: 96");
}

}  // namespace
}  // namespace tiercel
