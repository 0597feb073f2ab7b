// SPDX-License-Identifier: Apache-2.0
//
// PrefixCache: the device tier, for an engine that leaves its device blocks to us.
//
// Device places stand in the same index as host places, so the prefix stays closed over both, and a
// block that left the device may still be found in the host tier. Blocks are shared by reference
// count; a request writes only to blocks that it owns alone. Two requests that computed the same
// block at the same time keep one block each: the first to commit is found by others, the second's
// goes when its request ends (never aliased).
//
// It stands between the engine and Cache: admit instead of match, and load, commit, finish, abort
// and poll here, not there. Threads: control thread only; nothing blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tiercel/cache.h"

#include "index/block_index.h"
#include "index/eviction_policy.h"

namespace tiercel {

struct PrefixCacheStats {
  uint64_t device_hit_blocks = 0;  // positions found on the device at admission, ever
  uint64_t evicted_blocks = 0;     // ever
  uint64_t duplicate_blocks = 0;  // computed although another request had just published them, ever
  uint32_t free_blocks = 0, cached_blocks = 0, referenced_blocks = 0;  // of all groups; sum = total
};

class PrefixCache {
 public:
  // `cache` was made with config.device_blocks > 0 and must outlive this. kInvalid else, or if the
  // policy is not known.
  static Result<std::unique_ptr<PrefixCache>> create(const CacheConfig& config, Cache& cache);

  struct Admission {
    uint32_t device_blocks = 0;  // leading blocks that were on the device
    // Group-major: for each group `block_count` device blocks. Valid until the request ends.
    std::span<const DeviceBlockId> block_table;
  };

  // Gives the request device blocks for its first `block_count` blocks: those of `keys` that lead
  // on the device are shared, the rest is allocated, evicting tail-first what nobody uses. All or
  // nothing: kNoSpace if the pool cannot give that many now, kInvalid if it never could or the
  // request is admitted already.
  Result<Admission> admit(RequestId request, std::span<const BlockKey> keys, uint32_t block_count);

  // Loads what the host tier has behind the device's part; see Cache::load.
  Result<uint32_t> load(RequestId request, TimePoint deadline);

  // Whether the engine may compute into the request's blocks behind what was loaded. False after a
  // load that ran out of time, until the transfer has let go of the blocks (kDeviceReleased).
  bool may_compute(RequestId request) const;

  // As Cache::commit: full blocks before `token_count` can be shared now, and are saved by write
  // policy. kBusy unless may_compute().
  Status commit(RequestId request, uint64_t token_count);

  // The request has ended; its blocks stay as cache as far as they were committed. kNotFound if not
  // admitted.
  Status finish(RequestId request);
  Status abort(RequestId request);

  // As Cache::poll; takes back device blocks that transfers have let go.
  size_t poll(std::span<CacheEvent> events);

  // Forgets all blocks, on the device and below; linear in the device blocks. Running requests keep
  // theirs.
  void clear();

  PrefixCacheStats stats() const;
  // Holds in the index that protect blocks for requests; linear, for checks.
  uint64_t hold_count() const;
  // Every invariant; empty if all hold.
  std::string check() const;

 private:
  struct DeviceBlock {
    NodeId node = kNoNode;    // whose place it is; kNoNode: private to a request, or free
    uint32_t references = 0;  // requests that use it
  };
  struct Pool {  // of one group
    std::vector<DeviceBlock> blocks;
    std::vector<DeviceBlockId> free;
  };
  struct Admitted {
    std::vector<BlockKey> keys;
    std::vector<DeviceBlockId> table;  // group-major
    uint32_t block_count = 0;
    uint32_t device_blocks = 0;
    bool device_busy = false;  // a late load may still write behind what arrived
    uint32_t published = 0;    // positions that have been offered to the index
  };

  PrefixCache(const CacheConfig& config, Cache& cache, std::unique_ptr<EvictionPolicy> policy);

  uint32_t groups() const { return static_cast<uint32_t>(pools_.size()); }
  uint32_t leading_device_blocks(std::span<const BlockKey> keys);
  bool allocate(uint32_t group, DeviceBlockId* block);
  bool evict_one();
  void reference(uint32_t group, DeviceBlockId block);
  void unreference(uint32_t group, DeviceBlockId block);
  void forget(NodeId node, bool evicted);
  void publish(Admitted& admitted, uint32_t position);
  // What a clear() that had to wait has made unfindable, as far as no request uses it: until it is
  // gone there can be no other clear().
  void forget_stale();
  void give_back(const Admitted& admitted);
  Status end(RequestId request, bool aborted);

  const uint32_t block_tokens_;
  Cache& cache_;
  BlockIndex& index_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Pool> pools_;  // by group
  uint8_t epoch_ = 0;        // of the index, when its stale blocks were forgotten last
  std::unordered_map<RequestId, Admitted> admitted_;
  // Ended requests whose device blocks transfers still touch, by (request, generation).
  struct Leaving {
    RequestId request;
    uint32_t generation = 0;
    Admitted admitted;
  };
  std::vector<Leaving> leaving_;
  std::vector<NodeId> path_;         // scratch
  std::vector<uint32_t> positions_;  // scratch
  PrefixCacheStats stats_;
};

}  // namespace tiercel
