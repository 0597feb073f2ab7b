// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace tiercel {
namespace {

// Collects lines. While closed, it keeps the background thread inside write().
class CollectingSink final : public LogSink {
 public:
  void write(LogLevel level, std::string_view line) override {
    EXPECT_FALSE(busy_.exchange(true)) << "one thread at a time";
    MutexLock lock(mutex_);
    lines_.emplace_back(line);
    levels_.push_back(level);
    changed_.notify_all();
    while (closed_) changed_.wait(mutex_);
    busy_ = false;
  }
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  void open() {
    MutexLock lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }
  void wait_for_lines(size_t count) {
    MutexLock lock(mutex_);
    while (lines_.size() < count) changed_.wait(mutex_);
  }
  std::vector<std::string> lines() {
    MutexLock lock(mutex_);
    return lines_;
  }
  std::vector<LogLevel> levels() {
    MutexLock lock(mutex_);
    return levels_;
  }

 private:
  std::atomic<bool> busy_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ TIERCEL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> lines_ TIERCEL_GUARDED_BY(mutex_);
  std::vector<LogLevel> levels_ TIERCEL_GUARDED_BY(mutex_);
};

std::vector<std::string> numbered(int from, int to) {
  std::vector<std::string> lines;
  for (int i = from; i < to; ++i) lines.push_back("line " + std::to_string(i));
  return lines;
}

TEST(Logger, DestructorWritesWhatIsLeft) {
  CollectingSink sink;
  const ManualClock clock;
  {
    const auto logger = make_logger(sink, clock, {.lines_per_second_max = 1000});
    for (const std::string& line : numbered(0, 500)) logger->log(LogLevel::kInfo, line);
    EXPECT_EQ(logger->dropped(), 0u);
  }
  EXPECT_EQ(sink.lines(), numbered(0, 500));
}

TEST(Logger, LinesArriveWithoutTheDestructor) {
  CollectingSink sink;
  const ManualClock clock;
  const auto logger = make_logger(sink, clock, {.lines_per_second_max = 100'000});
  // One by one, so that the thread falls asleep between them, now and then in the act of waking.
  for (int i = 0; i < 2000; ++i) {
    logger->log(LogLevel::kWarning, "line " + std::to_string(i));
    sink.wait_for_lines(static_cast<size_t>(i) + 1);
  }
  EXPECT_EQ(sink.lines(), numbered(0, 2000));
  EXPECT_EQ(sink.levels().front(), LogLevel::kWarning);
}

TEST(Logger, FullRingDropsCountsAndReportsInPlace) {
  CollectingSink sink;
  const ManualClock clock;
  sink.close();
  {
    const auto logger =
        make_logger(sink, clock, {.ring_lines = 8, .lines_per_second_max = 100'000});
    // The thread takes the first line out and stays with it in the sink; 8 more fill the ring.
    logger->log(LogLevel::kInfo, "line 0");
    sink.wait_for_lines(1);
    for (int i = 1; i < 20; ++i) logger->log(LogLevel::kInfo, "line " + std::to_string(i));
    EXPECT_EQ(logger->dropped(), 11u);
    sink.open();
    sink.wait_for_lines(9);
    logger->log(LogLevel::kInfo, "after");
    EXPECT_EQ(logger->dropped(), 11u);
  }
  std::vector<std::string> expected = numbered(0, 9);
  expected.push_back("… 11 lines dropped");
  expected.push_back("after");
  EXPECT_EQ(sink.lines(), expected);
}

TEST(Logger, DropsAfterTheLastLineAreReportedAtTheEnd) {
  CollectingSink sink;
  const ManualClock clock;
  {
    const auto logger = make_logger(sink, clock, {.lines_per_second_max = 2});
    for (int i = 0; i < 5; ++i) logger->log(LogLevel::kInfo, "line " + std::to_string(i));
  }
  std::vector<std::string> expected = numbered(0, 2);
  expected.push_back("… 3 lines dropped");
  EXPECT_EQ(sink.lines(), expected);
  EXPECT_EQ(sink.levels().back(), LogLevel::kWarning);
}

TEST(Logger, RateLimitFollowsTheInjectedClock) {
  CollectingSink sink;
  ManualClock clock;
  {
    const auto logger = make_logger(sink, clock, {.lines_per_second_max = 3});
    const auto burst = [&](int from, int to) {
      for (const std::string& line : numbered(from, to)) logger->log(LogLevel::kInfo, line);
    };
    burst(0, 5);
    EXPECT_EQ(logger->dropped(), 2u);
    clock.advance(std::chrono::milliseconds(999));
    burst(5, 6);
    EXPECT_EQ(logger->dropped(), 3u);
    clock.advance(std::chrono::milliseconds(1));
    burst(6, 10);
    EXPECT_EQ(logger->dropped(), 4u);
    clock.advance(std::chrono::hours(1));
    burst(10, 13);
    EXPECT_EQ(logger->dropped(), 4u);
  }
  EXPECT_EQ(sink.lines(), (std::vector<std::string>{
                              "line 0", "line 1", "line 2", "… 3 lines dropped", "line 6", "line 7",
                              "line 8", "… 1 lines dropped", "line 10", "line 11", "line 12"}));
}

TEST(Logger, LinesBelowTheMinimumLevelAreNeitherWrittenNorCounted) {
  CollectingSink sink;
  const ManualClock clock;
  {
    const auto logger =
        make_logger(sink, clock, {.minimum_level = LogLevel::kWarning, .lines_per_second_max = 2});
    for (int i = 0; i < 10; ++i) logger->log(LogLevel::kInfo, "quiet");
    logger->log(LogLevel::kWarning, "warning");
    logger->log(LogLevel::kError, "error");
    EXPECT_EQ(logger->dropped(), 0u);
  }
  EXPECT_EQ(sink.lines(), (std::vector<std::string>{"warning", "error"}));
}

TEST(Logger, LongLinesAreCutAndControlCharactersReplaced) {
  CollectingSink sink;
  const ManualClock clock;
  {
    const auto logger = make_logger(sink, clock);
    logger->log(LogLevel::kInfo, std::string(1000, 'x'));
    logger->log(LogLevel::kInfo, "a\nb\x1b[0m\x7f \xC3\xA9");
  }
  EXPECT_EQ(sink.lines(),
            (std::vector<std::string>{std::string(kLogLineBytesMax, 'x'), "a?b?[0m? \xC3\xA9"}));
}

TEST(Logger, LoggersOfManyThreadsShareOneSink) {
  CollectingSink sink;
  const SystemClock clock;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto logger =
          make_logger(sink, clock, {.ring_lines = 1024, .lines_per_second_max = 100'000});
      for (int j = 0; j < 500; ++j) logger->log(LogLevel::kInfo, "x");
      EXPECT_EQ(logger->dropped(), 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sink.lines().size(), 2000u);
}

TEST(NullLogger, TakesLinesAndDropsNone) {
  null_logger().log(LogLevel::kError, "nobody reads this");
  EXPECT_EQ(null_logger().dropped(), 0u);
}

}  // namespace
}  // namespace tiercel
