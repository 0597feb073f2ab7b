// SPDX-License-Identifier: Apache-2.0
//
// ExistenceTable: what the store answered lately, positive and negative, in bounded memory.
//
// Four-way buckets over a fixed array; the entry that expires first gives way. A lost or colliding
// entry costs a question or a miss, never a wrong byte: what a get brings is verified. Threads:
// control thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel {

enum class Existence : uint8_t { kUnknown, kAbsent, kPresent };

class ExistenceTable {
 public:
  explicit ExistenceTable(uint32_t entries);  // power of two, at least 4

  Existence find(const BlockKey& key, GroupId group, TimePoint now) const;
  void set(const BlockKey& key, GroupId group, Existence existence, TimePoint expires);

  // What the store answered to a question. An object known to be bad stays known: that it exists is
  // no news.
  void set_answer(const BlockKey& key, GroupId group, Existence existence, TimePoint now,
                  TimePoint expires);

  // The object under our key was found bad: absent until the next save, which replaces it, but only
  // `replacements_max` times per key while the entry lives.
  void set_bad(const BlockKey& key, GroupId group, TimePoint expires);
  // Whether the next put of this key has to replace; counts the replacement.
  bool take_replacement(const BlockKey& key, GroupId group, TimePoint now);

  void clear();
  uint64_t memory_bytes() const { return entries_.size() * sizeof(Entry); }

  static constexpr uint8_t kReplacementsMax = 3;

 private:
  struct Entry {
    uint64_t tag = 0;
    int64_t expires_ns = INT64_MIN;
    Existence existence = Existence::kUnknown;
    bool bad = false;
    uint8_t replacements = 0;
  };
  static constexpr size_t kWays = 4;

  static uint64_t tag_of(const BlockKey& key, GroupId group);
  const Entry* lookup(uint64_t tag) const;
  Entry& take(uint64_t tag, TimePoint expires);

  std::vector<Entry> entries_;
};

}  // namespace tiercel
