// SPDX-License-Identifier: Apache-2.0
#include "store/memory/memory_pool.h"

#include <cstring>
#include <new>
#include <utility>

namespace tiercel {

std::shared_ptr<const MemoryPool::Bytes> MemoryPool::copy_of(const StorePutItem& item) {
  const size_t size = item.total_bytes();
  auto bytes = std::make_shared<Bytes>();
  bytes->data = std::make_unique_for_overwrite<std::byte[]>(size);
  bytes->size = size;
  size_t offset = 0;
  for (const auto& span : item.spans) {
    if (span.empty()) continue;
    std::memcpy(bytes->data.get() + offset, span.data(), span.size());
    offset += span.size();
  }
  return bytes;
}

MemoryPool::Objects::iterator MemoryPool::find(const ObjectKey& key) {
  const auto found = by_key_.find(key.text());
  return found == by_key_.end() ? objects_.end() : found->second;
}

void MemoryPool::use(Objects::iterator object) {
  objects_.splice(objects_.end(), objects_, object);
}

MemoryPool::Objects::iterator MemoryPool::drop(Objects::iterator object) {
  bytes_ -= object->bytes->size;
  by_key_.erase(object->key.text());
  return objects_.erase(object);
}

bool MemoryPool::contains(const ObjectKey& key) const {
  MutexLock lock(mutex_);
  return by_key_.find(key.text()) != by_key_.end();
}

Code MemoryPool::get(const StoreGetItem& item) {
  std::shared_ptr<const Bytes> bytes;
  {
    MutexLock lock(mutex_);
    const auto object = find(item.key);
    if (object == objects_.end()) return Code::kNotFound;
    if (object->bytes->size != item.total_bytes()) return Code::kInvalid;
    use(object);
    bytes = object->bytes;
  }
  size_t offset = 0;
  for (const auto& span : item.spans) {
    if (span.empty()) continue;
    std::memcpy(span.data(), bytes->data.get() + offset, span.size());
    offset += span.size();
  }
  return Code::kOk;
}

Code MemoryPool::put(const StorePutItem& item) {
  const uint64_t size = item.total_bytes();
  {
    MutexLock lock(mutex_);
    const auto object = find(item.key);
    if (object != objects_.end() && !item.replace) {
      use(object);
      return Code::kOk;
    }
  }
  if (capacity_bytes_ != 0 && size > capacity_bytes_) return Code::kNoSpace;
  try {
    Objects fresh;
    fresh.push_back({item.key, copy_of(item)});

    MutexLock lock(mutex_);
    // Looked up again: another handle may have put the key while the bytes were copied.
    const auto object = find(item.key);
    if (object == objects_.end()) {
      by_key_.emplace(fresh.front().key.text(), fresh.begin());  // may throw, so before any change
      objects_.splice(objects_.end(), fresh);
      bytes_ += size;
    } else {
      use(object);
      if (!item.replace) return Code::kOk;
      bytes_ = bytes_ - object->bytes->size + size;
      object->bytes = std::move(fresh.front().bytes);
    }
    // Ends before the new object, which is the last one and fits alone.
    while (capacity_bytes_ != 0 && bytes_ > capacity_bytes_) {
      drop(objects_.begin());
      ++evictions_;
    }
    return Code::kOk;
  } catch (const std::bad_alloc&) {
    return Code::kNoSpace;
  }
}

void MemoryPool::remove(const ObjectKey& key) {
  MutexLock lock(mutex_);
  const auto object = find(key);
  if (object != objects_.end()) drop(object);
}

void MemoryPool::clear(std::string_view prefix) {
  MutexLock lock(mutex_);
  for (auto object = objects_.begin(); object != objects_.end();) {
    object = object->key.text().starts_with(prefix) ? drop(object) : std::next(object);
  }
}

StoreStats MemoryPool::stats() const {
  StoreStats stats;
  stats.capacity_bytes = capacity_bytes_;
  MutexLock lock(mutex_);
  stats.objects = objects_.size();
  stats.bytes = bytes_;
  stats.evictions = evictions_;
  return stats;
}

}  // namespace tiercel
