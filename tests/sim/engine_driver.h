// SPDX-License-Identifier: Apache-2.0
//
// EngineDriver: one episode of the simulation with ResourceManager: random arrivals, aborts, lost
// steps, other weights, dying ranks and faulty stores, against a model of what every device block
// holds. A request that reads KV which was never computed, or is of other tokens or weights, a
// transfer that touches what a step uses, a load that outlives its deadline, an output that is
// another than without a cache: each is a failure.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine_instance.h"
#include "episode.h"

namespace tiercel::sim {

class EngineDriver final : public Episode {
 public:
  EngineDriver(const SimConfig& config, const Sabotage& sabotage, uint64_t episode_seed);

  void step(uint64_t number) override;
  void finish() override;
  Coverage take_coverage() override;
  void set_trace(std::function<void(const std::string&)> trace) override;

 private:
  struct Life {
    EngineRequest asked;
    size_t instance = 0;
    uint64_t weights_changes = 0;  // that had been when it was added
  };

  EngineInstance& pick_instance(Random& random);
  void add(Random& random);
  EngineRequest make_request(Random& random, RequestId id) const;
  void abort(Random& random);
  void advance(Random& random);
  void bad_call(Random& random);
  void change_weights(Random& random);
  void pick_faults(Random& random);
  void move_clock(Random& random);
  void advance_clock(Duration by, bool finely);
  void take_finished(EngineInstance& instance);
  // From the prefill to the decode instance.
  void hand_over(const Life& life, const FinishedRequest& finished);
  void start_life(Life life);
  void end_life(RequestId id);
  void settle();
  void check();
  void note(const std::string& what);

  const SimConfig& config_;
  const Sabotage sabotage_;
  const uint64_t seed_;
  const bool faultless_;
  Coverage coverage_;
  EngineWorld world_;
  std::vector<std::unique_ptr<EngineInstance>> instances_;
  std::map<RequestId, Life> lives_;
  std::vector<EngineRequest> ended_;  // lately, for another turn: prompt and outputs
  std::vector<RequestId> ended_ids_;  // lately, for reuse
  uint64_t last_id_ = 0;
  uint64_t weights_changes_ = 0;
  std::function<void(const std::string&)> trace_;
};

}  // namespace tiercel::sim
