// SPDX-License-Identifier: Apache-2.0
//
// Episode: one run of the simulation. Steps depend on configuration, episode seed and step number
// only; a step may be left out without changing what the others choose.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "failure.h"
#include "sim_config.h"

namespace tiercel::sim {

class Episode {
 public:
  virtual ~Episode() = default;

  // Both throw SimFailure.
  virtual void step(uint64_t number) = 0;
  // Ends the storm, waits for calm, and checks what must hold then.
  virtual void finish() = 0;

  // What was met, to be called once, after the last step.
  virtual Coverage take_coverage() = 0;
  virtual void set_trace(std::function<void(const std::string&)> trace) = 0;
};

// Of a toy engine over Cache, or of ResourceManager, as the configuration says.
std::unique_ptr<Episode> make_episode(const SimConfig& config, const Sabotage& sabotage,
                                      uint64_t episode_seed);

}  // namespace tiercel::sim
