// SPDX-License-Identifier: Apache-2.0
//
// The Store contract: a service that Tiercel asks for objects by key and that other engines share.
//
// What a store has must be asked for, may vanish between two questions, and may never be answered.
// So every call is a submission with a deadline that returns at once, and every submission
// completes exactly once, with one status per item, in the order of the items.
//
// Threads:   one thread calls a Store (whichever; it need not be the one that made it).
// Ownership: spans handed in must stay valid and, for get, untouched until the request has
// completed,
//            even past its deadline. close() is the only way to be sure earlier.
// Errors:    statuses are ok, not_found, corrupt, no_space, busy, timeout, unavailable, invalid.
// A new backend: docs/stores.md. Wrappers (faults, deadlines, metrics) are Stores themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/health.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

namespace tiercel {

// An object and the memory that it is read into or written from. `spans` together have exactly the
// object's length, at least one byte (an object always carries its frame); unused spans are empty.
inline constexpr size_t kStoreSpanCountMax = 4;

struct StoreGetItem {
  ObjectKey key;
  std::array<std::span<std::byte>, kStoreSpanCountMax> spans;
  size_t total_bytes() const;
};

struct StorePutItem {
  ObjectKey key;
  std::array<std::span<const std::byte>, kStoreSpanCountMax> spans;
  // Replace an object that is already there (it was found bad); otherwise an existing object stays
  // and the put is ok.
  bool replace = false;
  size_t total_bytes() const;
};

// Names one submission; chosen by the store, never 0, never used twice by one Store.
using StoreRequestId = Id<struct StoreRequestIdTag, uint64_t>;

// The end of one submission. `codes` has one entry per item, in order:
//   exists: ok = is there, not_found = is not, else unknown
//   get:    ok = all bytes are in place; not_found; invalid = the object has another length; …
//   put:    ok = the whole object is visible (or was before); otherwise nothing of it is
//   remove: ok = is gone now, also if it never was there
//   clear:  one entry
// A malformed item (a default-made key, no bytes, a span of nothing) ends as invalid and leaves the
// others of its batch alone. An item whose deadline had passed at submission ends as timeout,
// undone.
struct StoreCompletion {
  StoreRequestId id;
  std::vector<Code> codes;
};

// What is held is that of the service (all handles); what was asked is that of this handle.
struct StoreStats {
  uint64_t objects = 0;         // now held, as far as the store knows
  uint64_t bytes = 0;           // payload now held
  uint64_t capacity_bytes = 0;  // 0: not known
  uint64_t gets = 0, get_hits = 0, puts = 0, removes = 0, exists = 0;  // items, ever
  uint64_t evictions = 0;                                              // objects, ever
  uint64_t failures = 0;     // items that ended in neither ok nor not_found, ever
  uint64_t local_hits = 0;   // of get_hits: read from memory of this node, not over the network
  uint64_t given_bytes = 0;  // memory of this node that this handle gives to the service
  // Of a service that is not in this process: messages to it, and the time that it took for those
  // that it has answered, ever.
  uint64_t messages = 0;
  Duration service_time{0};
};

class Store {
 public:
  virtual ~Store() = default;

  // Submissions. The returned id completes exactly once through poll(). kBusy: too much is in
  // flight or not yet polled, nothing was started. kUnavailable: closed. kInvalid: what no item's
  // code could say (an empty prefix). An empty batch completes with no codes. Never blocks.
  virtual Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                               TimePoint deadline) = 0;
  virtual Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                            TimePoint deadline) = 0;
  virtual Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                            TimePoint deadline) = 0;
  virtual Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                               TimePoint deadline) = 0;
  // Removes every object whose key starts with `prefix` (object_key_prefix(namespace); not empty).
  virtual Result<StoreRequestId> submit_clear(std::string_view prefix, TimePoint deadline) = 0;

  // Appends what has completed since the last call to *completions; returns how many. Never blocks.
  virtual size_t poll(std::vector<StoreCompletion>* completions) = 0;

  // Becomes readable when poll() has something to return; owned by the store; -1 if completions are
  // always ready by the time submit returns.
  virtual int completion_fd() const = 0;

  // Announces memory that get and put will use, once, before use. Backends that need no
  // registration accept everything. The memory must outlive the store or close().
  virtual Status register_memory(std::span<std::byte> memory) = 0;

  // The same for memory that is the first bytes of a memfd, mapped so that changes are shared. The
  // descriptor is only borrowed for the call.
  virtual Status register_shared_memory(std::span<std::byte> memory, int memfd) {
    static_cast<void>(memfd);
    return register_memory(memory);
  }
  // True: bytes are moved by another process, which can use such memory where it lies; what lies
  // elsewhere is copied.
  virtual bool wants_shared_memory() const { return false; }

  virtual StoreStats stats() const = 0;

  virtual StoreHealth health() const { return {}; }

  // For people: "ok", or what is wrong and why, such as "open for 2.1 s: 5 timeouts in a row".
  virtual std::string state() const { return "ok"; }

  // Ends everything in flight (completions may still be polled) and lets go of all memory. Later
  // submissions are kUnavailable. kTimeout if the backend still held on at `deadline`.
  virtual Status close(TimePoint deadline) = 0;
};

}  // namespace tiercel
