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

#include "engine/block_table.h"
#include "index/block_index.h"
#include "index/eviction_policy.h"

namespace tiercel {

struct PrefixCacheStats {
  uint64_t device_hit_blocks = 0;  // positions found on the device at admission, ever
  uint64_t evicted_blocks = 0;     // ever
  uint64_t duplicate_blocks = 0;  // computed although another request had just published them, ever
  uint32_t free_blocks = 0, cached_blocks = 0, referenced_blocks = 0;  // of all groups; sum = total
};

class EngineFactory;

// Keys are those of one request from its first block on, chained as Sequence makes them.
class PrefixCache {
 public:
  // `cache` was made with config.device_blocks > 0 and must outlive this. kInvalid else, or if the
  // policy is not known.
  static Result<std::unique_ptr<PrefixCache>> create(const CacheConfig& config, Cache& cache);

  // What is on the device of a request's blocks; no side effects, holds nothing.
  struct DeviceMatch {
    uint32_t blocks = 0;  // leading blocks that are on the device
    uint32_t unused = 0;  // of these, how many no request uses now (of the group with most)
  };
  DeviceMatch match(std::span<const BlockKey> keys);

  struct Admission {
    uint32_t device_blocks = 0;  // leading blocks that were on the device
    // Without gaps between the groups. Valid until the request is extended, parts from some, or
    // ends; see block_table().
    BlockTable block_table;
  };

  // Gives the request device blocks for its first `block_count` blocks: those of `keys` that lead
  // on the device are shared, the rest is allocated, evicting tail-first what nobody uses. All or
  // nothing: kNoSpace if the pool cannot give that many now, kInvalid if it never could or the
  // request is admitted already. Whoever wants to compute a block anew leaves its key out here and
  // names it in extend().
  Result<Admission> admit(RequestId request, std::span<const BlockKey> keys, uint32_t block_count);

  // More blocks for a request that grows, `block_count` with those that it has, and the keys of all
  // its blocks so far; fewer than before in either change nothing. No blocks are shared here. All
  // or nothing, as admit(): kNoSpace, kInvalid (also for more keys than blocks); kNotFound.
  Result<BlockTable> extend(RequestId request, std::span<const BlockKey> keys,
                            uint32_t block_count);

  // Of an admitted request, else empty. Valid as Admission's; extend() may move it even if it
  // fails.
  BlockTable block_table(RequestId request) const;

  // Loads what the tiers below have behind the device's part, of the keys named at admission; see
  // Cache::load.
  Result<uint32_t> load(RequestId request, TimePoint deadline);

  // Whether the engine may compute into the request's blocks behind what was loaded. False after a
  // load that ran out of time, until the transfer has let go of the blocks (kDeviceReleased) or
  // the request has parted from them (part_from_busy).
  bool may_compute(RequestId request) const;

  // The request parts from the blocks that a late load may still write to, and from those behind:
  // it keeps what is before the cut, and extend() gives others. They come back once the transfer
  // has let go. Returns how many positions were given up to the transfer.
  uint32_t part_from_busy(RequestId request);

  // As Cache::commit: full blocks before `token_count` can be shared now, and are saved by write
  // policy. kBusy unless may_compute().
  Status commit(RequestId request, uint64_t token_count);

  // Hand-over between instances. The block behind the committed ones, which is not full, is saved
  // by write policy under a key of its own (Sequence::partial_key); it is not shared on the device,
  // and nothing may be committed behind it. kInvalid unless exactly the blocks before it have keys.
  Status commit_partial(RequestId request, const BlockKey& partial_key);
  // After a load whose last key was that of a partial block: from here on the request's last block
  // is an ordinary one, to be filled and named by extend().
  void forget_partial(RequestId request);

  // The request has ended; its blocks stay as cache as far as they were committed. kNotFound if not
  // admitted.
  Status finish(RequestId request);
  Status abort(RequestId request);

  // As Cache::poll; takes back device blocks that transfers have let go.
  size_t poll(std::span<CacheEvent> events);

  // Forgets all blocks, on the device and below; linear in the device blocks. Running requests keep
  // theirs.
  void clear();

  // The device memory has lost what stood in it: nothing is found there any more. Linear in the
  // device blocks. Requests that are admitted keep their blocks, but must not commit any more.
  void device_lost();

  // Blocks per group that admit() and extend() could give now, as far as can be told without
  // looking at each: what a transfer below holds still counts.
  uint32_t available_blocks() const;
  // Blocks per group that ended requests will give back once transfers have let go of them.
  uint32_t leaving_blocks() const { return leaving_blocks_; }
  uint32_t pool_blocks() const { return static_cast<uint32_t>(pools_.front().blocks.size()); }

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
    uint32_t cached = 0;  // blocks with a node that no request uses
  };
  struct Admitted {
    std::vector<BlockKey> keys;
    std::vector<DeviceBlockId> table;  // group-major, `stride` each
    uint32_t stride = 0;
    uint32_t block_count = 0;
    uint32_t device_blocks = 0;
    uint32_t loadable_blocks = 0;  // keys named at admission
    // Positions of the last load, and the cut that arrived; window groups got only their window.
    uint32_t load_first = 0, load_end = 0, load_cut = 0;
    bool device_busy = false;  // a late load may still write behind what arrived
    uint32_t published = 0;    // positions that have been offered to the index
    // Given up to a late load: they come back with kDeviceReleased, or with the others.
    std::vector<std::pair<uint32_t, DeviceBlockId>> parked;  // group, block

    DeviceBlockId& at(uint32_t group, uint32_t position) {
      return table[size_t{group} * stride + position];
    }
    DeviceBlockId at(uint32_t group, uint32_t position) const {
      return table[size_t{group} * stride + position];
    }
  };
  // Ended requests whose device blocks transfers still touch.
  struct Leaving {
    RequestId request;
    uint32_t generation = 0;
    Admitted admitted;
  };

  friend class EngineFactory;
  PrefixCache(const CacheConfig& config, Cache& cache, std::unique_ptr<EvictionPolicy> policy);

  uint32_t groups() const { return static_cast<uint32_t>(pools_.size()); }
  uint32_t leading_device_blocks(std::span<const BlockKey> keys);
  BlockTable table_of(const Admitted& admitted) const;
  Status no_space(RequestId request, uint32_t block_count) const;
  // Device blocks for the positions [first, block_count) of every group; false, and none, if the
  // pool cannot give them.
  bool allocate_range(Admitted& admitted, uint32_t first, uint32_t block_count);
  bool allocate(uint32_t group, DeviceBlockId* block);
  void grow_table(Admitted& admitted, uint32_t block_count);
  bool evict_one();
  NodeId any_unused();
  void reference(uint32_t group, DeviceBlockId block);
  void unreference(uint32_t group, DeviceBlockId block);
  void forget(NodeId node, bool evicted);
  // Whether the position has KV in this group: a load brings window groups only their window.
  bool has_kv(const Admitted& admitted, uint32_t group, uint32_t position) const;
  void publish(Admitted& admitted, uint32_t first, uint32_t end);
  // What a clear() that had to wait has made unfindable, as far as no request uses it: until it is
  // gone there can be no other clear().
  void forget_stale();
  void release_parked(Admitted& admitted);
  void give_back(Admitted& admitted);
  Status end(RequestId request, bool aborted);
  void on_event(const CacheEvent& event);

  const uint32_t block_tokens_;
  Cache& cache_;
  BlockIndex& index_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<uint32_t> window_blocks_;  // by group; UINT32_MAX: full attention
  std::vector<Pool> pools_;              // by group
  uint8_t epoch_ = 0;                    // of the index, when its stale blocks were forgotten last
  std::unordered_map<RequestId, Admitted> admitted_;
  std::vector<Leaving> leaving_;
  uint32_t leaving_blocks_ = 0;
  std::vector<NodeId> path_;            // scratch
  std::vector<uint32_t> positions_;     // scratch
  std::vector<DeviceBlockId> offered_;  // scratch
  // See EngineProtections.
  bool keeps_leaving_ = true;
  bool forgets_lost_ = true;
  PrefixCacheStats stats_;
};

}  // namespace tiercel
