// SPDX-License-Identifier: Apache-2.0
//
// MemoryPool: the objects behind all handles of one `memory:` store, with least-recently-used
// eviction.
//
// Objects are copied in and out, never lent, and immutable once stored: a reader keeps the object
// that it found alive while another thread evicts or replaces it. So bytes are copied outside the
// lock, an object is visible only when whole, and a reader gets one writer's whole value.
//
// Invariants: bytes <= capacity_bytes (if bounded) whenever the lock is free; bytes is the sum of
// the
//             lengths of the objects.
// Threads:    any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "tiercel/store.h"

#include "base/mutex.h"

namespace tiercel {

class MemoryPool {
 public:
  // 0 bytes: without bound.
  explicit MemoryPool(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  uint64_t capacity_bytes() const { return capacity_bytes_; }

  // Not a use for the eviction order: a question holds nothing.
  bool contains(const ObjectKey& key) const;

  // kOk, kNotFound, or kInvalid if the object has another length. A hit is a use.
  Code get(const StoreGetItem& item);

  // kOk, also for an object that stays because it is there already (which is a use of it); kNoSpace
  // if the object alone exceeds the capacity or memory is short: then nothing has changed.
  Code put(const StorePutItem& item);

  void remove(const ObjectKey& key);
  void clear(std::string_view prefix);

  // Objects, bytes, capacity and evictions; the rest is 0.
  StoreStats stats() const;

 private:
  struct Bytes {
    std::unique_ptr<std::byte[]> data;
    size_t size = 0;
  };
  struct Object {
    ObjectKey key;
    // Shared with readers that are copying it out while it is evicted.
    std::shared_ptr<const Bytes> bytes;
  };
  using Objects = std::list<Object>;  // least recently used first

  static std::shared_ptr<const Bytes> copy_of(const StorePutItem& item);
  Objects::iterator find(const ObjectKey& key) TIERCEL_REQUIRES(mutex_);
  void use(Objects::iterator object) TIERCEL_REQUIRES(mutex_);
  Objects::iterator drop(Objects::iterator object) TIERCEL_REQUIRES(mutex_);

  const uint64_t capacity_bytes_;
  mutable Mutex mutex_;
  Objects objects_ TIERCEL_GUARDED_BY(mutex_);
  // Views into the keys of objects_, whose nodes never move.
  std::unordered_map<std::string_view, Objects::iterator> by_key_ TIERCEL_GUARDED_BY(mutex_);
  uint64_t bytes_ TIERCEL_GUARDED_BY(mutex_) = 0;
  uint64_t evictions_ TIERCEL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tiercel
