// SPDX-License-Identifier: Apache-2.0
#include "tiercel/transfer.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(OpKinds, HaveTheirDocumentedWords) {
  EXPECT_EQ(to_string(OpKind::kLoad), "load");
  EXPECT_EQ(to_string(OpKind::kSave), "save");
  EXPECT_EQ(to_string(OpKind::kStoreGet), "store_get");
  EXPECT_EQ(to_string(OpKind::kStorePut), "store_put");
  EXPECT_EQ(to_string(OpKind::kStoreExists), "store_exists");
  EXPECT_EQ(to_string(OpKind::kStoreRemove), "store_remove");
  EXPECT_EQ(to_string(static_cast<OpKind>(kOpKindCount)), "unknown");
}

TEST(OpKinds, AreAllNamedDifferently) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kOpKindCount; ++i) names.insert(to_string(static_cast<OpKind>(i)));
  EXPECT_EQ(names.size(), kOpKindCount);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace tiercel
