// SPDX-License-Identifier: Apache-2.0
//
// DiskTransfer: one read, write or sync, carried on until all of it is done or it has failed. The
// DiskIo reports every piece as the system gave it; here pieces become a whole.
//
// Threads: one.
#pragma once

#include <cstdint>

#include "tiercel/status.h"

#include "tier/disk/disk_io.h"

namespace tiercel {

class DiskTransfer {
 public:
  // Answers in a row that moved nothing (EINTR, EAGAIN, a piece of less than a page); more fail.
  static constexpr uint32_t kIdleAnswersMax = 64;

  DiskTransfer() = default;
  explicit DiskTransfer(const DiskIoRequest& request) : rest_(request) {}

  // What is to be handed over now: at first everything, then the rest.
  const DiskIoRequest& request() const { return rest_; }

  // The answer to request(). True: the transfer has ended, code() says how; false: the rest is to
  // be handed over.
  bool take(int64_t result);

  // ok; no_space; corrupt (a read met the end of the file); unavailable.
  Code code() const { return code_; }

 private:
  bool end(Code code);
  bool take_error(int error);
  bool take_nothing(Code code_at_last);

  DiskIoRequest rest_;
  uint32_t idle_answers_ = 0;
  Code code_ = Code::kOk;
};

}  // namespace tiercel
