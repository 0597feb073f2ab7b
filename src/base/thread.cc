// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <initializer_list>
#include <system_error>

#include <pthread.h>
#include <signal.h>

namespace tiercel {

Result<std::thread> start_thread(std::string name, std::function<void()> body) {
  if (name.size() > kThreadNameBytesMax) name.resize(kThreadNameBytesMax);
  // A thread inherits the mask of its maker: blocking here leaves no moment in which the new thread
  // could take a signal.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // A fault of the thread itself kills the process even where it is blocked; open, it first reaches
  // the application's crash handler.
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> result = Error(Code::kInternal, "thread was not started");
  try {
    result = std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    result =
        Error(Code::kUnavailable, "thread '" + name + "' could not be started: " + error.what() +
                                      "; raise the limit of threads (ulimit -u, pids.max)");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

}  // namespace tiercel
