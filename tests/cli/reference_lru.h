// SPDX-License-Identifier: Apache-2.0
//
// A least-recently-used cache of blocks, so simple that it can be seen to be right. It knows
// nothing of Tiercel: ids in, hits out.
//
//   A block is named by the whole list of ids up to it.
//   A request hits its leading blocks that are there.
//   Then all its blocks are there, and all have been used now.
//   While there are too many, the block goes whose last use is longest ago; of several of one
//   request, the deepest.
//
// A block is never used later than the one before it, so a block goes only after everything behind
// it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

namespace tiercel::testing {

class ReferenceLru {
 public:
  explicit ReferenceLru(size_t capacity) : capacity_(capacity) {}

  // Leading blocks of `ids` that were there.
  uint64_t visit(std::span<const uint64_t> ids) {
    ++now_;
    uint64_t hits = 0;
    bool leading = true;
    Name name = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      name = name_of(name, ids[i]);
      const auto found = used_.find(name);
      leading = leading && found != used_.end();
      if (leading) ++hits;
      if (found != used_.end()) order_.erase(found->second);
      const Use use{now_, -static_cast<int64_t>(i), name};
      used_[name] = use;
      order_.insert(use);
    }
    while (order_.size() > capacity_) {
      used_.erase(std::get<Name>(*order_.begin()));
      order_.erase(order_.begin());
    }
    return hits;
  }

 private:
  using Name = uint64_t;
  using Use = std::tuple<int64_t, int64_t, Name>;  // when, minus how deep, which

  // A number for each list of ids: that of the list without the last one, and the last one.
  Name name_of(Name before, uint64_t id) {
    return names_.try_emplace({before, id}, names_.size() + 1).first->second;
  }

  const size_t capacity_;
  int64_t now_ = 0;
  std::map<std::pair<Name, uint64_t>, Name> names_;
  std::map<Name, Use> used_;
  std::set<Use> order_;
};

}  // namespace tiercel::testing
