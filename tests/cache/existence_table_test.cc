// SPDX-License-Identifier: Apache-2.0
#include "cache/existence_table.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

BlockKey random_key(Random& random) {
  BlockKey key;
  for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(random.below(256));
  return key;
}

TEST(ExistenceTable, AnswersLiveUntilTheyExpire) {
  Random random(1);
  ExistenceTable table(64);
  const BlockKey key = random_key(random);
  const TimePoint start{};
  EXPECT_EQ(table.find(key, GroupId(0), start), Existence::kUnknown);
  table.set(key, GroupId(0), Existence::kPresent, start + 5s);
  EXPECT_EQ(table.find(key, GroupId(0), start + 4s), Existence::kPresent);
  EXPECT_EQ(table.find(key, GroupId(1), start + 4s), Existence::kUnknown);
  EXPECT_EQ(table.find(key, GroupId(0), start + 5s), Existence::kUnknown);
  table.set(key, GroupId(0), Existence::kAbsent, start + 9s);
  EXPECT_EQ(table.find(key, GroupId(0), start + 6s), Existence::kAbsent);
  table.clear();
  EXPECT_EQ(table.find(key, GroupId(0), start + 6s), Existence::kUnknown);
}

TEST(ExistenceTable, NeverAnswersForAKeyThatWasNotSetAndNeverGrows) {
  Random random(2);
  ExistenceTable table(256);
  const uint64_t bytes = table.memory_bytes();
  for (int i = 0; i < 20000; ++i) {
    table.set(random_key(random), GroupId(0), Existence::kPresent, TimePoint{} + 1s);
    EXPECT_EQ(table.find(random_key(random), GroupId(0), TimePoint{}), Existence::kUnknown);
  }
  EXPECT_EQ(table.memory_bytes(), bytes);
}

TEST(ExistenceTable, TheEntryThatExpiresFirstGivesWay) {
  Random random(3);
  ExistenceTable table(4);  // one bucket
  const BlockKey longest = random_key(random);
  table.set(longest, GroupId(0), Existence::kPresent, TimePoint{} + 1h);
  for (int i = 0; i < 100; ++i) {
    table.set(random_key(random), GroupId(0), Existence::kPresent, TimePoint{} + 1s);
  }
  EXPECT_EQ(table.find(longest, GroupId(0), TimePoint{}), Existence::kPresent);
}

TEST(ExistenceTable, ABadObjectIsReplacedABoundedNumberOfTimes) {
  Random random(4);
  ExistenceTable table(16);
  const BlockKey key = random_key(random);
  const TimePoint start{};
  EXPECT_FALSE(table.take_replacement(key, GroupId(0), start));
  int replaced = 0;
  for (int round = 0; round < 10; ++round) {
    table.set_bad(key, GroupId(0), start + 1h);
    EXPECT_EQ(table.find(key, GroupId(0), start), Existence::kAbsent);
    if (table.take_replacement(key, GroupId(0), start)) ++replaced;
    table.set(key, GroupId(0), Existence::kPresent, start + 1h);
    EXPECT_FALSE(table.take_replacement(key, GroupId(0), start)) << "nothing is known to be bad";
  }
  EXPECT_EQ(replaced, ExistenceTable::kReplacementsMax);
}

TEST(ExistenceTable, ThatABadObjectExistsIsNoNews) {
  Random random(5);
  ExistenceTable table(16);
  const BlockKey key = random_key(random);
  const TimePoint start{};
  table.set_bad(key, GroupId(0), start + 5s);
  table.set_answer(key, GroupId(0), Existence::kPresent, start, start + 1h);
  EXPECT_EQ(table.find(key, GroupId(0), start), Existence::kAbsent);
  EXPECT_TRUE(table.take_replacement(key, GroupId(0), start));
  table.set_answer(key, GroupId(0), Existence::kPresent, start + 5s, start + 1h);
  EXPECT_EQ(table.find(key, GroupId(0), start + 5s), Existence::kPresent);
}

}  // namespace
}  // namespace tiercel
