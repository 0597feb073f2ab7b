// SPDX-License-Identifier: Apache-2.0
//
// SegmentProcess: memory of this node in the Mooncake pool, and the process that gives it there.
//
// That process answers no request, so no deadline kills it: what a sidecar loses when it is killed
// is what was under way, what this one loses is all that lies in its memory. If it ends by itself
// it is started again, after a time that doubles, and gives the memory as empty space.
//
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
#include "store/mooncake/segment_share.h"
#include "store/mooncake/segment_source.h"
#include "store/mooncake/sidecar.h"

namespace tiercel {

class SegmentProcess final : public SegmentSource {
 public:
  // Makes the memory, options.segment_bytes of it, and offers it at options.segment_socket; starts
  // nothing yet. kNoSpace if there is not so much, kUnavailable if the system has no descriptor
  // left or another process offers its own there.
  static Result<std::unique_ptr<SegmentProcess>> create(const MooncakeOptions& options);

  // Starts the process if there is none and the back-off is over.
  bool poll(TimePoint now) override;
  TimePoint next_due() const override;
  std::vector<int> fds() const override;
  const mooncake::SegmentPlace& place() const override { return place_; }
  int memfd() const override { return memfd_.get(); }
  uint64_t bytes() const override { return bytes_; }
  uint64_t given_bytes() const override { return bytes_; }
  std::string problem() const override;
  const Sidecar* process() const override { return process_.get(); }
  // Takes the memory out of the pool and ends the process; near the end of `allowed` it is killed.
  Status close(const Clock& clock, Duration allowed) override;

 private:
  SegmentProcess(uint64_t bytes, FileDescriptor memfd, std::unique_ptr<Sidecar> process,
                 std::unique_ptr<SegmentShare> share);

  const uint64_t bytes_;
  const FileDescriptor memfd_;
  const std::unique_ptr<Sidecar> process_;
  std::unique_ptr<SegmentShare> share_;  // null: it is offered to nobody
  mooncake::SegmentPlace place_;
  std::vector<mooncake::Message> replies_;  // there are none
};

}  // namespace tiercel
