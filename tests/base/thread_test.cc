// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <array>

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

namespace tiercel {
namespace {

TEST(StartThread, ThreadBearsItsNameCutToWhatTheSystemTakes) {
  std::array<char, 32> seen{};
  start_thread("a-name-of-more-than-15", [&] {
    pthread_getname_np(pthread_self(), seen.data(), seen.size());
  })->join();
  EXPECT_STREQ(seen.data(), "a-name-of-more-");
}

TEST(StartThread, ThreadBlocksAllSignalsButFaultsAndTheCallerKeepsItsMask) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigset_t inside;
  start_thread("masked", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); })->join();
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE, SIGALRM}) {
    EXPECT_EQ(sigismember(&inside, signal), 1) << signal;
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
  }
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    EXPECT_EQ(sigismember(&inside, signal), 0) << signal;
  }
}

}  // namespace
}  // namespace tiercel
