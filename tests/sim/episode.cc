// SPDX-License-Identifier: Apache-2.0
#include "episode.h"

#include "driver.h"
#include "engine_driver.h"

namespace tiercel::sim {

std::unique_ptr<Episode> make_episode(const SimConfig& config, const Sabotage& sabotage,
                                      uint64_t episode_seed) {
  if (config.engine) return std::make_unique<EngineDriver>(config, sabotage, episode_seed);
  return std::make_unique<Driver>(config, sabotage, episode_seed);
}

}  // namespace tiercel::sim
