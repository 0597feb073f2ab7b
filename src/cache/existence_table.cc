// SPDX-License-Identifier: Apache-2.0
#include "cache/existence_table.h"

#include <algorithm>
#include <cstring>

namespace tiercel {

ExistenceTable::ExistenceTable(uint32_t entries) : entries_(entries) {}

uint64_t ExistenceTable::tag_of(const BlockKey& key, GroupId group) {
  // Other bytes of the digest than the index's hash takes, so that one cannot be used to probe the
  // other.
  uint64_t tag = 0;
  std::memcpy(&tag, key.bytes.data() + 16, sizeof(tag));
  return tag + group.value() * 0x9e3779b97f4a7c15u;
}

const ExistenceTable::Entry* ExistenceTable::lookup(uint64_t tag) const {
  const size_t first = (tag % (entries_.size() / kWays)) * kWays;
  for (size_t way = 0; way < kWays; ++way) {
    const Entry& entry = entries_[first + way];
    if (entry.tag == tag && entry.existence != Existence::kUnknown) return &entry;
  }
  return nullptr;
}

ExistenceTable::Entry& ExistenceTable::take(uint64_t tag, TimePoint expires) {
  Entry* entry = const_cast<Entry*>(lookup(tag));
  if (entry == nullptr) {
    const size_t first = (tag % (entries_.size() / kWays)) * kWays;
    entry = &*std::min_element(
        entries_.begin() + static_cast<ptrdiff_t>(first),
        entries_.begin() + static_cast<ptrdiff_t>(first + kWays),
        [](const Entry& a, const Entry& b) { return a.expires_ns < b.expires_ns; });
    *entry = Entry{};
    entry->tag = tag;
  }
  entry->expires_ns = expires.time_since_epoch().count();
  return *entry;
}

Existence ExistenceTable::find(const BlockKey& key, GroupId group, TimePoint now) const {
  const Entry* entry = lookup(tag_of(key, group));
  if (entry == nullptr || entry->expires_ns <= now.time_since_epoch().count()) {
    return Existence::kUnknown;
  }
  return entry->existence;
}

void ExistenceTable::set(const BlockKey& key, GroupId group, Existence existence,
                         TimePoint expires) {
  Entry& entry = take(tag_of(key, group), expires);
  entry.existence = existence;
  entry.bad = false;
}

void ExistenceTable::set_answer(const BlockKey& key, GroupId group, Existence existence,
                                TimePoint now, TimePoint expires) {
  const Entry* known = lookup(tag_of(key, group));
  if (known != nullptr && known->bad && known->expires_ns > now.time_since_epoch().count()) return;
  set(key, group, existence, expires);
}

void ExistenceTable::set_bad(const BlockKey& key, GroupId group, TimePoint expires) {
  Entry& entry = take(tag_of(key, group), expires);
  entry.existence = Existence::kAbsent;
  entry.bad = true;
}

bool ExistenceTable::take_replacement(const BlockKey& key, GroupId group, TimePoint now) {
  Entry* entry = const_cast<Entry*>(lookup(tag_of(key, group)));
  if (entry == nullptr || !entry->bad || entry->expires_ns <= now.time_since_epoch().count() ||
      entry->replacements >= kReplacementsMax) {
    return false;
  }
  ++entry->replacements;
  return true;
}

void ExistenceTable::clear() { std::fill(entries_.begin(), entries_.end(), Entry{}); }

}  // namespace tiercel
