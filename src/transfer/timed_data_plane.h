// SPDX-License-Identifier: Apache-2.0
//
// TimedDataPlane: a data plane that moves nothing and says when it would have been done, in virtual
// time at stated speeds. For replay of whole engines. One rank stands for all of them: they do the
// same at the same time.
//
// Each way has a link of its own (timed_link.h), so reads do not wait for writes. An operation that
// could not begin by its deadline ends then as `timeout`, undone. The store is a set of keys that
// never forgets; it may stall, and stands behind a breaker, as every store does behind `guard+`: at
// the first deadline that passes it is given up, and a probe from time to time finds out when it is
// back. What hangs in a stalled store has not let go before it ends, which may be never.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tiercel/transfer.h"

#include "transfer/timed_link.h"

namespace tiercel {

struct TimedDataPlaneOptions {
  std::vector<uint64_t> block_bytes;  // by group, of one rank
  // Host tier ↔ device; host tier ↔ disk; host tier ↔ store.
  LinkSpeed load, save, disk_get, disk_put, store_get, store_put;
  LinkSpeed store_question;  // an operation counts as 64 bytes
  bool with_store = false;   // without: store operations are `unavailable`
  LinkStall store_stall;
  uint32_t ops_in_flight_max = 65536;
};

class TimedDataPlane : public DataPlane {
 public:
  // `clock` must outlive it.
  static std::unique_ptr<TimedDataPlane> create(const TimedDataPlaneOptions& options,
                                                const Clock& clock);

  // When poll() will have something that it has not now; kNoDeadline if never.
  virtual TimePoint next_due() const = 0;
  // The link of load, disk_get, store_get or store_exists as it stands, to be copied.
  virtual const TimedLink& link(OpKind kind) const = 0;
  // Whether the store has it now.
  virtual bool store_has(const BlockKey& key, GroupId group) const = 0;
};

}  // namespace tiercel
