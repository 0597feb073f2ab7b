// SPDX-License-Identifier: Apache-2.0
//
// ForkGuard: tells the process that made an object from one that was forked off and has only a copy
// of it.
//
// What owns threads or shares descriptors keeps one. In the child the threads do not exist, and
// waiting for them would never end; the descriptors are still those of the parent, and taking a
// signal from one would leave the parent asleep.
#pragma once

#include <string_view>

#include <sys/types.h>

#include "tiercel/status.h"

namespace tiercel {

// Threads: any. is_inherited() costs a look at memory: the kernel wipes the guard's page in a
// child. Where the kernel cannot (before Linux 4.14), the number of the process is asked for
// instead.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // This process was forked off after the guard was made.
  bool is_inherited() const;

  // kUnavailable if so, with both processes: "`what` was made by process 7 …".
  Status check(std::string_view what) const;

 private:
  const volatile char* page_ = nullptr;  // null: the kernel cannot wipe it
  const pid_t maker_;
};

}  // namespace tiercel
