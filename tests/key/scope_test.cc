// SPDX-License-Identifier: Apache-2.0

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

const Namespace kSpace = testing::digest_of<Namespace>("namespace");

TEST(Scope, EveryWayToCutAWordIntoThreeTextsMakesAnotherRoot) {
  const std::string word = "aaaaaaaa";
  std::set<RootKey> roots;
  size_t scopes = 0;
  for (size_t first = 0; first <= word.size(); ++first) {
    for (size_t second = first; second <= word.size(); ++second, ++scopes) {
      roots.insert(make_root(kSpace, {word.substr(0, first), word.substr(first, second - first),
                                      word.substr(second)}));
    }
  }
  EXPECT_EQ(roots.size(), scopes);
}

TEST(Scope, TextsMayHoldTheBytesOfALength) {
  const std::string length("\1\0\0\0", 4);
  EXPECT_NE(make_root(kSpace, {"a", length + "b", ""}), make_root(kSpace, {"a" + length, "b", ""}));
}

TEST(Scope, LongTextsAreHashedWhole) {
  std::string salt(100000, 's');
  const RootKey root = make_root(kSpace, {"", "", salt});
  salt.back() = 't';
  EXPECT_NE(make_root(kSpace, {"", "", salt}), root);
}

TEST(Scope, RootKeepsItsBytesAsParent) {
  const RootKey root = make_root(kSpace, {});
  EXPECT_EQ(root_as_parent(root).bytes, root.bytes);
}

}  // namespace
}  // namespace tiercel
