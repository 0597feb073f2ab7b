// SPDX-License-Identifier: Apache-2.0
//
// StoredBlocks: a set of keys that stands for a store where no bytes are moved. It never forgets.
#pragma once

#include <cstddef>
#include <functional>
#include <unordered_set>

#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel {

class StoredBlocks {
 public:
  bool contains(const BlockKey& key, GroupId group) const { return blocks_.contains({key, group}); }
  void insert(const BlockKey& key, GroupId group) { blocks_.insert({key, group}); }
  void erase(const BlockKey& key, GroupId group) { blocks_.erase({key, group}); }
  size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    BlockKey key;
    GroupId group;
    friend bool operator==(const Block&, const Block&) = default;
  };
  struct Hash {
    size_t operator()(const Block& block) const noexcept {
      return std::hash<BlockKey>{}(block.key) + block.group.value();
    }
  };
  std::unordered_set<Block, Hash> blocks_;
};

}  // namespace tiercel
