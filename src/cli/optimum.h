// SPDX-License-Identifier: Apache-2.0
//
// OfflineOptimum: what a cache of a given capacity would have hit that knows every request to come.
// No policy of that capacity does better, so a replay's figures can be held against it.
//
// Belady's rule with prefix closure: the hit of a request is its leading resident run; then all its
// blocks are taken in; while there are too many, the block goes that no resident block continues
// and whose next use is farthest away, never used again first, the deeper one of two; it may be one
// that has just come. A block is an id together with all ids before it.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tiercel {

class OfflineOptimum {
 public:
  // The next request, by the ids of its blocks. At most 2^32 - 2 requests and as many blocks.
  void add(std::span<const uint64_t> ids);

  // Blocks that all requests added so far would have hit with room for `capacity` blocks.
  uint64_t hits(uint64_t capacity) const;

 private:
  using Node = uint32_t;
  struct Edge {
    Node parent;
    uint64_t id;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  struct EdgeHash {
    size_t operator()(const Edge& edge) const;
  };

  std::unordered_map<Edge, Node, EdgeHash> nodes_;
  std::vector<Node> visits_;         // of all requests, one behind the other
  std::vector<size_t> request_end_;  // of each request, in visits_
};

}  // namespace tiercel
