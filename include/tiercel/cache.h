// SPDX-License-Identifier: Apache-2.0
//
// Cache: the control plane. It answers "which leading blocks of this request are already computed
// anywhere", brings them to the device before prefill needs them, and writes finished blocks back.
//
// One state machine, many hands: Cache is single-threaded, deterministic and never blocks. No call
// takes a lock, waits, or touches payload bytes; everything slow is a job for the data plane, whose
// results poll() takes in. Time and the data plane are injected, so the same code runs in
// production, in replay and in simulation.
//
// The life of a request:  match → (prefetch → prefetch_done) → load → load_done → save + commit … →
// finish. The engine names a request by an id that is its own while the request lives. It calls
// poll() at each step.
//
// Nothing below these calls fails a request: a failure is a shorter hit, or a block that is not
// stored, with the reason in why().
//
// In a process that was forked off, prefetch, load, save and commit are kUnavailable and say so;
// the parent goes on. A child that wants a cache makes one of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/kv_spec.h"
#include "tiercel/load_or_recompute.h"
#include "tiercel/status.h"
#include "tiercel/tier.h"
#include "tiercel/transfer.h"
#include "tiercel/why.h"

namespace tiercel {

// When a block moves along an edge (device → host, host → disk, host → store).
enum class WritePolicy : uint8_t {
  kNone,                   // never
  kWriteThrough,           // as soon as it is there
  kWriteThroughSelective,  // at its n-th hit
  kWriteBack,              // when it would be evicted; for host → disk only
};
// "none", "write_through", "write_through_selective", "write_back"
std::string_view to_string(WritePolicy policy);

struct CacheConfig {
  KvSpec spec;
  // payload_bytes[group][rank]: length of a full block's slice.
  std::vector<std::vector<uint64_t>> payload_bytes;

  uint32_t host_blocks = 0;    // capacity of the host tier, per group; at least host_blocks_min()
  uint32_t host_extents = 64;  // extents that the host tier is cut into; 1 to 65536
  std::string eviction_policy = "lru";
  uint32_t device_blocks = 0;  // > 0: the engine leaves the device to us (engine/prefix_cache.h)
  bool with_store = false;     // the ranks have a store
  // The slices of a block are equal on every rank (as MLA's are) and the ranks share one host
  // memory: one rank writes each block and asks the store for it, all load it. The writer is chosen
  // block by block, and another one takes over while it does not answer. Needs equal payload_bytes.
  bool replicated_slices = false;

  WritePolicy device_to_host =
      WritePolicy::kWriteThrough;  // selective: at commit of the n-th request with it
  WritePolicy host_to_store = WritePolicy::kWriteThrough;
  WritePolicy host_to_disk = WritePolicy::kWriteThrough;  // where there is a disk tier
  uint32_t selective_hits = 2;                            // n of kWriteThroughSelective; 1 to 255

  uint32_t request_blocks_max = 65536;  // blocks of one request; longer ones are served up to there
  uint32_t requests_max = 16384;        // alive at once
  uint32_t jobs_in_flight_max = 4096;
  uint32_t job_blocks_max = 64;  // blocks of one job; 1 to 4096
  // Blocks that wait for the store or are on their way to it; never more than a quarter of
  // host_blocks.
  uint32_t put_queue_max = 4096;
  // As put_queue_max, for the disk.
  uint32_t disk_put_queue_max = 4096;
  // kWriteBack: host slots that are kept free by moving blocks to disk ahead of need; 0: a
  // sixteenth of host_blocks.
  uint32_t write_back_free_slots = 0;
  uint32_t prefetch_blocks_max = 1024;  // blocks in flight to the host tier for one request
  uint32_t exists_blocks_max = 512;     // blocks of one question to the store
  uint32_t existence_entries = 65536;   // remembered answers of the store; power of two
  uint32_t quarantine_slots_max = 0;    // 0: a quarter of host_blocks; above it no new fills start
  uint32_t completions_per_poll_max = 65536;
  uint32_t sweep_nodes_per_poll = 4096;  // nodes looked at per poll after clear()
  uint32_t why_requests = 1024;          // ended requests whose why-record is kept

  Duration existence_ttl = std::chrono::seconds(30);  // for "is there"
  Duration absence_ttl = std::chrono::seconds(5);     // for "is not there"
  Duration save_deadline = std::chrono::seconds(10);  // of one save or put, also to disk
  Duration hold_limit = std::chrono::seconds(60);     // holds of a request that does nothing
  uint64_t seed = 0;                                  // of the index's hash

  // Whether, and by what figures, prefetch() and load() leave to prefill what would come later than
  // the engine could compute it.
  LoadOrRecomputeConfig load_or_recompute;

  // kInvalid with the option's name, the value and the allowed range.
  Status validate() const;
};

// Where a block can be had from, best first.
enum class BlockPlace : uint8_t {
  kComputed = 0,  // the engine has it (computed_blocks)
  kDevice = 1,    // in our device tier
  kHost = 2,
  kDisk = 3,
  kInFlight = 4,  // on its way to the host tier
  kStore = 5,     // the store said recently that it has it
  kUnknown = 6,   // the store has not been asked recently
  kNone = 7,
};
std::string_view to_string(BlockPlace place);

// The longest leading runs of blocks that can be made available, the engine's own at the head
// included; each a usable cut (every full-attention group complete before it, every window group
// within its window).
struct Match {
  uint32_t ready_blocks = 0;      // load() can bring them now
  uint32_t reachable_blocks = 0;  // so can a load after prefetch (in flight, or the store has them)
  uint32_t possible_blocks =
      0;  // at most this many, if the store has all that it was not asked for
};

enum class EventKind : uint8_t {
  kPrefetchDone,    // blocks: ready_blocks now
  kLoadDone,        // blocks: leading blocks on the device, the engine's own included
  kDeviceReleased,  // no transfer touches device blocks of this request (or its former life) any
                    // more
};

struct CacheEvent {
  EventKind kind = EventKind::kLoadDone;
  Code code = Code::kOk;  // ok, or why it is less than was asked for
  // kLoadDone: device blocks offered behind `blocks` may still be written: do not use them before
  // kDeviceReleased.
  bool device_busy = false;
  RequestId request;
  uint32_t generation = 0;  // tells two lives of one request id apart; see finish()
  uint32_t blocks = 0;
};

// What finish() and abort() say about the request's device blocks.
struct Farewell {
  uint32_t generation = 0;
  // True: transfers still touch its device blocks; keep them until kDeviceReleased with this
  // generation.
  bool device_busy = false;
};

struct CacheStats {
  // Counters, in blocks unless named otherwise; they only rise.
  uint64_t matches = 0;  // calls
  uint64_t load_blocks = 0, load_failed = 0, load_corrupt = 0, load_timeout = 0;
  uint64_t save_blocks = 0, save_skipped = 0, save_failed = 0, save_dropped = 0, save_no_space = 0;
  uint64_t get_blocks = 0, get_shared = 0, get_failed = 0, get_corrupt = 0, get_timeout = 0;
  uint64_t put_blocks = 0, put_failed = 0, put_dropped = 0, put_replaced = 0;
  uint64_t exists_asked = 0, exists_found = 0, exists_failed = 0;
  uint64_t disk_get_blocks = 0, disk_get_failed = 0, disk_get_corrupt = 0, disk_get_timeout = 0;
  uint64_t disk_put_blocks = 0, disk_put_failed = 0, disk_put_dropped = 0, disk_put_no_space = 0;
  uint64_t disk_evicted_blocks = 0;
  // Load or recompute: choices made, blocks there that were not worth loading (prefetch and load
  // each count theirs), transfers that only find out how fast a path is, and paths given up after a
  // deadline at which nothing had come.
  uint64_t load_choices = 0, not_worth_blocks = 0, probes = 0, probe_blocks = 0, suspensions = 0;
  uint64_t disk_recovered_blocks = 0;    // found when the disk tier was opened
  uint64_t disk_unreachable_blocks = 0;  // found as well, but of no use: a block before it is gone
  uint64_t evicted_blocks = 0;           // from the host tier
  uint64_t stale_completions = 0;        // for jobs or requests that are gone
  uint64_t unknown_requests = 0;         // calls that named a request that does not live (calls)
  uint64_t hold_limit_hits = 0;          // requests
  uint64_t memory_losses = 0;            // times that a rank came back with empty host memory
  uint64_t unbalanced_unholds = 0, refused_frees = 0;  // bugs; 0
  // Gauges.
  uint64_t requests = 0, jobs_in_flight = 0, holds = 0;
  uint64_t queued_saves = 0, queued_puts = 0, queued_disk_puts = 0;
  uint64_t host_slots_total = 0, host_slots_used = 0, host_slots_free = 0,
           host_slots_quarantined = 0;
  uint64_t host_blocks = 0;  // visible in the host tier
  uint64_t disk_slots_total = 0, disk_slots_used = 0, disk_slots_free = 0,
           disk_slots_quarantined = 0;
  // Have failed again and again while the rest of the disk works: not used until the next start.
  uint64_t disk_slots_withdrawn = 0;
  uint64_t index_nodes = 0, index_nodes_max = 0, index_bytes = 0, side_table_bytes = 0;
  std::array<uint64_t, kTierCount> tier_blocks{};
  // The least healthy of the ranks' stores, and of their disks; `opened` and `refused` are sums.
  StoreHealth store;
  StoreHealth disk;
  // Why an operation of a store failed last, of the rank with the least healthy one, as
  // DataPlane::store_reason.
  ReasonText store_reason;
};

class BlockIndex;
class CacheFactory;

class Cache {
 public:
  // `plane` and `clock` must outlive the cache; the plane's ranks must have been built with
  // the slot geometry of `config`, as LocalCache does. kInvalid as CacheConfig::validate; kNoSpace
  // if the index does not fit into memory.
  static Result<std::unique_ptr<Cache>> create(const CacheConfig& config, DataPlane& plane,
                                               const Clock& clock);
  ~Cache();

  // Smallest host tier that a configuration can work with.
  static uint32_t host_blocks_min() { return 4; }

  // Leading blocks of `keys` that can be made available. `keys` are full blocks from the first on;
  // the engine has the first `computed_blocks` itself. Cheap, no side effects, holds nothing: a
  // block may be gone by the time of load(), which then is a shorter hit. `places`, if not empty,
  // gets the place of each block (the worst over the groups), as far as it reaches.
  Match match(std::span<const BlockKey> keys, uint32_t computed_blocks,
              std::span<BlockPlace> places = {});

  // Asks the store about what only it may have and pulls it, and what lies on disk, to the host
  // tier, in prefix order, until `deadline`. Requests with the same missing blocks share one
  // transfer. True: started, one kPrefetchDone will follow. False: nothing to do, no event. kBusy,
  // kInvalid: not started. With load_or_recompute only what is worth it, where `wait` is how long
  // the request will wait for its turn in any case, and not longer than that, three times the
  // expected time (or what computing it takes, if that is more) and three polls.
  Result<bool> prefetch(RequestId request, std::span<const BlockKey> keys, uint32_t computed_blocks,
                        TimePoint deadline, Duration wait = Duration(0));

  // Leading blocks of `keys` that the store is known to have, because it said so lately or has
  // taken them; it may have more. Cheap, no side effects.
  uint32_t stored_blocks(std::span<const BlockKey> keys) const;

  // Copies the ready blocks behind `computed_blocks` to the device, those on disk by way of the
  // host tier, and holds them until the request ends. `device_blocks` is group-major: for each
  // group the device blocks for the positions computed_blocks, computed_blocks + 1, …; all groups
  // equally many; what is offered bounds the load. The engine must not touch them until kLoadDone.
  // Returns how many positions are being loaded; 0: nothing, no event. kBusy: a load of this
  // request is running. kInvalid: sizes do not agree. With load_or_recompute only what is worth it,
  // and ended as in prefetch().
  Result<uint32_t> load(RequestId request, std::span<const BlockKey> keys, uint32_t computed_blocks,
                        std::span<const DeviceBlockId> device_blocks, TimePoint deadline);

  // Says which device blocks hold, or will hold, the KV of the positions first_block, first_block +
  // 1, … (group-major as in load). Nothing is read before commit() covers it; each position is
  // declared once; later declarations of the same position are ignored. `keys` from the first block
  // of the request on, at least as far as the positions reach. kInvalid: sizes do not agree.
  Status save(RequestId request, std::span<const BlockKey> keys, uint32_t first_block,
              std::span<const DeviceBlockId> device_blocks);

  // Tokens [0, token_count) have KV now: full blocks among them that were declared by save() are
  // stored by write policy. Never falls: a smaller count than before is ignored.
  Status commit(RequestId request, uint64_t token_count);

  // The request has ended. Queued saves go on; its holds are released. kNotFound if it does not
  // live (counted, harmless).
  Result<Farewell> finish(RequestId request);
  // As finish(), but drops queued saves and gives up its load and prefetch (no events for them
  // follow).
  Result<Farewell> abort(RequestId request);

  // Takes in what the data plane has completed, applies deadlines, starts what waits, and copies
  // out events (at most events.size(); the rest stays for the next call). Returns how many events.
  size_t poll(std::span<CacheEvent> events);

  // When poll() has something to do even if no completion arrives; kNoDeadline if never.
  TimePoint next_deadline() const;
  // No job is in flight or queued.
  bool idle() const;
  // The same, but what has passed its deadline and has not let go yet (quarantine) does not count:
  // it may never do so.
  bool settled() const;

  // Reasons for what was not served or not stored, for a living or recently ended request (its
  // latest life); nullptr if not known. Valid until the next call.
  const WhyRecord* why(RequestId request) const;

  CacheStats stats() const;

  // The engine has computed `tokens` of prefill in `duration`, which looked back on
  // `context_tokens` before them, in the mean of its requests. Told at each step with enough
  // prefill in it to fill the step; what load_or_recompute knows of the engine comes from here.
  void observe_prefill(uint64_t tokens, uint64_t context_tokens, Duration duration);

  // What is believed of the speed of tiers, store and engine.
  LoadEstimates load_estimates() const;

  // Forgets all blocks of the owned tiers at once (new weights, for instance); memory is swept by
  // poll(). What is in flight completes but is not published. A restart finds nothing of it on disk
  // once idle() has been seen.
  void clear();

  // The engine's device memory has lost what stood in it, on any rank: what is queued to be saved
  // from there is dropped. What is in flight ends as its rank says; the engine ends the requests
  // that had blocks there.
  void device_lost();

  // Takes no new work from now on (loads and prefetches find nothing, saves are dropped); what is
  // in flight may end until `deadline`. Poll until closed().
  void close(TimePoint deadline);
  bool closed() const;

  // Every invariant (free + used + quarantined = total, no holds without owner, …), linear time;
  // empty if all hold. `quiet`: also that nothing is in flight, held or quarantined.
  // `device_holds`: holds of the engine's device tier (PrefixCache::hold_count), which stand in the
  // same index.
  std::string check(bool quiet, uint64_t device_holds = 0) const;

  // As it was made, `with_store` as it really is.
  const CacheConfig& config() const;

  // For the engine's device tier (engine/prefix_cache.h), which keeps its places in the same index.
  BlockIndex& index();

 private:
  friend class CacheFactory;
  class Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tiercel
