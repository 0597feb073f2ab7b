// SPDX-License-Identifier: Apache-2.0
#include "index/policy/ghost_table.h"

#include <cstring>

namespace tiercel {

namespace {

// The keys are uniform; the multiplication only brings the group in. Bytes 8 to 15, so that a key
// which was chosen to strain the index table does not strain this one as well.
uint64_t hash_of(const BlockKey& key, GroupId group) {
  uint64_t word = 0;
  std::memcpy(&word, key.bytes.data() + 8, sizeof(word));
  return word ^ (group.value() + uint64_t{1}) * 0x9e3779b97f4a7c15;
}

uint32_t fingerprint_of(uint64_t hash) { return static_cast<uint32_t>(hash); }

}  // namespace

// Two thirds full when all ghosts are there: a bucket loses a ghost before its time only now and
// then.
GhostTable::GhostTable(uint32_t capacity)
    : capacity_(capacity), buckets_((uint64_t{capacity} * 3 / 2 + 7) / 8 + 1) {}

GhostTable::Bucket& GhostTable::bucket_of(uint64_t hash) {
  return buckets_[static_cast<size_t>(((hash >> 32) * buckets_.size()) >> 32)];
}

void GhostTable::add(const BlockKey& key, GroupId group) {
  const uint64_t hash = hash_of(key, group);
  Bucket& bucket = bucket_of(hash);
  Entry* oldest = &bucket.entries[0];
  for (Entry& entry : bucket.entries) {
    if (counts(entry) && entry.fingerprint == fingerprint_of(hash)) {
      oldest = &entry;
      break;
    }
    if (!counts(entry)) {
      oldest = &entry;
    } else if (counts(*oldest) && next_number_ - entry.number > next_number_ - oldest->number) {
      oldest = &entry;
    }
  }
  *oldest = Entry{fingerprint_of(hash), next_number_};
  if (++next_number_ == 0) next_number_ = 1;
}

bool GhostTable::take(const BlockKey& key, GroupId group) {
  const uint64_t hash = hash_of(key, group);
  for (Entry& entry : bucket_of(hash).entries) {
    if (!counts(entry) || entry.fingerprint != fingerprint_of(hash)) continue;
    entry.number = 0;
    return true;
  }
  return false;
}

uint32_t GhostTable::count() const {
  uint32_t count = 0;
  for (const Bucket& bucket : buckets_) {
    for (const Entry& entry : bucket.entries) count += counts(entry) ? 1 : 0;
  }
  return count;
}

}  // namespace tiercel
