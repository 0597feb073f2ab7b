// SPDX-License-Identifier: Apache-2.0
//
// The state machine behind ResourceManager. Its verbs are spread over files by concern:
//   resource_manager_config.cc    configuration, names
//   resource_manager.cc           add, abort, complete, ends of requests
//   resource_manager_schedule.cc  what runs: chunks, decodes, preemption
//   resource_manager_admit.cc     what may begin: prefetch, admission, load
//   resource_manager_await.cc     who waits for what another request is computing
//   resource_manager_roles.cc     hand-over from a prefill to a decode instance
//   resource_manager_check.cc     figures and invariants
//
// Where an entry stands: `waiting_` (kWaiting), nowhere else (kPrefetching, kHandingOver: found by
// id), `running_` (kLoading, kRunning: whoever has device blocks), `ending_` (aborted in the open
// batch). Threads: control thread only.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/engine_protections.h"
#include "engine/resource_manager.h"
#include "engine/tokens_ahead.h"

namespace tiercel {

// One request, from add() until it has ended.
struct EngineEntry {
  RequestId id;
  int32_t priority = 0;
  uint64_t arrival = 0;  // rises
  Scope scope;
  std::vector<SequenceItem> items;
  std::vector<TokenId> tokens;  // the prompt, then the outputs
  uint64_t prompt_tokens = 0;
  uint64_t given_tokens = 0;  // the prompt, and the outputs that it came with
  uint64_t tokens_max = 0;    // it ends when it has so many,
  FinishReason at_tokens_max = FinishReason::kOutputLimit;  // for this reason
  std::optional<BlockKey> partial_key;  // of the prompt's last block, where roles need it
  std::optional<Sequence> sequence;     // of the tokens that may be shared; none: to be made anew

  RequestState state = RequestState::kWaiting;
  bool is_private = false;    // its KV is of more than one namespace
  bool has_computed = false;  // something, since it was admitted
  bool was_scheduled = false;
  bool looked_at = false;  // whether to prefetch for it has been decided
  bool in_cache = false;   // Cache knows it, though it is not admitted
  bool in_batch = false;
  bool loads_partial = false;  // the last key of its load is partial_key
  bool waits = false;          // until nobody loads `awaited_key`
  bool announces = false;      // loads `announced_key` and what is behind
  bool computes = false;       // stands in `computing_` under `computing_key`
  bool awaits = false;         // that `awaited` has computed its first `awaited_blocks`
  uint32_t batch_tokens = 0;   // in the open batch
  uint64_t validation = 0;     // the complete() that has seen a result for it
  uint64_t computed_tokens = 0;
  uint32_t device_blocks = 0;   // positions with a device block
  uint32_t hit_blocks = 0;      // positions that were on the device at admission
  uint32_t shared_blocks = 0;   // positions that have been offered to others
  uint32_t prefill_blocks = 0;  // while it runs: full blocks of the tokens it was admitted with
  uint32_t stored_blocks = 0;   // while handing over: leading ones that the store is known to have
  BlockTable table;
  BlockKey awaited_key, announced_key, computing_key;
  uint64_t tokens_to_compute = 0;  // while it waits: as of the last look; 0: not known
  RequestId awaited;
  uint64_t awaited_arrival = 0;           // tells its lives apart
  uint32_t awaited_blocks = 0;            // 0: for nobody since the last look
  std::optional<TimePoint> awaits_until;  // of all waits until one has brought something

  FinishedRequest finished;  // grows as it lives

  uint64_t pending_tokens() const { return tokens.size() - computed_tokens; }
};

class ResourceManagerImpl final : public ResourceManager {
 public:
  ResourceManagerImpl(const EngineProtections& protections, const ResourceManagerConfig& config,
                      const Namespace& name_space, Cache& cache, PrefixCache& prefix,
                      const Clock& clock);

  Status add(EngineRequest request) override;
  Status abort(RequestId request) override;
  const Batch& schedule() override;
  Status complete(uint64_t step, std::span<const StepResult> results) override;
  Status fail_step(uint64_t step, bool device_memory_lost) override;
  std::optional<FinishedRequest> take_finished() override;
  void weights_changed(const Namespace& name_space) override;
  TimePoint next_deadline() const override;
  bool idle() const override { return entries_.empty() && !is_open_; }
  std::optional<RequestState> state(RequestId request) const override;
  ResourceManagerStats stats() const override;
  std::string check() const override;

 private:
  using Entry = EngineEntry;
  struct ComesBefore {
    bool operator()(const Entry* a, const Entry* b) const {
      return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
    }
  };
  enum class Room : uint8_t { kGiven, kNotNow, kPreempted };
  enum class Look : uint8_t { kGone, kPassed, kNoRoom };
  // What a look has found of a request's leading blocks.
  struct Found {
    uint32_t device_blocks = 0;    // on the device
    uint32_t unused_blocks = 0;    // of these: in no request's use
    uint32_t ready_blocks = 0;     // can be loaded now, those on the device included
    uint32_t possible_blocks = 0;  // the same after a prefetch, if the store has them all
  };

  // resource_manager.cc
  Status check_request(const EngineRequest& request) const;
  uint64_t blocks_of(uint64_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  Status make_sequence(Entry& entry);
  // Keys of the blocks that may be shared; none for private requests.
  std::span<const BlockKey> shared_keys(const Entry& entry) const;
  void share(Entry& entry);
  void take_token(Entry& entry, TokenId token);
  // Whether it ends with the token that it has just been given, and why.
  std::optional<FinishReason> end_after(const Entry& entry, bool end_of_sequence) const;
  void finish(Entry& entry, FinishReason reason);
  void report(Entry& entry, FinishReason reason);
  bool caches_outputs() const {
    return config_.cache_outputs && config_.role != EngineRole::kPrefill;
  }
  void hand_over(Entry& entry);
  void poll_hand_overs();
  void leave_batch(Entry& entry);
  void close_step();
  void take_from_running(Entry& entry);
  void unannounce(Entry& entry);
  // It has lost its device blocks, or is about to: to be told in the list of a batch.
  void count_preemption(Entry& entry, std::vector<RequestId>& told);
  // Gives its device blocks back and waits again. `drop`: its queued saves are dropped.
  void send_back(Entry& entry, bool drop);
  bool is_ending(RequestId id) const;

  // resource_manager_schedule.cc
  void poll_cache();
  void on_event(const CacheEvent& event);
  void on_load_done(Entry& entry, const CacheEvent& event);
  void schedule_running();
  // Puts it into the batch with as many tokens as it may have.
  Room schedule_one(Entry& entry, uint32_t budget);
  Room make_room(Entry& entry, uint64_t token_count);
  void preempt(Entry& entry);

  // resource_manager_admit.cc
  void admit_waiting();
  Look look_at(Entry& entry, bool may_begin);
  // What it may load: full blocks, and in the decode role the prompt's partial block behind them.
  // Valid until the next call.
  std::span<const BlockKey> loadable_keys(const Entry& entry);
  // Whether the blocks that a load brings with a partial block of `token_count` tokens as its last
  // hold all that the token behind it sees.
  bool window_reaches(uint64_t token_count) const;
  uint64_t tokens_of_blocks(const Entry& entry, uint32_t blocks) const;
  bool start_prefetch(Entry& entry, const Found& found);
  Look admit(Entry& entry, const Found& found);
  uint64_t promised_blocks() const;

  // resource_manager_await.cc
  // Tells others which block it computes next, as far as there is one.
  void tell_computing(Entry& entry);
  void stop_computing(Entry& entry);
  // Whether it waits from now on for one that comes before it and computes what it lacks.
  bool begin_await(Entry& entry, const Found& found);
  bool still_awaits(Entry& entry);
  void forget_await(Entry& entry);
  // What the engine takes for so many tokens of prefill, as far as is known.
  Duration prefill_time(uint64_t tokens) const;

  const EngineProtections protections_;
  const ResourceManagerConfig config_;
  const uint32_t block_tokens_;
  const bool with_store_;
  Namespace namespace_;
  Cache& cache_;
  PrefixCache& prefix_;
  const Clock& clock_;

  std::unordered_map<RequestId, std::unique_ptr<Entry>> entries_;
  std::set<Entry*, ComesBefore> waiting_;
  std::vector<Entry*> running_;                     // in the same order
  std::vector<std::unique_ptr<Entry>> ending_;      // aborted, but in the open batch
  std::unordered_map<BlockKey, Entry*> announced_;  // first block of each load
  std::deque<FinishedRequest> finished_;
  std::vector<Sequence> spare_sequences_;           // of requests that have ended, for their memory
  std::unordered_map<BlockKey, Entry*> computing_;  // first block that is not shared yet
  uint32_t prefetching_ = 0;
  std::vector<Entry*> handing_over_;  // in order of hand-over
  uint64_t last_arrival_ = 0;
  uint64_t last_validation_ = 0;

  // The step.
  bool is_open_ = false;
  uint64_t last_step_ = 0;
  Batch batch_;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<RequestId> preempted_;       // shown in batch_
  std::vector<RequestId> preempted_next_;  // to be shown
  uint32_t budget_ = 0;                    // tokens left
  uint32_t decodes_left_ = 0;              // requests behind that will want one token
  bool is_short_ = false;                  // some request found no room in this step
  bool has_more_to_look_at_ = false;
  TokensAhead ahead_;  // of those who run, and of those who wait before the present look
  TimePoint awaits_end_ = kNoDeadline;  // when the first of those who await gives up
  std::optional<TimePoint> wait_for_leaving_until_;
  std::vector<BlockKey> keys_;         // scratch
  std::array<CacheEvent, 64> events_;  // scratch

  ResourceManagerStats stats_;
};

}  // namespace tiercel
