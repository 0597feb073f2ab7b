// SPDX-License-Identifier: Apache-2.0
#include "base/log_ring.h"

#include <deque>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

TEST(LogRing, KeepsOrderLevelTextAndDropCount) {
  LogRing ring(4);
  ASSERT_TRUE(ring.push(LogLevel::kError, 3, "first"));
  ASSERT_TRUE(ring.push(LogLevel::kDebug, 0, ""));
  LogLine line;
  ASSERT_TRUE(ring.pop(line));
  EXPECT_EQ(line.view(), "first");
  EXPECT_EQ(line.level, LogLevel::kError);
  EXPECT_EQ(line.dropped_before, 3u);
  ASSERT_TRUE(ring.pop(line));
  EXPECT_EQ(line.view(), "");
  EXPECT_EQ(line.level, LogLevel::kDebug);
  EXPECT_FALSE(ring.pop(line));
}

TEST(LogRing, RefusesExactlyAboveItsSize) {
  for (uint32_t size : {1u, 2u, 8u}) {
    LogRing ring(size);
    for (uint32_t i = 0; i < size; ++i) EXPECT_TRUE(ring.push(LogLevel::kInfo, 0, "x"));
    EXPECT_FALSE(ring.push(LogLevel::kInfo, 0, "too much"));
    LogLine line;
    ASSERT_TRUE(ring.pop(line));
    EXPECT_TRUE(ring.push(LogLevel::kInfo, 0, "y"));
    EXPECT_FALSE(ring.push(LogLevel::kInfo, 0, "too much"));
  }
}

TEST(LogRing, CutsLongText) {
  LogRing ring(2);
  const std::string exact(kLogLineBytesMax, 'a');
  ASSERT_TRUE(ring.push(LogLevel::kInfo, 0, exact));
  ASSERT_TRUE(ring.push(LogLevel::kInfo, 0, exact + "b"));
  LogLine line;
  ASSERT_TRUE(ring.pop(line));
  EXPECT_EQ(line.view(), exact);
  ASSERT_TRUE(ring.pop(line));
  EXPECT_EQ(line.view(), exact);
}

TEST(LogRing, BehavesAsABoundedQueueOverRandomOperations) {
  Random random(1);
  LogRing ring(16);
  std::deque<std::string> model;
  for (uint64_t i = 0; i < 50'000; ++i) {
    if (random.chance(0.5)) {
      const std::string text = std::to_string(i);
      ASSERT_EQ(ring.push(LogLevel::kInfo, 0, text), model.size() < 16);
      if (model.size() < 16) model.push_back(text);
    } else {
      LogLine line;
      ASSERT_EQ(ring.pop(line), !model.empty());
      if (model.empty()) continue;
      ASSERT_EQ(line.view(), model.front());
      model.pop_front();
    }
  }
}

TEST(LogRing, TwoThreadsLoseAndMixNothing) {
  constexpr int kLines = 20'000;
  LogRing ring(64);
  std::thread writer([&] {
    for (int i = 0; i < kLines; ++i) {
      while (!ring.push(LogLevel::kInfo, static_cast<uint32_t>(i), std::to_string(i))) {
        std::this_thread::yield();
      }
    }
  });
  LogLine line;
  for (int i = 0; i < kLines; ++i) {
    while (!ring.pop(line)) std::this_thread::yield();
    EXPECT_EQ(line.view(), std::to_string(i));
    EXPECT_EQ(line.dropped_before, static_cast<uint32_t>(i));
  }
  writer.join();
  EXPECT_FALSE(ring.pop(line));
}

TEST(LogRingDeathTest, SizeThatIsNoPowerOfTwoAsserts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(LogRing(3), "power of two");
  EXPECT_DEATH(LogRing(0), "power of two");
}

}  // namespace
}  // namespace tiercel
