// SPDX-License-Identifier: Apache-2.0
//
// ResourceManager: a continuous-batching scheduler that never waits.
//
// It decides, step by step, which requests run, which of their tokens, and in which device blocks;
// what is cached anywhere is brought in before, and computed KV is shared and written back after.
// An engine around it is a loop:
//
//   const Batch& batch = manager.schedule();
//   while (auto finished = manager.take_finished()) answer(*finished);
//   if (batch.requests.empty()) { wait for the data plane, at most until next_deadline(); go on }
//   run the model: for each request, the KV of `tokens` goes to positions first_token, … of its
//     blocks, reading every position before them; where `samples`, sample from the last one
//   manager.complete(batch.step, results);
//
// add() and abort() may be called at any moment of it.
//
// A request waits in order of (priority, arrival) → its missing blocks are fetched from the store
// into the host tier while it waits, and what a request before it is computing just now is not
// computed twice → it is admitted: device blocks for what is hit and for its
// first chunk, never for content that turns out not to exist → what is hit is loaded, with a
// deadline → the rest of the prompt is computed in chunks, within the token budget and beside the
// decodes of others → it decodes. When the pool runs out, the request that is last in that order is
// preempted: its blocks are given back, it waits again, at the front of its priority, and what is
// not cached of it by then is computed anew.
//
// Every copy has arrived before a request enters a batch, so no copy has to precede a layer of it;
// a later Batch may carry copies that do.
//
// Nothing here fails a request. A load or prefetch that fails or misses its deadline becomes
// prefill work in the next step; a store that hangs costs the requests that wanted something of it
// their prefetch deadline, and others nothing.
//
// No call blocks, takes a lock or touches payload bytes; time is injected; the same calls give the
// same steps. Threads: control thread only, as Cache.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tiercel/cache.h"
#include "tiercel/clock.h"
#include "tiercel/key.h"
#include "tiercel/status.h"

#include "engine/block_table.h"
#include "engine/engine_request.h"
#include "engine/prefix_cache.h"

namespace tiercel {

// What an instance does of a request's life.
enum class EngineRole : uint8_t {
  kMixed,    // all of it
  kPrefill,  // the prompt and the first token; everything is saved, the last partial block included
  kDecode,   // goes on with what a prefill instance has stored; what is missing it computes anew
};
// "mixed", "prefill", "decode"
std::string_view to_string(EngineRole role);

struct ResourceManagerConfig {
  EngineRole role = EngineRole::kMixed;
  uint32_t step_tokens_max = 8192;           // tokens of one batch; at least running_max
  uint32_t prefill_chunk_tokens_max = 2048;  // of one request in one batch; at least 1
  uint32_t running_max = 256;                // requests with device blocks; 1 to 65536
  uint32_t waiting_max = 65536;              // requests without; 1 to 2^20
  uint64_t context_tokens_max = 131'072;     // prompt and outputs of one request; 2 to 2^32
  bool cache_outputs = true;  // blocks with sampled tokens are shared and saved as well
  // A preempted request's queued saves: go on, and keep its device blocks until they are through
  // (true), or are dropped, so that the blocks are free sooner.
  bool save_preempted = true;
  Duration load_deadline = std::chrono::milliseconds(500);  // of one load, from its start
  Duration prefetch_deadline = std::chrono::seconds(2);     // of one prefetch, likewise
  Duration hand_over_deadline = std::chrono::seconds(5);    // prefill role: of the saves
  uint32_t prefetching_max = 64;  // requests that wait for the store at once; others do without
  // Waiting requests that one step looks at; bounds its time whatever waits.
  uint32_t looks_per_step_max = 16;
  // Blocks of those; the step's last look may exceed it.
  uint32_t look_blocks_per_step_max = 4096;
  // A request that lacks so many tokens at least which one before it is computing just now waits
  // for them, no longer than it would take to compute them; 0: never. Waiting costs a step, so this
  // is about what a step costs beside its prefill, in tokens; at most 2^24.
  uint32_t await_tokens_min = 1024;

  // kInvalid with the option's name, the value and the allowed range.
  Status validate() const;
};

// One request of a batch. The spans are valid until complete() or fail_step() of its step.
struct ScheduledRequest {
  RequestId id;
  uint64_t first_token = 0;         // position of tokens.front(); KV of all before it is there
  std::span<const TokenId> tokens;  // to be computed: positions first_token, first_token + 1, …
  BlockTable block_table;           // covers all of them
  bool samples = false;             // the logits of the last token give the next one
};

struct Batch {
  uint64_t step = 0;  // of this batch; rises from 1
  std::span<const ScheduledRequest> requests;
  // Since the last batch: they have lost their device blocks and begin anew.
  std::span<const RequestId> preempted;
  uint32_t token_count = 0;  // of all requests
};

// What the engine has done for one request of the batch.
struct StepResult {
  RequestId id;
  std::optional<TokenId> token;  // exactly where `samples`
  bool finished = false;         // `token` ends the sequence (it is kept in the outputs)
};

enum class RequestState : uint8_t {
  kWaiting,      // for its turn, or for room
  kPrefetching,  // for the store, not longer than the prefetch deadline
  kLoading,      // has device blocks, which are being filled
  kRunning,      // has KV; in every batch as far as budget and pool allow
  kHandingOver,  // prefill role: for the saves, not longer than the hand-over deadline
};
std::string_view to_string(RequestState state);

struct ResourceManagerStats {
  // Counters; they only rise.
  uint64_t steps = 0;             // batches that were not empty
  uint64_t scheduled_tokens = 0;  // computed and lost ones included
  uint64_t decode_tokens = 0;     // of these: the only token of its request, which sampled
  uint64_t added = 0, aborted = 0, finished = 0, admitted = 0;  // requests
  uint64_t preempted = 0;
  uint64_t device_hit_tokens = 0, loaded_tokens = 0;  // by admissions
  uint64_t prefetches = 0, prefetches_late = 0;       // started; not whole at the deadline
  uint64_t loads = 0, loads_short = 0;                // started; brought less than was ready
  uint64_t shared_waits = 0;    // admissions put off because another request loads the same blocks
  uint64_t computed_waits = 0;  // the same, because another request computes them
  uint64_t computed_waits_vain = 0;  // of these: it has ended before, or its time was over
  uint64_t blocks_parted = 0;        // positions whose device blocks were left to a late load
  uint64_t lost_tokens = 0;          // scheduled, but not computed (fail_step, or no result)
  // Gauges.
  uint64_t waiting = 0, prefetching = 0, loading = 0, running = 0, handing_over = 0;
};

class ResourceManager {
 public:
  // All of them are borrowed and must outlive the object: the cache, `prefix` over it, and their
  // clock. Nobody else may poll `cache` or `prefix`, or admit requests there. kInvalid for a role
  // other than mixed without a store, and as ResourceManagerConfig::validate.
  static Result<std::unique_ptr<ResourceManager>> create(const ResourceManagerConfig& config,
                                                         Cache& cache, PrefixCache& prefix,
                                                         const Clock& clock);
  virtual ~ResourceManager() = default;

  // Takes a request; its full blocks are hashed now. kInvalid, with the value and what is allowed:
  // an empty prompt, more tokens than the context or the device pool can ever hold, no output
  // token, an id that lives already, a bad item. kBusy: waiting_max requests wait. Output tokens
  // for which there is no room in the context or pool are not an error: see FinishReason.
  //
  // Hand-over: a prefill instance reports kHandedOver once the store has what it computed, or when
  // the hand-over deadline passes; a decode instance is given the same request, with the reported
  // outputs, and goes on. What is missing in the store by then it computes.
  virtual Status add(EngineRequest request) = 0;

  // The request ends now, whatever it is doing; no FinishedRequest follows. If it is in the open
  // batch its blocks stay untouched until complete(), and its result is ignored. kNotFound if it
  // does not live.
  virtual Status abort(RequestId request) = 0;

  // Takes in what tiers and store have completed, and says what to run next. An empty batch has no
  // step to complete: there is nothing to run now. While a batch is open it is returned again.
  virtual const Batch& schedule() = 0;

  // What came of the open batch. A request without a result was not computed: it is scheduled
  // again. kInvalid, and nothing is taken: not the open step, a request that is not in it or twice,
  // a token where none was to be sampled, none where one was.
  virtual Status complete(uint64_t step, std::span<const StepResult> results) = 0;

  // Nothing of the open batch was computed, because a rank was lost in mid-step, for instance, and
  // nothing runs or touches device memory any more. `device_memory_lost`: neither is anything left
  // of what was computed or loaded before; all requests with device blocks are preempted, and the
  // device tier is emptied. kInvalid if it is not the open step (with device_memory_lost it may be
  // 0 while none is open).
  virtual Status fail_step(uint64_t step, bool device_memory_lost) = 0;

  // The next request that has ended by itself; nullopt if there is none.
  virtual std::optional<FinishedRequest> take_finished() = 0;

  // What is computed from now on is computed with other weights (or anything else that a namespace
  // stands for). Requests that have computed something go on with the KV that they have, privately:
  // nothing of theirs is shared, saved or loaded any more, unless they are preempted and begin
  // anew. All others begin anew in the new namespace. Blocks of the old one are not found any more
  // and go by eviction; stores and disk keep the namespace that the cache was opened with in the
  // names of their objects, but keys decide, so nothing of one namespace is ever taken for the
  // other's. A batch that is open counts as computed with the old weights.
  virtual void weights_changed(const Namespace& name_space) = 0;

  // When schedule() has something to do even if the data plane completes nothing; kNoDeadline if
  // never.
  virtual TimePoint next_deadline() const = 0;
  // No request lives and no batch is open; transfers may still go on (Cache::idle).
  virtual bool idle() const = 0;

  // nullopt if the request does not live.
  virtual std::optional<RequestState> state(RequestId request) const = 0;
  virtual ResourceManagerStats stats() const = 0;
  // Every invariant, those of the caches below left out; empty if all hold. Linear; for tests.
  virtual std::string check() const = 0;
};

}  // namespace tiercel
