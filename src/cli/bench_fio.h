// SPDX-License-Identifier: Apache-2.0
//
// fio, as the plain limit of the disk: what the same requests cost without anything of ours.
//
// Threads: the caller's, which waits for the child process.
#pragma once

#include <cstdint>
#include <string>

#include "tiercel/status.h"

namespace tiercel {

enum class FioOrder : uint8_t { kWriteInOrder, kReadAtRandom };

struct FioJob {
  std::string file;
  FioOrder order = FioOrder::kWriteInOrder;
  uint64_t request_bytes = 0;
  uint64_t request_count = 0;  // each place of the file once
  uint32_t depth = 1;
  uint64_t seed = 1;
  bool register_memory = true;  // with the ring, which the memlock limit must allow
};

struct FioFigures {
  double bytes_per_s = 0;
  double cpu_s = 0;  // of its process, user and system
};

// With io_uring and direct I/O, as fast as it can: memory on huge pages, contents as they are, no
// latencies taken. kNotFound if there is no such program, kUnavailable with its own
// words if it fails.
Result<FioFigures> run_fio(const FioJob& job);

}  // namespace tiercel
