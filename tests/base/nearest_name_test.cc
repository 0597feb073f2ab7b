// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <string>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

const std::vector<std::string_view> kNames = {"host_bytes", "disk_bytes", "disk_path", "policy"};

TEST(NearestName, FindsOneEditOfEachKind) {
  EXPECT_EQ(nearest_name("host_bytes", kNames), "host_bytes");
  EXPECT_EQ(nearest_name("host_byte", kNames), "host_bytes");
  EXPECT_EQ(nearest_name("host_bytess", kNames), "host_bytes");
  EXPECT_EQ(nearest_name("hosd_bytes", kNames), "host_bytes");
  EXPECT_EQ(nearest_name("polciy", kNames), "policy");
}

TEST(NearestName, IsEmptyWhereMoreThanAThirdDiffers) {
  EXPECT_EQ(nearest_name("pol", kNames), "");
  EXPECT_EQ(nearest_name("poli", kNames), "policy");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("something_else", kNames), "");
  EXPECT_EQ(nearest_name("policy", {}), "");
}

TEST(NearestName, AnExchangeOfNeighboursIsOneEdit) {
  EXPECT_EQ(nearest_name("lur", {"lru"}), "lru");
  EXPECT_EQ(nearest_name("url", {"lru"}), "");
}

TEST(NearestName, FirstOfEqualsWins) {
  EXPECT_EQ(nearest_name("disk_c", {"disk_a", "disk_b"}), "disk_a");
}

TEST(NearestName, VeryLongTextIsNearNothing) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(nearest_name(text, {text}), "");
}

}  // namespace
}  // namespace tiercel
