// SPDX-License-Identifier: Apache-2.0
//
// SegmentProcess: memory of this node in the Mooncake pool, and the process that gives it there.
//
// That process answers no request, so no deadline kills it: what a sidecar loses when it is killed
// is what was under way, what this one loses is all that lies in its memory. If it ends by itself
// it is started again, after a time that doubles, and gives the memory as empty space.
//
// Time: nothing happens but within the calls here, which are told what time it is.
// Threads: one. Ends with this object, and with this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/file_descriptor.h"
#include "store/mooncake/mooncake_options.h"
#include "store/mooncake/sidecar.h"

namespace tiercel {

class SegmentProcess {
 public:
  // Makes the memory, options.segment_bytes of it; starts nothing yet. kNoSpace if there is not so
  // much, kUnavailable if the system has no descriptor left.
  static Result<std::unique_ptr<SegmentProcess>> create(const MooncakeOptions& options);

  // Starts the process if there is none and the back-off is over, and takes what has happened. True
  // if place() has changed.
  bool poll(TimePoint now);
  // When poll() wants to be called though fd() does not ask for it.
  TimePoint next_due() const;
  // Readable when poll() has something to do.
  int fd() const { return process_->fd(); }

  // Where the memory is in the pool.
  const mooncake::SegmentPlace& place() const { return place_; }
  int memfd() const { return memfd_.get(); }
  uint64_t bytes() const { return bytes_; }
  // Why it is not in the pool; empty while it is.
  std::string problem() const;

  // For tests and reports.
  const Sidecar& process() const { return *process_; }

  // Takes the memory out of the pool and ends the process; after `allowed` of real time it is
  // killed. kTimeout if it has not ended then.
  Status close(const Clock& clock, Duration allowed);

 private:
  SegmentProcess(uint64_t bytes, FileDescriptor memfd, std::unique_ptr<Sidecar> process);

  const uint64_t bytes_;
  const FileDescriptor memfd_;
  const std::unique_ptr<Sidecar> process_;
  mooncake::SegmentPlace place_;
  std::vector<mooncake::Message> replies_;  // there are none
};

}  // namespace tiercel
