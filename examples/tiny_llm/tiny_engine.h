// SPDX-License-Identifier: Apache-2.0
//
// TinyEngine: one serving instance around the tiny decoder. ResourceManager schedules, LocalCache
// keeps the tiers, the KV tensors of the ranks are the device memory that Tiercel copies.
//
// It trusts nothing that it is given: before each chunk it compares every block that the chunk will
// read, and after it every block that has become full, with what the recorder knows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tiercel/local_cache.h"

#include "engine/prefix_cache.h"
#include "engine/resource_manager.h"
#include "tiny_llm/kv_recorder.h"
#include "tiny_llm/planted_fault.h"
#include "tiny_llm/reference.h"
#include "tiny_llm/tiny_model.h"

namespace tiercel::tiny {

// Weights with what goes by them: the namespace, and what KV computed with them must be.
struct TinyWeightsRevision {
  const TinyModel* model = nullptr;
  KvSpec spec;
  Namespace name_space;  // of the spec
  KvRecorder* recorder = nullptr;
};

struct TinyEngineOptions {
  TinyWeightsRevision weights;  // what it names is borrowed
  uint32_t device_blocks = 64;
  uint32_t host_blocks = 64;
  bool host = true;       // keep blocks in the host tier; false: on the device only
  bool share = true;      // false: each request is a tenant of its own, nothing can be found
  std::string store_url;  // empty: no store
  DiskConfig disk;        // no disk tier where its path is empty
  ResourceManagerConfig scheduler;
  PlantedFault fault = PlantedFault::kNone;
  const std::atomic<bool>* stop = nullptr;  // set by someone else: every step is kCancelled
};

// What the comparisons of bytes have found.
struct TinyFindings {
  uint64_t compared_blocks = 0;  // found on the device, or loaded, and then read by a chunk
  uint64_t partial_blocks = 0;   // of these: a prompt's last one, handed over unfilled
  uint64_t computed_blocks = 0;  // computed and compared
  uint64_t wrong_blocks = 0;     // a block of a request counts once
  uint64_t planted_faults = 0;
  std::vector<std::string> complaints;  // the first of them
};

// Threads: one.
class TinyEngine {
 public:
  // As LocalCache::open and ResourceManager::create. `registry` joins the `memory:` stores of
  // several engines; `clock` must outlive the engine.
  static Result<std::unique_ptr<TinyEngine>> open(const TinyEngineOptions& options,
                                                  const Clock& clock,
                                                  std::shared_ptr<StoreRegistry> registry);

  // As ResourceManager.
  Status add(EngineRequest request);
  Status abort(RequestId request);

  // One step: schedule, compare, compute, complete; waits a little if there is nothing to run.
  // kInternal if ResourceManager breaks its word, kTimeout if nothing moves any more, kCancelled.
  Status step();

  bool idle() const { return manager_->idle(); }
  // Steps until no request lives.
  Status run();
  // run(), and then until tiers and store have what they were to get.
  Status drain();

  struct Ended {
    Answer answer;             // logits of what was sampled here; outputs with those handed over
    bool mixed = false;        // weights changed on its way: there is no reference for it
    FinishedRequest finished;  // what the scheduler says
  };
  // A request that has ended by itself, removed here; kNotFound if there is none of this id.
  Result<Ended> take_ended(RequestId request);

  // Other weights from now on. `announce`: tell the scheduler, as one must. Requests that go on
  // with KV of the old weights have no reference any more, and are not compared.
  void change_weights(const TinyWeightsRevision& weights, bool announce);

  // The next step that runs anything fails, and with it goes all that stands in device memory, as
  // if the ranks had been started anew.
  void lose_device() { loses_device_ = true; }

  const TinyFindings& findings() const { return findings_; }
  ResourceManagerStats scheduler_stats() const { return manager_->stats(); }
  CacheStats cache_stats() const { return local_->cache().stats(); }

  // Every invariant of scheduler and caches; empty if all hold.
  std::string check() const;

  Status close();

 private:
  struct Life {
    EngineRequest request;
    Sequence sequence;
    std::vector<TokenId> tokens;  // prompt, then outputs
    bool fresh = true;            // nothing computed since it was admitted
    bool mixed_kv = false;        // KV of two weights
    bool mixed_answer = false;    // tokens sampled with two weights
    Answer answer;
  };

  TinyEngine(const TinyEngineOptions& options, const Clock& clock);
  Status open_parts(std::shared_ptr<StoreRegistry> registry);
  const TinyConfig& config() const { return weights_.model->config(); }
  Sequence make_sequence(const EngineRequest& request) const;
  Status take_batch(const Batch& batch);
  // The request's tokens are those that we know, and its blocks are what the chunk must read.
  Status before_chunk(const ScheduledRequest& scheduled, Life& life);
  void compare_before(const ScheduledRequest& scheduled, const Life& life);
  void compare_found(const ScheduledRequest& scheduled, const Life& life, uint32_t group);
  void compare_after(const ScheduledRequest& scheduled, const Life& life);
  void complain(RequestId request, uint32_t block, const char* when,
                const KvDifference& difference);
  void plant(const ScheduledRequest& scheduled);
  // Device memory is changed behind Tiercel's back only while no transfer reads or writes there.
  bool must_let_transfers_end() const;
  Status fail_step(uint64_t step);
  void take_finished();
  Status wait_for_something();

  const TinyEngineOptions options_;
  const Clock& clock_;
  TinyWeightsRevision weights_;
  std::vector<RankKv> ranks_;  // outlives local_, whose ranks copy from and to it
  std::unique_ptr<LocalCache> local_;
  std::unique_ptr<PrefixCache> prefix_;
  std::unique_ptr<ResourceManager> manager_;
  std::unordered_map<RequestId, Life> lives_;
  std::unordered_map<RequestId, Ended> ended_;
  TinyFindings findings_;
  std::set<std::pair<RequestId, uint32_t>> wrong_;  // request and position of the block
  bool loses_device_ = false;
  TimePoint moved_;  // when a step last had something to run
};

}  // namespace tiercel::tiny
