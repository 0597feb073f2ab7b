// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

class Counter {
 public:
  void add() TIERCEL_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_until(int count) TIERCEL_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (count_ < count) changed_.wait(mutex_);
  }
  bool wait_for_change(Duration timeout) TIERCEL_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return changed_.wait_for(mutex_, timeout);
  }
  int count() TIERCEL_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ TIERCEL_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, LetsOneThreadInAtATime) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) counter.add();
    });
  }
  counter.wait_until(4000);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.count(), 4000);
}

TEST(CondVar, WaitThatTimesOutHoldsTheMutexAgain) {
  Counter counter;
  EXPECT_FALSE(counter.wait_for_change(std::chrono::nanoseconds(1)));
  counter.add();
  EXPECT_EQ(counter.count(), 1);
}

}  // namespace
}  // namespace tiercel
