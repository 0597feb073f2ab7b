// SPDX-License-Identifier: Apache-2.0
//
// ToyEngine: a small scheduler that keeps Cache's contract to the letter and uses every freedom
// that it leaves: it ends requests at any moment, uses ids and device blocks again as soon as it
// may, and leaves garbage in every device block whose KV has not been computed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tiercel/cache.h"

#include "base/manual_clock.h"
#include "base/random.h"
#include "failure.h"
#include "model.h"
#include "sim_config.h"
#include "sim_device.h"

namespace tiercel::sim {

class ToyEngine {
 public:
  // All borrowed. `faultless`: nothing ever fails in this run, so nothing may be reported to.
  ToyEngine(const SimConfig& config, Cache& cache, SimDevice& device, Model& model,
            ManualClock& clock, Coverage& coverage, bool faultless);

  // One action each; they do nothing where nothing can be done. A line about what was done goes to
  // `trace`.
  void start(Random& random);
  void advance(Random& random);
  void end_one(Random& random);
  void end_all();
  void bad_call(Random& random);
  void probe(Random& random);
  void poll(size_t event_span);
  // Also, where no store keeps what was computed before: other weights, by chance.
  void clear(Random& random);
  // A rank has lost its host memory; the cache finds out by itself.
  void memory_lost();
  // The cache is about to be closed: it finds nothing from now on.
  void cache_closes();

  // Of everything that the engine believes.
  void check();
  // Nothing lives, and every device block has come back.
  void check_quiet() const;
  // Computes and saves a few paths before the storm and then clears the cache, so that there is
  // something that only the store has.
  void warm_up(Random& random, const std::function<void()>& settle);
  // A request that shares nothing with others is stored, found and loaded (`settle` lets time pass
  // until nothing is in flight).
  void serve_normally(const std::function<void()>& settle);
  // What serve_normally() has stored before a restart is loaded, as far as it is there.
  void load_again(const std::function<void()>& settle);

  size_t living() const { return lives_.size(); }
  std::function<void(const std::string&)> trace;

  static constexpr uint32_t kPathBlocks = 14;
  // Every path that a request can take, as far as keys were made for it.
  std::vector<std::vector<BlockKey>> known_paths() const;

 private:
  enum class Phase : uint8_t { kNew, kPrefetching, kLoading, kWaiting, kComputing };
  enum class Content : uint8_t { kNothing, kGarbage, kOffered, kKv };
  struct Place {
    DeviceBlockId block;
    Content content = Content::kNothing;
  };
  using Owned = std::pair<GroupId, DeviceBlockId>;

  struct Life {
    RequestId id;
    uint32_t generation = 0;  // 0: not known yet
    std::string path;         // scope and one letter per block
    std::vector<BlockKey> keys;
    uint32_t prompt_tokens = 0;
    uint32_t total_tokens = 0;
    uint32_t computed_tokens = 0;
    uint32_t committed_tokens = 0;
    Phase phase = Phase::kNew;
    bool known = false;  // to the cache
    bool declares_early = false;
    uint32_t own_blocks = 0;
    uint32_t declared_blocks = 0;
    std::vector<std::vector<Place>> places;  // [group][position]

    bool expects_load = false;
    TimePoint load_due;
    uint32_t load_first = 0, load_count = 0;
    bool expects_prefetch = false;
    TimePoint prefetch_due;
    bool expects_release = false;
    std::vector<Owned> parked;  // until kDeviceReleased, while the request goes on

    bool lost_holds = false;                   // by clear() or the hold limit
    uint32_t held_first = 0, held_blocks = 0;  // the cache has promised to hold [first, blocks)
  };

  uint32_t groups() const { return static_cast<uint32_t>(config_.cache.spec.groups.size()); }
  uint32_t block_tokens() const { return config_.cache.spec.block_tokens; }
  std::vector<BlockKey> keys_of(const std::string& path);
  Life make_life(Random& random, RequestId id);
  TimePoint pick_deadline(Random& random, bool patient) const;
  std::span<const BlockKey> loadable(const Life& life) const;

  void load_normally(std::span<const BlockKey> keys, int tries,
                     const std::function<void()>& settle);
  void begin_prefetch(Life& life, Random& random);
  void begin_load(Life& life, Random& random);
  void compute(Life& life, Random& random);
  void declare(Life& life, uint32_t first, uint32_t end);
  void commit(Life& life, uint64_t tokens);
  bool allocate(Life& life, uint32_t position);
  void end_life(size_t index, bool aborted);
  void give_back(Life& life, bool busy);

  void on_event(const CacheEvent& event);
  void on_load_done(Life& life, const CacheEvent& event);
  void on_prefetch_done(Life& life, const CacheEvent& event);
  void on_released(const CacheEvent& event);
  Life* life_of(const CacheEvent& event);
  void check_why(RequestId id);
  void note(const std::string& what);
  void count(const std::string& what) { ++coverage_[what]; }

  const SimConfig& config_;
  Cache& cache_;
  SimDevice& device_;
  Model& model_;
  ManualClock& clock_;
  Coverage& coverage_;
  const bool faultless_;

  std::vector<Life> lives_;
  std::vector<RequestId> ended_ids_;  // lately, for reuse
  std::set<uint32_t> ended_generations_;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<Owned>> owed_;  // id, generation → blocks
  uint64_t next_id_ = 1;
  uint64_t hold_limit_hits_ = 0;
  bool cache_closes_ = false;
};

}  // namespace tiercel::sim
