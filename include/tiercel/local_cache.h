// SPDX-License-Identifier: Apache-2.0
//
// LocalCache: a Cache with everything under it on this machine: host arenas, one rank worker per
// rank, as a thread of this process or as a process of its own, and a store by URL. The shortest
// way from a program that has KV blocks to a working tier.
//
// Threads: control thread only, as Cache. wait() blocks; everything else does not.
// Fork: the threads stay in the parent, and so does the use of the object. In the child, calls are
// kUnavailable as in Cache, and close() too, at once; destruction is safe. It may open its own one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/cache.h"
#include "tiercel/clock.h"
#include "tiercel/device_layout.h"
#include "tiercel/disk.h"
#include "tiercel/status.h"
#include "tiercel/transfer.h"

namespace tiercel {

class Logger;
class StoreRegistry;

// Where rank workers run.
enum class RankHost : uint8_t {
  kThread,   // one thread a rank in this process
  kProcess,  // tiercel-rank, one process a rank, started, watched and started again (docs/ranks.md)
};
// "thread", "process"
std::string_view to_string(RankHost host);

struct LocalCacheConfig {
  CacheConfig cache;
  RankHost rank_host = RankHost::kThread;
  // device_memory[rank][group]: the engine's blocks, block i at i × payload_bytes[group][rank]. The
  // engine owns it; it must outlive the LocalCache.
  std::vector<std::vector<std::span<std::byte>>> device_memory;
  // device_layouts[rank], in place of device_memory: where the blocks stand in the engine's tensors
  // (tiercel/engine_layouts.h). For kThread. Borrowed, as the memory.
  std::vector<DeviceLayout> device_layouts;
  // For kProcess: device_fds[rank] is a memfd, sealed against shrinking, which device_memory[rank]
  // maps: the groups from its first byte on, one directly behind the other. Borrowed, as the
  // memory.
  std::vector<int> device_fds;
  // For kProcess: path of tiercel-rank; empty: in the folder of the running program.
  std::string rank_program;
  // For kProcess: a rank that dies is started again after `rank_backoff`, doubled each time up to a
  // hundred times that, and given up after so many times in a row within a minute; sooner where its
  // program cannot be run, or ends before it is up (docs/ranks.md).
  Duration rank_backoff = std::chrono::milliseconds(100);
  uint32_t rank_restarts_max = 8;
  // For kProcess: where ranks that are lost or do not start are told; null: nowhere. Must outlive
  // the object.
  Logger* logger = nullptr;
  // Such as "memory:" (docs/stores.md); empty: no store. Overrides cache.with_store. Opened behind
  // the wrapper guard+ (deadlines and breaker) even if the URL does not name it.
  std::string store_url;
  // A disk tier below the host tier, if disk.path is set.
  DiskConfig disk;
  bool verify = true;          // check every block's frame and checksum on arrival
  bool huge_pages = true;      // for the host arenas
  bool prefault = false;       // touch the host arenas now; with kProcess each rank its own
  bool metadata_only = false;  // move no bytes (policy studies); device_memory is not needed
  uint64_t writer_epoch = 0;   // marks what this start has written, for diagnosis
  // Clock of rank workers and stores; null: the cache's own. Another one only where the cache's
  // stands still (replay) and every deadline is far away. Must outlive the object.
  const Clock* data_clock = nullptr;
};

class LocalCache {
 public:
  // Refuses, before anything is allocated, what cannot work: kInvalid as CacheConfig::validate;
  // kNoSpace if the host tier of all ranks together is larger than the memory that is available or
  // that the cgroup allows (with both numbers); as DiskFolder::open for the disk tier (in use by
  // another, of another shape, no room). With kProcess it returns when every rank is up;
  // kUnavailable or kTimeout, with the reason, if one does not come up. `registry` joins stores of
  // several caches (see make_store_registry); null: one of its own; ranks in processes have their
  // own ones. `clock` must outlive the object.
  static Result<std::unique_ptr<LocalCache>> open(
      const LocalCacheConfig& config, const Clock& clock,
      std::shared_ptr<StoreRegistry> registry = nullptr);
  virtual ~LocalCache() = default;

  virtual Cache& cache() = 0;
  virtual DataPlane& data_plane() = 0;

  // What an operator should be told once about this start: of the disk tier's folder, what was
  // found in it, and how it is read and written. Empty if there is nothing to say.
  virtual const std::vector<std::string>& notes() const = 0;

  // Waits until the data plane may have completed something, or `timeout` has passed.
  virtual void wait(Duration timeout) = 0;

  // Closes cache and data plane; afterwards nothing touches device_memory. kTimeout if something
  // still held on.
  virtual Status close(Duration timeout) = 0;
};

// Every store of this build, to be shared by caches that should see each other's `memory:` pools.
std::shared_ptr<StoreRegistry> make_store_registry();

}  // namespace tiercel
