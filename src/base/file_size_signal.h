// SPDX-License-Identifier: Apache-2.0
//
// FileSizeSignalBlock: makes the limit of file size (RLIMIT_FSIZE, ulimit -f) an error like others.
// Whoever writes or grows a file beyond it gets EFBIG, but also SIGXFSZ, which ends a process that
// does not expect it; a library has no business with the handlers of its process.
//
//   const FileSizeSignalBlock block;
//   if (::ftruncate(fd, bytes) != 0) … errno is EFBIG
//
// Threads: blocks the signal in the thread that makes it, which must also destroy it.
#pragma once

#include <signal.h>

namespace tiercel {

class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock();
  // Takes away what came meanwhile, keeps errno, and leaves the thread's mask as it was.
  ~FileSizeSignalBlock();
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;
};

}  // namespace tiercel
