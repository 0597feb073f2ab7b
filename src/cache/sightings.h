// SPDX-License-Identifier: Apache-2.0
//
// Sightings: how often a key was committed lately, in bounded memory, for write policies that wait
// for the n-th time. Direct-mapped: a colliding key starts the count anew, which only delays a
// save. Threads: control thread only.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tiercel/key.h"

namespace tiercel {

class Sightings {
 public:
  explicit Sightings(uint32_t entries) : entries_(entries) {}

  // Counts one more sighting; returns how many there are now (saturating).
  uint8_t count(const BlockKey& key) {
    uint64_t tag = 0;
    std::memcpy(&tag, key.bytes.data() + 8, sizeof(tag));
    Entry& entry = entries_[tag % entries_.size()];
    const auto fingerprint = static_cast<uint32_t>(tag >> 32);
    if (entry.fingerprint != fingerprint) entry = Entry{fingerprint, 0};
    if (entry.count != UINT8_MAX) ++entry.count;
    return entry.count;
  }

  uint64_t memory_bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  struct Entry {
    uint32_t fingerprint = 0;
    uint8_t count = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace tiercel
