// SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <array>
#include <future>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "base/mutex.h"

namespace tiercel {
namespace {

// Holds the thread of an executor in a task until it is opened.
class Gate {
 public:
  std::function<void()> task() {
    return [this] {
      entered_.set_value();
      opened_.get_future().wait();
    };
  }
  void wait_until_entered() { entered_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> opened_;
};

TEST(ThreadExecutor, OneThreadRunsTasksInOrderOfSubmission) {
  std::vector<int> order;
  std::promise<void> done;
  const auto executor = make_thread_executor({.threads = 1, .queue_tasks = 1000});
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(executor->submit([&order, i] { order.push_back(i); }));
  }
  ASSERT_TRUE(executor->submit([&] { done.set_value(); }));
  done.get_future().wait();
  std::vector<int> expected(500);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(ThreadExecutor, AllThreadsRunTasksAtTheSameTime) {
  constexpr uint32_t kThreads = 4;
  Mutex mutex;
  CondVar all_here;
  std::set<std::thread::id> threads;
  std::array<std::promise<void>, kThreads> ended;
  const auto executor = make_thread_executor({.threads = kThreads});
  for (std::promise<void>& end : ended) {
    ASSERT_TRUE(executor->submit([&] {
      // No task ends before all have begun, so each is on a thread of its own.
      {
        MutexLock lock(mutex);
        threads.insert(std::this_thread::get_id());
        all_here.notify_all();
        while (threads.size() < kThreads) all_here.wait(mutex);
      }
      end.set_value();
    }));
  }
  for (std::promise<void>& end : ended) end.get_future().wait();
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}

TEST(ThreadExecutor, FullQueueIsBusyAndDoesNotRunTheTask) {
  Gate gate;
  int ran = 0;
  bool refused_ran = false;
  std::promise<void> done;
  const auto executor = make_thread_executor({.threads = 1, .queue_tasks = 2});
  ASSERT_TRUE(executor->submit(gate.task()));
  gate.wait_until_entered();
  ASSERT_TRUE(executor->submit([&] { ++ran; }));
  ASSERT_TRUE(executor->submit([&] {
    ++ran;
    done.set_value();
  }));
  const Status refused = executor->submit([&] { refused_ran = true; });
  EXPECT_EQ(refused.code(), Code::kBusy);
  EXPECT_NE(refused.error().message().find("2 tasks wait"), std::string::npos);
  gate.open();
  done.get_future().wait();
  EXPECT_EQ(ran, 2);
  EXPECT_FALSE(refused_ran);
}

TEST(ThreadExecutor, DestructorLetsTheRunningTaskEndAndDropsTheWaitingOnes) {
  bool running_ended = false;
  bool waiting_ran = false;
  Status late;
  const auto owned = std::make_shared<int>(0);
  std::promise<void> entered;
  std::promise<void> go_on;
  auto executor = make_thread_executor({.threads = 1});
  Executor* const raw = executor.get();
  ASSERT_TRUE(executor->submit([&, raw] {
    entered.set_value();
    go_on.get_future().wait();
    // Until the destructor has begun, submitting succeeds or the queue is full.
    do {
      late = raw->submit([&waiting_ran] { waiting_ran = true; });
    } while (late.code() != Code::kUnavailable);
    running_ended = true;
  }));
  ASSERT_TRUE(executor->submit([&waiting_ran, owned] { waiting_ran = true; }));
  entered.get_future().wait();
  go_on.set_value();
  executor.reset();
  EXPECT_TRUE(running_ended);
  EXPECT_FALSE(waiting_ran);
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_EQ(owned.use_count(), 1) << "dropped tasks are destroyed";
}

TEST(ThreadExecutor, TaskIsDestroyedBeforeTheNextRuns) {
  std::promise<long> count;
  const auto owned = std::make_shared<int>(0);
  const auto executor = make_thread_executor({.threads = 1});
  ASSERT_TRUE(executor->submit([copy = owned] {}));
  ASSERT_TRUE(executor->submit([&] { count.set_value(owned.use_count()); }));
  EXPECT_EQ(count.get_future().get(), 1);
}

TEST(ThreadExecutor, ThreadsBearTheName) {
  std::array<char, 16> name{};
  std::promise<void> done;
  const auto executor = make_thread_executor({.name = "worker"});
  ASSERT_TRUE(executor->submit([&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    done.set_value();
  }));
  done.get_future().wait();
  EXPECT_STREQ(name.data(), "worker");
}

TEST(ThreadExecutor, ManySubmittersLoseNothing) {
  std::atomic<int> ran = 0;
  std::atomic<int> accepted = 0;
  std::promise<void> done;
  {
    const auto executor = make_thread_executor({.threads = 2, .queue_tasks = 8});
    std::vector<std::thread> submitters;
    for (int i = 0; i < 4; ++i) {
      submitters.emplace_back([&] {
        for (int j = 0; j < 500; ++j) {
          while (!executor->submit([&] {
            if (++ran == 2000) done.set_value();
          })) {
            std::this_thread::yield();
          }
          ++accepted;
        }
      });
    }
    for (std::thread& submitter : submitters) submitter.join();
    done.get_future().wait();
  }
  EXPECT_EQ(accepted, 2000);
  EXPECT_EQ(ran, 2000);
}

TEST(ManualExecutor, RunsOneTaskAtATimeInOrderWhenTold) {
  ManualExecutor executor;
  std::vector<int> order;
  EXPECT_FALSE(executor.run_one());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(executor.submit([&order, i] { order.push_back(i); }));
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(executor.waiting(), 3u);
  EXPECT_TRUE(executor.run_one());
  EXPECT_EQ(order, (std::vector<int>{0}));
  EXPECT_EQ(executor.waiting(), 2u);
  while (executor.run_one()) {
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(ManualExecutor, TaskMaySubmitAnother) {
  ManualExecutor executor;
  bool inner_ran = false;
  ASSERT_TRUE(executor.submit([&] { EXPECT_TRUE(executor.submit([&] { inner_ran = true; })); }));
  EXPECT_TRUE(executor.run_one());
  EXPECT_FALSE(inner_ran);
  EXPECT_TRUE(executor.run_one());
  EXPECT_TRUE(inner_ran);
}

TEST(ExecutorDeathTest, OptionsOutOfRangeAssert) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(make_thread_executor({.threads = 0}), "1 to 256 threads");
  EXPECT_DEATH(make_thread_executor({.threads = 257}), "1 to 256 threads");
  EXPECT_DEATH(make_thread_executor({.queue_tasks = 0}), "at least 1 task");
  EXPECT_DEATH(make_thread_executor({.name = "sixteen-letters-"}), "15 characters");
}

}  // namespace
}  // namespace tiercel
