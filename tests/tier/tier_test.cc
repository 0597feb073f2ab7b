// SPDX-License-Identifier: Apache-2.0
#include "tiercel/tier.h"

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(Tier, HasANameForEachValueAndForValuesOutOfRange) {
  EXPECT_EQ(to_string(Tier::kDevice), "device");
  EXPECT_EQ(to_string(Tier::kHost), "host");
  EXPECT_EQ(to_string(Tier::kDisk), "disk");
  EXPECT_EQ(to_string(static_cast<Tier>(9)), "unknown");
}

}  // namespace
}  // namespace tiercel
