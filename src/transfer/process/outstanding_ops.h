// SPDX-License-Identifier: Apache-2.0
//
// OutstandingOps: what one rank has been given and has not completed, so that every completion that
// it sends can be checked, and the rest can be ended when the rank is lost.
//
// A hash table of fixed size that allocates nothing after the start: it is asked once per
// operation. Threads: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiercel/transfer.h"

#include "base/assert.h"

namespace tiercel {

class OutstandingOps {
 public:
  struct Op {
    JobId job;
    uint64_t order = 0;  // in which they were given
    TimePoint since;
    uint32_t item = 0;
    OpKind kind = OpKind::kLoad;
    bool used = false;
  };

  // `capacity` is a power of two.
  explicit OutstandingOps(uint32_t capacity) : places_(size_t{capacity} * 2), capacity_(capacity) {}

  size_t size() const { return size_; }

  // Equal ones may be given more than once. size() < capacity.
  void add(const BlockOp& op, TimePoint now) {
    TIERCEL_ASSERT(size_ < capacity_, "more operations than a ring holds");
    size_t place = home(op.job, op.item);
    while (places_[place].used) place = next(place);
    places_[place] = {op.job, ++last_order_, now, op.item, op.kind, true};
    ++size_;
  }

  // Takes one out; nothing if there is none.
  std::optional<OpKind> remove(JobId job, uint32_t item) {
    for (size_t place = home(job, item); places_[place].used; place = next(place)) {
      if (places_[place].job != job || places_[place].item != item) continue;
      const OpKind kind = places_[place].kind;
      close_gap(place);
      --size_;
      return kind;
    }
    return std::nullopt;
  }

  // When the oldest was given; kNoDeadline if there is none. Looks at every place.
  TimePoint oldest() const {
    TimePoint oldest = kNoDeadline;
    for (const Op& op : places_) {
      if (op.used) oldest = std::min(oldest, op.since);
    }
    return oldest;
  }

  // Takes all out, in the order in which they were given.
  std::vector<Op> take_all() {
    std::vector<Op> all;
    all.reserve(size_);
    for (Op& op : places_) {
      if (op.used) all.push_back(op);
      op = {};
    }
    size_ = 0;
    std::sort(all.begin(), all.end(), [](const Op& a, const Op& b) { return a.order < b.order; });
    return all;
  }

 private:
  size_t next(size_t place) const { return (place + 1) & (places_.size() - 1); }
  size_t home(JobId job, uint32_t item) const {
    uint64_t hash = job.value() * 0x9E3779B97F4A7C15u + item;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93u;
    return static_cast<size_t>(hash ^ hash >> 32) & (places_.size() - 1);
  }

  // Moves later ones of the same run into the gap, so that a search may stop at the first place
  // that is free.
  void close_gap(size_t gap) {
    const size_t mask = places_.size() - 1;
    for (size_t place = next(gap); places_[place].used; place = next(place)) {
      const size_t wanted = home(places_[place].job, places_[place].item);
      if (((place - wanted) & mask) < ((place - gap) & mask)) continue;
      places_[gap] = places_[place];
      gap = place;
    }
    places_[gap] = {};
  }

  std::vector<Op> places_;
  uint32_t capacity_;
  size_t size_ = 0;
  uint64_t last_order_ = 0;
};

}  // namespace tiercel
