// SPDX-License-Identifier: Apache-2.0
#include "base/file_size_signal.h"

#include <cerrno>
#include <ctime>

namespace tiercel {
namespace {

sigset_t only_file_size() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

FileSizeSignalBlock::FileSizeSignalBlock() : was_pending_(is_pending()) {
  const sigset_t set = only_file_size();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

FileSizeSignalBlock::~FileSizeSignalBlock() {
  const int error = errno;
  // What was there before is the application's.
  if (!was_pending_ && is_pending()) {
    const sigset_t set = only_file_size();
    const timespec now{};
    sigtimedwait(&set, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace tiercel
