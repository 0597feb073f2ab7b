// SPDX-License-Identifier: Apache-2.0
//
// SegmentSource: memory of this node that lies in the Mooncake pool, seen from a store on the node:
// it is the store's own (SegmentProcess), or another process's that hands it out (SegmentPeer).
//
// Time: nothing happens but within the calls here, which are told what time it is.
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "store/mooncake/sidecar.h"
#include "store/mooncake/wire.h"

namespace tiercel {

class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // Does what is due, and takes what has happened. True if place() has changed.
  virtual bool poll(TimePoint now) = 0;
  // When poll() wants to be called though none of fds() asks for it.
  virtual TimePoint next_due() const = 0;
  // Readable when poll() has something to do; the same for as long as this lives.
  virtual std::vector<int> fds() const = 0;

  // Where the memory is in the pool; while it is there, the first bytes() of memfd() are it.
  virtual const mooncake::SegmentPlace& place() const = 0;
  virtual int memfd() const = 0;
  virtual uint64_t bytes() const = 0;
  // Of this, what is given to the pool by us.
  virtual uint64_t given_bytes() const = 0;
  // Why it is not in the pool, or cannot be had; empty while it can.
  virtual std::string problem() const = 0;

  // Lets go of it, in real time. kTimeout if that is not done after `allowed`.
  virtual Status close(const Clock& clock, Duration allowed) = 0;

  // For tests and reports: the process that gives it, null if that is not ours.
  virtual const Sidecar* process() const { return nullptr; }
};

}  // namespace tiercel
